//! Commands, versions and errors.

use std::path::Path;

use serde_json::{Value, json};

use crate::agent::{ADDRESS, Agent, GATEWAY};
use crate::plugin::{VERSIONS, antrea, configuration, environment, fail, run, succeed};

const NETNS: &str = "/var/run/netns/blue";

#[test]
fn add_check_and_del_in_every_version() {
    for version in VERSIONS {
        let agent = Agent::start(None);
        let mut configuration = configuration(version, agent.socket());
        let result = succeed(antrea(), &environment("ADD", "c1", NETNS), &configuration);
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result["interfaces"][1]["sandbox"], NETNS);
        assert_eq!(result["interfaces"][1]["mtu"], if version == "1.1.0" { json!(1450) } else { Value::Null });
        assert_eq!((&result["ips"][0]["address"], &result["ips"][0]["gateway"]), (&json!(ADDRESS), &json!(GATEWAY)));
        assert_eq!(result["ips"][0]["version"], if version < "1.0.0" { json!("4") } else { Value::Null });
        let mut expected = vec!["ADD c1/eth0 default/web-0 None".to_owned()];

        configuration["prevResult"] = result;
        if version >= "0.4.0" {
            assert_eq!(succeed(antrea(), &environment("CHECK", "c1", NETNS), &configuration), Value::Null);
            expected.push(format!("CHECK c1/eth0 web-0-8ec607 {ADDRESS}"));
        }
        assert_eq!(succeed(antrea(), &environment("DEL", "c1", NETNS), &configuration), Value::Null);
        assert_eq!(succeed(antrea(), &environment("DEL", "c1", ""), &configuration), Value::Null);
        expected.extend([format!("DEL c1/eth0 Some({NETNS:?})"), "DEL c1/eth0 None".into()]);
        assert_eq!(agent.calls(), expected);
    }
}

#[test]
fn status_and_gc_of_1_1() {
    let agent = Agent::start(None);
    let mut configuration = configuration("1.1.0", agent.socket());
    assert_eq!(succeed(antrea(), &[("CNI_COMMAND", "STATUS")], &configuration), Value::Null);
    configuration["cni.dev/valid-attachments"] = json!([{"containerID": "c1", "ifname": "eth0"}]);
    assert_eq!(succeed(antrea(), &[("CNI_COMMAND", "GC"), ("CNI_PATH", "/usr/lib/cni")], &configuration), Value::Null);
    assert_eq!(agent.calls(), ["STATUS", "GC but c1/eth0"]);
}

#[test]
fn mtu_and_dns_of_the_configuration_take_effect() {
    let agent = Agent::start(None);
    let mut configuration = configuration("1.1.0", agent.socket());
    configuration["mtu"] = json!(1400);
    configuration["dns"] = json!({"nameservers": ["10.96.0.10"]});
    let result = succeed(antrea(), &environment("ADD", "c1", NETNS), &configuration);
    assert_eq!(result["interfaces"][1]["mtu"], 1400);
    assert_eq!(result["dns"], configuration["dns"]);
}

#[test]
fn version_needs_no_agent_and_no_configuration() {
    for input in ["", r#"{"cniVersion": "0.4.0"}"#, r#"{"cniVersion": "7.0.0"}"#] {
        let output = run(antrea(), &[("CNI_COMMAND", "VERSION")], input);
        assert!(output.status.success());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let asked = serde_json::from_str::<Value>(input).map_or(json!("1.1.0"), |input| input["cniVersion"].clone());
        assert_eq!(answer, json!({"cniVersion": asked, "supportedVersions": VERSIONS}));
    }
}

#[test]
fn an_error_of_the_agent_is_printed_unchanged() {
    let agent = Agent::start(None);
    let mut configuration = configuration("0.4.0", agent.socket());
    let error = fail(antrea(), &environment("ADD", "full", NETNS), &configuration.to_string());
    let details = "10.10.0.0/24 has 254, and all are in use";
    assert_eq!(error, json!({"cniVersion": "0.4.0", "code": 101, "msg": "no address is left", "details": details}));
    configuration["prevResult"] = json!({"interfaces": [], "ips": []});
    let error = fail(antrea(), &environment("CHECK", "c1", NETNS), &configuration.to_string());
    assert_eq!((&error["code"], &error["msg"]), (&json!(103), &json!("eth0 has other addresses")));
}

#[test]
fn without_an_agent_the_error_is_transient_and_says_where_to_look() {
    let socket = Path::new("/nonexistent/cni.sock");
    let mut configuration = configuration("1.1.0", socket);
    configuration["prevResult"] = json!({});
    configuration["cni.dev/valid-attachments"] = json!([]);
    for (command, code) in [("ADD", 11), ("DEL", 11), ("CHECK", 11), ("GC", 11), ("STATUS", 50)] {
        let error = fail(antrea(), &environment(command, "c1", NETNS), &configuration.to_string());
        assert_eq!(error["code"], code, "{command}");
        let details = error["details"].as_str().unwrap();
        assert!(details.contains("/nonexistent/cni.sock") && details.contains("kubectl"), "{details}");
    }
}

#[test]
fn an_invalid_call_is_rejected_without_asking_the_agent() {
    let agent = Agent::start(None);
    let good = configuration("1.0.0", agent.socket()).to_string();
    let long = "a".repeat(300);
    let with = |name, value| {
        let mut environment = environment("ADD", "c1", NETNS);
        environment.retain(|(known, _)| *known != name);
        environment.push((name, value));
        environment
    };
    for (environment, input, code, text) in [
        (with("CNI_COMMAND", "ATTACH"), good.as_str(), 4, "CNI_COMMAND"),
        (with("CNI_CONTAINERID", ""), &good, 4, "CNI_CONTAINERID"),
        (with("CNI_CONTAINERID", &long), &good, 4, "300 bytes"),
        (with("CNI_IFNAME", &long), &good, 4, "300 bytes"),
        (with("CNI_NETNS", ""), &good, 4, "CNI_NETNS"),
        (with("CNI_ARGS", ""), &good, 4, "K8S_POD_NAME"),
        (environment("ADD", "c1", NETNS), "", 6, "standard input is empty"),
        (environment("ADD", "c1", NETNS), "{\"cniVersion\": ", 6, "not JSON"),
        (environment("ADD", "c1", NETNS), r#"{"cniVersion": "0.2.0"}"#, 1, "0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"),
        (environment("ADD", "c1", NETNS), r#"{"cniVersion": "1.0.0", "name": "a/b"}"#, 7, "name: `a/b`"),
        (
            environment("ADD", "c1", NETNS),
            r#"{"cniVersion": "1.0.0", "name": "a", "ipam": {"type": "dhcp"}}"#,
            2,
            "`dhcp`",
        ),
        (environment("GC", "c1", NETNS), &good, 1, "GC came with 1.1.0"),
        (environment("CHECK", "c1", NETNS), &good, 7, "prevResult"),
    ] {
        let error = fail(antrea(), &environment, input);
        assert_eq!(error["code"], code, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(agent.calls().is_empty());
}

#[test]
fn an_endless_configuration_is_rejected_at_the_limit() {
    let input = format!("{{\"cniVersion\": \"1.0.0\", \"name\": \"{}\"}}", "a".repeat(5 << 20));
    let error = fail(antrea(), &environment("ADD", "c1", NETNS), &input);
    assert_eq!((&error["code"], &error["msg"]), (&json!(7), &json!("the network configuration is too long")));
}

#[test]
fn help_explains_how_to_use_the_plugin() {
    let output = run(antrea(), &[], "");
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("antrea-agent install-cni"));
    assert_eq!(fail(antrea(), &[], "")["code"], 4);
    for (argument, text) in
        [("--help", "CNI_COMMAND=VERSION antrea-cni"), ("--version", concat!("antrea-cni ", env!("CARGO_PKG_VERSION")))]
    {
        let mut command = antrea();
        command.arg(argument);
        let output = run(command, &[], "");
        assert!(output.status.success() && String::from_utf8(output.stdout).unwrap().contains(text));
    }
}
