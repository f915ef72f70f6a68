//! Commands that need no cluster.

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::Scratch;

fn agent(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_antrea-agent")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn config_prints_what_is_understood_and_what_is_not() {
    let scratch = Scratch::new().unwrap();
    let file = scratch.path().join("antrea-agent.conf");
    fs::write(&file, "trafficEncapMode: hybrid\nnodePortLocal:\n  enable: true\n").unwrap();
    let output = agent(&["config", "--config", file.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let config: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&config["trafficEncapMode"], &config["defaultMTU"]), (&json!("hybrid"), &Value::Null));
    assert_eq!(
        text(&output.stderr),
        "antrea-agent: nodePortLocal.enable: is not implemented yet, so `true` has no effect\n"
    );

    fs::write(&file, "trafficEncapMode: hybird\n").unwrap();
    let output = agent(&["config", "--config", file.to_str().unwrap()]);
    assert!(!output.status.success());
    let problem = "trafficEncapMode: `hybird` is none of encap, noEncap, hybrid, networkPolicyOnly";
    assert!(text(&output.stderr).contains(&format!("{}: {problem}", file.display())), "{output:?}");
}

#[test]
fn install_cni_installs_for_the_socket_of_the_configuration() {
    let scratch = Scratch::new().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("antrea-cni"), "a program").unwrap();
    fs::write(path("agent.conf"), "cniSocket: /run/node-2/cni.sock\n").unwrap();
    let install = || {
        let [config, plugin, bin, conf] = [path("agent.conf"), path("antrea-cni"), path("bin"), path("net.d")];
        agent(&["install-cni", "--config", &config, "--plugin", &plugin, "--bin-dir", &bin, "--conf-dir", &conf])
    };
    for what in ["written", "already there"] {
        let output = install();
        assert!(output.status.success(), "{output:?}");
        let expected = format!("{}: {what}\n{}: {what}\n", path("bin/antrea"), path("net.d/10-antrea.conflist"));
        assert_eq!(text(&output.stdout), expected);
    }
    assert!(fs::read_to_string(path("net.d/10-antrea.conflist")).unwrap().contains("/run/node-2/cni.sock"));
    fs::remove_file(path("antrea-cni")).unwrap();
    let output = install();
    assert!(!output.status.success() && text(&output.stderr).contains("cannot read the plugin"), "{output:?}");
}
