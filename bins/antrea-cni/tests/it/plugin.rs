//! Runs a plugin by the rules of the CNI specification.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

pub(crate) const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// The environment of a call for `container`, with its namespace at `netns`.
pub(crate) fn environment<'a>(command: &'a str, container: &'a str, netns: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", container),
        ("CNI_NETNS", netns),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c"),
        ("CNI_PATH", "/usr/lib/cni"),
    ]
}

pub(crate) fn configuration(version: &str, socket: &Path) -> Value {
    json!({"cniVersion": version, "name": "antrea", "type": "antrea", "ipam": {"type": "host-local"}, "socket": socket})
}

pub(crate) fn antrea() -> Command {
    Command::new(env!("CARGO_BIN_EXE_antrea-cni"))
}

/// Runs a plugin to its end, with the given environment only.
pub(crate) fn run(mut plugin: Command, environment: &[(&str, &str)], input: &str) -> Output {
    let mut child = plugin
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A plugin that rejects the call may have closed its standard input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// The result of a call that succeeds; `Null` if nothing is printed.
pub(crate) fn succeed(plugin: Command, environment: &[(&str, &str)], configuration: &Value) -> Value {
    let output = run(plugin, environment, &configuration.to_string());
    assert!(output.status.success(), "{configuration}: {output:?}");
    if output.stdout.is_empty() { Value::Null } else { serde_json::from_slice(&output.stdout).unwrap() }
}

/// The JSON error of a call that fails.
pub(crate) fn fail(plugin: Command, environment: &[(&str, &str)], input: &str) -> Value {
    let output = run(plugin, environment, input);
    assert!(!output.status.success(), "{input}: {output:?}");
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    let object = error.as_object().unwrap();
    assert!(object.keys().all(|key| ["cniVersion", "code", "msg", "details"].contains(&key.as_str())), "{error}");
    assert!(VERSIONS.contains(&error["cniVersion"].as_str().unwrap()), "{error}");
    assert!(error["code"].as_u64().unwrap() > 0 && !error["msg"].as_str().unwrap().is_empty(), "{error}");
    error
}
