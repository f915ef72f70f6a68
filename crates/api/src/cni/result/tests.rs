use serde_json::json;

use super::*;

fn attachment() -> Attachment {
    let host = Interface { name: "web-0-8ec607".into(), mac: "0a:00:00:00:00:01".into(), ..Interface::default() };
    let container = Interface {
        name: "eth0".into(),
        mac: "0a:00:00:00:00:02".into(),
        sandbox: "/var/run/netns/blue".into(),
        mtu: Some(1450),
    };
    let v4 = ("10.10.0.4/24".parse().unwrap(), Some("10.10.0.1".parse().unwrap()));
    let v6 = ("fd00::4/64".parse().unwrap(), None);
    let route = Route {
        destination: "0.0.0.0/0".parse().unwrap(),
        gateway: Some("10.10.0.1".parse().unwrap()),
        mtu: Some(1400),
    };
    Attachment { routes: vec![route], ..Attachment::of_pair(host, container, [v4, v6]) }
}

fn printed(version: Version) -> Value {
    serde_json::from_str(&added(&attachment(), version)).unwrap()
}

#[test]
fn a_result_of_1_1_has_mtus_and_no_families() {
    let expected = json!({
        "cniVersion": "1.1.0",
        "interfaces": [
            {"name": "web-0-8ec607", "mac": "0a:00:00:00:00:01"},
            {"name": "eth0", "mac": "0a:00:00:00:00:02", "sandbox": "/var/run/netns/blue", "mtu": 1450},
        ],
        "ips": [
            {"address": "10.10.0.4/24", "gateway": "10.10.0.1", "interface": 1},
            {"address": "fd00::4/64", "interface": 1},
        ],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.10.0.1", "mtu": 1400}],
        "dns": {},
    });
    assert_eq!(printed(Version::V1_1_0), expected);
}

#[test]
fn older_results_have_the_fields_of_their_version() {
    for version in Version::ALL {
        let result = printed(version);
        assert_eq!(result["cniVersion"], version.as_str());
        let has_mtu = !result["interfaces"][1]["mtu"].is_null() && !result["routes"][0]["mtu"].is_null();
        assert_eq!(has_mtu, version >= Version::V1_1_0, "{version}");
        let families = (&result["ips"][0]["version"], &result["ips"][1]["version"]);
        let expected = if version < Version::V1_0_0 { (json!("4"), json!("6")) } else { (Value::Null, Value::Null) };
        assert_eq!(families, (&expected.0, &expected.1), "{version}");
    }
}

#[test]
fn a_printed_result_can_be_read() {
    assert_eq!(read("prevResult", printed(Version::V1_1_0)).unwrap(), attachment());
    for version in Version::ALL {
        let back = read("prevResult", printed(version)).unwrap();
        assert_eq!(back.ips, attachment().ips, "{version}");
    }
}

/// The result of Debian's bandwidth plugin: an interface appended, and the empty values that Go programs print.
#[test]
fn results_of_other_plugins_can_be_read() {
    let result = json!({
        "cniVersion": "0.4.0",
        "interfaces": [
            {"name": "web-0-8ec607", "mac": "0a:00:00:00:00:01"},
            {"name": "eth0", "sandbox": "/var/run/netns/blue"},
            {"name": "bwp0123456789a", "mac": "ee:5e:9c:93:0c:0d"},
        ],
        "ips": [{"version": "4", "interface": 1, "address": "10.10.0.4/24", "gateway": ""}, {"address": "10.10.0.5/24"},
                {"interface": 0, "address": "10.10.0.6/24"}, {"interface": 9, "address": "10.10.0.7/24"}],
        "routes": null,
        "dns": {"nameservers": null},
    });
    let attachment = read("prevResult", result).unwrap();
    assert_eq!(attachment.host().unwrap().name, "web-0-8ec607");
    assert_eq!(attachment.container("eth0").unwrap().sandbox, "/var/run/netns/blue");
    assert_eq!(attachment.container("bwp0123456789a"), None);
    let ips: Vec<_> = attachment.ips_of("eth0").map(|ip| ip.address.to_string()).collect();
    assert_eq!(ips, ["10.10.0.4/24", "10.10.0.5/24"]);
    assert!(attachment.dns.is_empty());
}

#[test]
fn an_invalid_result_is_an_error_that_names_the_key() {
    for (result, details) in [
        (json!([]), "prevResult: invalid type: sequence"),
        (
            json!({"ips": [{"address": "10.0.0.4"}]}),
            "prevResult.ips[0].address: `10.0.0.4` is not an address with a prefix",
        ),
        (json!({"ips": [{}]}), "prevResult.ips[0]: missing field `address`"),
        (
            json!({"ips": [{"address": "10.0.0.4/24", "gateway": "x"}]}),
            "prevResult.ips[0].gateway: `x` is not an IP address",
        ),
        (json!({"interfaces": [{"name": 1}]}), "prevResult.interfaces[0].name: invalid type: integer `1`"),
    ] {
        let error = read("prevResult", result).unwrap_err();
        assert_eq!(error.code, Code::Decode);
        assert!(error.details.starts_with(details), "{error}");
    }
}
