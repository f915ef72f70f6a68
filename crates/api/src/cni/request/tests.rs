use std::collections::BTreeMap;
use std::os::unix::ffi::OsStringExt;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cni::DEFAULT_SOCKET;

const POD: &str =
    "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u1;X=y";

fn environment(command: &str) -> BTreeMap<String, OsString> {
    [
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/var/run/netns/blue"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", POD),
        ("CNI_PATH", "/opt/cni/bin"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.into()))
    .collect()
}

fn configuration(version: &str) -> Value {
    json!({"cniVersion": version, "name": "antrea", "type": "antrea", "ipam": {"type": "host-local"}})
}

fn ask(environment: &BTreeMap<String, OsString>, configuration: &Value) -> Result<Request, Refusal> {
    match read(|name| environment.get(name).cloned(), configuration.to_string().as_bytes())? {
        Question::Request(request) => Ok(*request),
        Question::Versions(asked) => panic!("asked for versions, in {asked}"),
    }
}

/// The error of a call with one variable changed, or unset.
fn with_variable(command: &str, name: &str, value: Option<OsString>) -> Error {
    let mut environment = environment(command);
    match value {
        Some(value) => environment.insert(name.into(), value),
        None => environment.remove(name),
    };
    ask(&environment, &configuration("1.0.0")).unwrap_err().error
}

/// The result of a call with one key of the configuration changed.
fn with_key(command: &str, key: &str, value: Value) -> Result<Request, Error> {
    let mut configuration = configuration("1.1.0");
    configuration[key] = value;
    ask(&environment(command), &configuration).map_err(|refusal| refusal.error)
}

fn call() -> Call {
    Call {
        id: AttachmentId { container: ContainerId::new("c1").unwrap(), ifname: InterfaceName::new("eth0").unwrap() },
        network: "antrea".into(),
        netns: "/var/run/netns/blue".into(),
        pod: Pod::new("default", "web-0", "u1").unwrap(),
        mtu: None,
        previous: None,
    }
}

#[test]
fn add_is_read_in_every_version() {
    for version in Version::ALL {
        let request = ask(&environment("ADD"), &configuration(version.as_str())).unwrap();
        let expected =
            Request { version, socket: DEFAULT_SOCKET.into(), dns: Dns::default(), command: Command::Add(call()) };
        assert_eq!(request, expected);
    }
}

#[test]
fn the_configuration_chooses_socket_mtu_and_name_servers() {
    assert_eq!(
        with_key("ADD", "socket", json!("/run/node-2/cni.sock")).unwrap().socket,
        PathBuf::from("/run/node-2/cni.sock")
    );
    let Command::Add(call) = with_key("ADD", "mtu", json!(1400)).unwrap().command else { panic!() };
    assert_eq!(call.mtu, Some(1400));
    let Command::Add(call) = with_key("ADD", "mtu", json!(0)).unwrap().command else { panic!() };
    assert_eq!(call.mtu, None);
    let request = with_key("ADD", "dns", json!({"nameservers": ["10.96.0.10"], "search": null})).unwrap();
    assert_eq!(request.dns.nameservers, ["10.96.0.10"]);
    let answer: Value = serde_json::from_str(&request.answer(Some(Attachment::default()))).unwrap();
    assert_eq!(answer["dns"]["nameservers"], json!(["10.96.0.10"]));
}

#[test]
fn del_succeeds_without_netns_pod_and_valid_configuration() {
    let mut environment = environment("DEL");
    let expected = Release { id: call().id, netns: Some(call().netns), pod: Some(call().pod) };
    assert_eq!(ask(&environment, &configuration("0.3.0")).unwrap().command, Command::Del(expected));
    environment.remove("CNI_NETNS");
    environment.insert("CNI_ARGS".into(), "nonsense".into());
    let configuration = json!({
        "cniVersion": "0.4.0", "name": "", "mtu": 1, "ipam": {"type": "dhcp"}, "prevResult": {"ips": 1},
    });
    let expected = Release { id: call().id, netns: None, pod: None };
    assert_eq!(ask(&environment, &configuration).unwrap().command, Command::Del(expected));
}

#[test]
fn check_has_the_result_of_add() {
    let previous = json!({"interfaces": [{"name": "eth0", "sandbox": "/var/run/netns/blue"}]});
    let Command::Check(asked, expected) = with_key("CHECK", "prevResult", previous).unwrap().command else { panic!() };
    assert_eq!(asked, call());
    assert_eq!(expected.interfaces.len(), 1);
    let error = with_key("CHECK", "prevResult", Value::Null).unwrap_err();
    assert_eq!((error.code, error.details.contains("prevResult")), (Code::InvalidConfig, true));
}

#[test]
fn add_in_a_chain_has_the_previous_result() {
    let previous = json!({"interfaces": [{"name": "eth0", "sandbox": "/var/run/netns/blue"}]});
    let Command::Add(call) = with_key("ADD", "prevResult", previous).unwrap().command else { panic!() };
    assert_eq!(call.previous.unwrap().interfaces[0].name, "eth0");
    assert_eq!(with_key("ADD", "prevResult", json!("no")).unwrap_err().code, Code::Decode);
}

#[test]
fn gc_has_the_list_of_valid_attachments() {
    let list = |list: Value| with_key("GC", "cni.dev/valid-attachments", list);
    let Command::Gc(valid) = list(json!([{"containerID": "c1", "ifname": "eth0"}])).unwrap().command else { panic!() };
    assert_eq!(valid, [call().id]);
    assert_eq!(list(json!([])).unwrap().command, Command::Gc(vec![]));
    // Without a list, GC would remove everything.
    for (value, code) in [
        (Value::Null, Code::InvalidConfig),
        (json!({}), Code::Decode),
        (json!([{"containerID": "c1"}]), Code::Decode),
        (json!([{"containerID": "../c1", "ifname": "eth0"}]), Code::InvalidConfig),
    ] {
        let error = list(value).unwrap_err();
        assert_eq!((error.code, error.details.contains("cni.dev/valid-attachments")), (code, true), "{error}");
    }
}

#[test]
fn gc_and_status_need_no_container() {
    for command in ["GC", "STATUS"] {
        let environment = BTreeMap::from([("CNI_COMMAND".to_owned(), command.into())]);
        let mut configuration = configuration("1.1.0");
        configuration["cni.dev/valid-attachments"] = json!([]);
        ask(&environment, &configuration).unwrap();
    }
}

#[test]
fn a_command_newer_than_the_version_is_rejected_in_that_version() {
    for (command, since) in [("CHECK", Version::V0_4_0), ("STATUS", Version::V1_1_0), ("GC", Version::V1_1_0)] {
        for version in Version::ALL {
            let mut configuration = configuration(version.as_str());
            configuration["prevResult"] = json!({});
            configuration["cni.dev/valid-attachments"] = json!([]);
            let outcome = ask(&environment(command), &configuration);
            assert_eq!(outcome.is_ok(), version >= since, "{command} {version}");
            if let Err(refusal) = outcome {
                assert_eq!((refusal.version, refusal.error.code), (version, Code::IncompatibleVersion));
            }
        }
    }
}

#[test]
fn the_error_for_an_unsupported_version_lists_the_supported_ones() {
    for version in ["0.1.0", "0.2.0", "1.2.0", "2.0.0", "", "one"] {
        let refusal = ask(&environment("ADD"), &configuration(version)).unwrap_err();
        assert_eq!((refusal.version, refusal.error.code), (Version::NEWEST, Code::IncompatibleVersion));
        assert!(refusal.error.details.contains("0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"), "{}", refusal.error);
    }
    assert_eq!(ask(&environment("ADD"), &json!({"cniVersion": 1})).unwrap_err().error.code, Code::Decode);
}

#[test]
fn version_is_answered_in_the_version_of_the_request() {
    let asked = |input: &str| match read(|name| environment("VERSION").get(name).cloned(), input.as_bytes()) {
        Ok(Question::Versions(asked)) => asked,
        other => panic!("{other:?}"),
    };
    assert_eq!(asked(r#"{"cniVersion": "0.4.0"}"#), "0.4.0");
    assert_eq!(asked(r#"{"cniVersion": "9.9.9"}"#), "9.9.9");
    assert_eq!(asked("{}"), "1.1.0");
    assert_eq!(asked(" \n"), "1.1.0");
}

#[test]
fn a_missing_variable_is_named() {
    for (command, names) in [
        ("ADD", &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"][..]),
        ("DEL", &["CNI_CONTAINERID", "CNI_IFNAME"]),
        ("ADD", &["CNI_COMMAND"]),
    ] {
        for name in names {
            for value in [None, Some(OsString::new())] {
                let error = with_variable(command, name, value);
                assert_eq!((error.code, error.message.contains(name)), (Code::InvalidEnvironment, true), "{error}");
            }
        }
    }
    let environment = BTreeMap::from([("CNI_COMMAND".to_owned(), "ADD".into())]);
    let error = ask(&environment, &configuration("1.0.0")).unwrap_err().error;
    assert_eq!(error.message, "missing environment variables: CNI_CONTAINERID, CNI_IFNAME, CNI_NETNS");
}

#[test]
fn the_error_for_an_invalid_variable_has_its_name_and_value() {
    let long = "a".repeat(300);
    for (name, value, details) in [
        ("CNI_COMMAND", "add", "`add` is not one of ADD, DEL, CHECK, STATUS, GC, VERSION"),
        ("CNI_CONTAINERID", "a/b", "`a/b` must start with"),
        ("CNI_CONTAINERID", long.as_str(), "is too long: 300 bytes, at most 255 are allowed"),
        ("CNI_IFNAME", long.as_str(), "is too long: 300 bytes, at most 15 are allowed"),
        ("CNI_NETNS", "netns/blue", "`netns/blue` is not an absolute path"),
        ("CNI_ARGS", "K8S_POD_NAME", "`K8S_POD_NAME` is not KEY=VALUE"),
        ("CNI_ARGS", "FOO=1", "`FOO` is an unknown key; set IgnoreUnknown=1"),
        ("CNI_ARGS", "IgnoreUnknown=yes", "`yes` is not a value of IgnoreUnknown"),
        ("CNI_ARGS", "K8S_POD_NAMESPACE=a;K8S_POD_NAME=B", "`B` is not a valid name of a Pod"),
    ] {
        let error = with_variable("ADD", name, Some(value.into()));
        assert_eq!(error.code, Code::InvalidEnvironment);
        assert!(error.message.contains(name) && error.details.contains(details), "{error}");
    }
    let error = with_variable("ADD", "CNI_NETNS", Some(OsString::from_vec(vec![b'/', 0xff])));
    assert!(error.details.contains("not UTF-8"), "{error}");
}

#[test]
fn add_requires_the_name_of_the_pod() {
    for value in
        [None, Some("".into()), Some("K8S_POD_NAME=a".into()), Some("K8S_POD_NAMESPACE=;K8S_POD_NAME=a".into())]
    {
        let error = with_variable("ADD", "CNI_ARGS", value);
        assert_eq!((error.code, error.message.contains("CNI_ARGS")), (Code::InvalidEnvironment, true), "{error}");
    }
}

#[test]
fn the_error_for_an_invalid_key_has_its_name_and_value() {
    for (key, value, code, text) in [
        ("name", json!("a b"), Code::InvalidConfig, "name: `a b` must start with"),
        ("name", json!("a".repeat(300)), Code::InvalidConfig, "is too long: 300 bytes"),
        ("name", Value::Null, Code::InvalidConfig, "name: `` is empty"),
        ("name", json!(3), Code::Decode, "name: invalid type: integer `3`"),
        ("mtu", json!(100), Code::InvalidConfig, "mtu: 100 is not between 576 and 65535"),
        ("mtu", json!(-1), Code::Decode, "mtu: invalid value: integer `-1`"),
        ("mtu", json!("1500"), Code::Decode, "mtu: invalid type: string \"1500\""),
        ("socket", json!("cni.sock"), Code::InvalidConfig, "socket: `cni.sock` is not an absolute path"),
        ("socket", json!(format!("/{}", "a".repeat(107))), Code::InvalidConfig, "socket: 108 bytes are too long"),
        ("ipam", json!({"type": "dhcp"}), Code::UnsupportedField, "ipam.type `dhcp`"),
        ("ipam", json!({"type": 1}), Code::Decode, "ipam.type: invalid type"),
        ("dns", json!("10.96.0.10"), Code::Decode, "dns: invalid type: string"),
    ] {
        let error = with_key("ADD", key, value).unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn input_that_is_not_json_is_reported_as_such() {
    for (input, details) in [
        ("", "standard input is empty"),
        ("{", "standard input is not JSON: EOF while parsing an object at line 1 column 1"),
        ("[]", "standard input is not a JSON object"),
        ("\u{0}", "standard input is not JSON"),
    ] {
        let refusal = read(|name| environment("ADD").get(name).cloned(), input.as_bytes()).unwrap_err();
        assert_eq!(refusal.error.code, Code::Decode);
        assert!(refusal.error.details.starts_with(details), "{}", refusal.error);
    }
}

proptest! {
    #[test]
    fn any_input_gives_a_request_or_an_error_in_one_line(
        command in prop::sample::select(vec!["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"]),
        variables in prop::collection::vec("\\PC{0,20}|[a-z0-9/;=\\n]{0,20}", 4),
        input in prop_oneof![
            "\\PC*",
            r#"\{"cniVersion": "1\.[01]\.0"(, "(name|mtu|ipam|dns|prevResult|socket|cni\.dev/valid-attachments)": (1|"a"|null|\[\]|\{\}|\[\{\}\])){0,3}\}"#,
        ],
    ) {
        let names = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"];
        let environment = |name: &str| match name {
            "CNI_COMMAND" => Some(command.into()),
            _ => names.iter().zip(&variables).find(|(known, _)| **known == name).map(|(_, value)| value.into()),
        };
        if let Err(refusal) = read(environment, input.as_bytes()) {
            prop_assert_eq!(refusal.error.to_string().lines().count(), 1);
            let printed: Value = serde_json::from_str(&refusal.error.to_json(refusal.version)).unwrap();
            prop_assert!(printed["code"].as_u64().unwrap() > 0 && !printed["msg"].as_str().unwrap().is_empty());
        }
    }
}
