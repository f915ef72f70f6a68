use super::keys::{KEYS, NOT_YET};
use std::fs;

use super::*;

fn read(text: &str) -> (Config, Vec<String>) {
    Config::read("agent.conf", text).unwrap()
}

fn problem(text: &str) -> String {
    Config::read("agent.conf", text).unwrap_err().to_string()
}

fn section(path: &str, value: &str) -> String {
    let (mut text, names) = (String::new(), path.split('.').collect::<Vec<_>>());
    for (depth, name) in names.iter().enumerate() {
        let value = if depth + 1 == names.len() { value } else { "" };
        text += &format!("{}{name}: {value}\n", "  ".repeat(depth));
    }
    text
}

#[test]
fn no_file_an_empty_one_and_one_of_comments_are_the_defaults() {
    let (defaults, notes) = Config::load(None).unwrap();
    assert_eq!(notes, Vec::<String>::new());
    for text in
        ["", "# nothing\n\n  # at all\n", "---\n", "featureGates:\nantreaProxy:\nwireGuard: {}\n", "ovsBridge: \"\"\n"]
    {
        assert_eq!(read(text), (defaults.clone(), vec![]), "{text:?}");
    }
    assert_eq!(
        (defaults.ovs_bridge.as_str(), defaults.traffic_encap_mode, defaults.api_port),
        ("br-int", Mode::Encap, 10350)
    );
}

#[test]
fn every_key_with_its_documented_default_changes_nothing_and_is_not_logged() {
    let (defaults, _) = read("");
    for key in KEYS {
        assert_eq!(read(&section(key.path, key.default)), (defaults.clone(), vec![]), "{}", key.path);
    }
}

#[test]
fn a_key_without_an_effect_is_logged() {
    let mut reader = Reader::empty(&keys::SCHEMA);
    Config::ask(&mut reader);
    for key in KEYS.iter().filter(|key| !reader.was_asked(key.path) && !NOT_YET.contains(&key.path)) {
        let (_, notes) = read(&section(key.path, "12345"));
        assert_eq!(notes, [format!("{}: is not implemented yet, so `12345` has no effect", key.path)]);
    }
}

#[test]
fn values_arrive() {
    let text = r#"
ovsBridge: br-1
ovsDatapathType: netdev
ovsRunDir: /run/node-1/ovs
hostGateway: gw-1
cniSocket: /run/node-1/cni.sock
ipamDir: /run/node-1/ipam
transportInterface: eth1
transportInterfaceCIDRs: [192.168.0.0/16, "fd00::/64"]
trafficEncapMode: NOENCAP
tunnelType: vxlan
tunnelPort: 9999
tunnelCsum: true
defaultMTU: 1400
noSNAT: true
antreaProxy:
  proxyAll: true
  nodePortAddresses: ["192.0.2.1/32"]
  skipServices: ["kube-system/kube-dns", "10.96.0.1"]
  proxyLoadBalancerIPs: false
  serviceProxyName: mine
  disableServiceHealthCheckServer: true
  serviceHealthCheckServerBindAddress: "[::1]:10257"
serviceCIDR: 10.0.0.0/16
serviceCIDRv6: fd00:96::/112
apiPort: 1234
enablePrometheusMetrics: false
eventRecording: {enable: true, maxSizeMB: 7}
clientConnection:
  kubeconfig: /etc/kubeconfig
antreaClientConnection: {kubeconfig: /etc/antrea.kubeconfig}
kubeAPIServerOverride: https://192.0.2.9:6443
"#;
    let (config, notes) = read(text);
    let expected = Config {
        ovs_bridge: "br-1".into(),
        ovs_datapath_type: Some(Datapath::Netdev),
        ovs_run_dir: "/run/node-1/ovs".into(),
        host_gateway: "gw-1".into(),
        cni_socket: "/run/node-1/cni.sock".into(),
        ipam_dir: "/run/node-1/ipam".into(),
        host_proc_path_prefix: "/host".into(),
        transport_interface: Some("eth1".into()),
        transport_interface_cidrs: vec!["192.168.0.0/16".parse().unwrap(), "fd00::/64".parse().unwrap()],
        traffic_encap_mode: Mode::NoEncap,
        tunnel_type: Tunnel::Vxlan,
        tunnel_port: Some(9999),
        tunnel_csum: true,
        default_mtu: Some(1400),
        no_snat: true,
        antrea_proxy: Proxy {
            enable: true,
            proxy_all: true,
            node_port_addresses: vec!["192.0.2.1/32".parse().unwrap()],
            skip_services: vec!["kube-system/kube-dns".into(), "10.96.0.1".into()],
            proxy_load_balancer_ips: false,
            service_proxy_name: Some("mine".into()),
            default_load_balancer_mode: LoadBalancerMode::Nat,
            disable_service_health_check_server: true,
            service_health_check_server_bind_address: "[::1]:10257".parse().unwrap(),
        },
        service_cidr: "10.0.0.0/16".parse().unwrap(),
        service_cidr_v6: Some("fd00:96::/112".parse().unwrap()),
        api_port: 1234,
        enable_prometheus_metrics: false,
        event_recording: EventRecording { enable: true, max_size_mb: 7 },
        client_connection: Connection { kubeconfig: Some("/etc/kubeconfig".into()) },
        antrea_client_connection: Connection { kubeconfig: Some("/etc/antrea.kubeconfig".into()) },
        kube_api_server_override: Some("https://192.0.2.9:6443".into()),
    };
    assert_eq!(config, expected);
    let noted: Vec<_> = notes.iter().filter_map(|note| note.split(':').next()).collect();
    assert_eq!(noted, NOT_YET);
}

#[test]
fn the_old_feature_gate_switches_the_proxy_off() {
    assert!(!read("featureGates:\n  AntreaProxy: false\n").0.antrea_proxy.enable);
    assert!(!read("antreaProxy:\n  enable: false\n").0.antrea_proxy.enable);
}

#[test]
fn a_misspelt_key_is_an_error_with_the_right_one() {
    for (text, expected) in [
        ("tunnelTyp: gre", "agent.conf: tunnelTyp: there is no such key; did you mean tunnelType?"),
        (
            "trafficEncapmode: noEncap",
            "agent.conf: trafficEncapmode: there is no such key; did you mean trafficEncapMode?",
        ),
        (
            "antreaProxy: {proxyall: true}",
            "agent.conf: antreaProxy.proxyall: there is no such key; did you mean antreaProxy.proxyAll?",
        ),
        ("antreaProxi: {proxyAll: true}", "agent.conf: antreaProxi: there is no such key; did you mean antreaProxy?"),
        ("featureGates: {Egres: true}", "agent.conf: featureGates.Egres: there is no such key; did you mean Egress?"),
        ("proxyAll: true", "agent.conf: proxyAll: there is no such key; did you mean antreaProxy.proxyAll?"),
        (
            "antreaProxy: {featureGates: {}}",
            "agent.conf: antreaProxy.featureGates: there is no such key; did you mean featureGates?",
        ),
        ("featureGate: {Egress: true}", "agent.conf: featureGate: there is no such key; did you mean featureGates?"),
    ] {
        assert_eq!(problem(text), expected);
    }
}

#[test]
fn an_unknown_key_is_logged() {
    let (config, notes) = read("somethingFromTheFuture: {a: 1}\n");
    assert_eq!(config, read("").0);
    assert_eq!(notes, ["somethingFromTheFuture: unknown key, has no effect"]);
}

#[test]
fn an_enabled_but_missing_feature_is_logged() {
    let (_, notes) = read("featureGates: {Egress: true, Multicast: false, FlowExporter: true, AntreaProxy: true}\n");
    assert_eq!(
        notes,
        ["featureGates.Egress: is not implemented yet", "featureGates.FlowExporter: is not implemented yet"]
    );
}

#[test]
fn a_wrong_value_is_an_error_with_file_key_value_and_what_is_allowed() {
    for (text, expected) in [
        (
            "ovsBridge: abcdefghijklmnop",
            "ovsBridge: `abcdefghijklmnop` is not the name of an interface: up to 15 characters",
        ),
        ("ovsBridge: [a]", "ovsBridge: `[\"a\"]` is not the name of an interface"),
        ("ovsRunDir: run/ovs", "ovsRunDir: `run/ovs` is not an absolute path"),
        ("ovsDatapathType: kernel", "ovsDatapathType: `kernel` is none of system, netdev"),
        (
            "trafficEncapMode: encapp",
            "trafficEncapMode: `encapp` is none of encap, noEncap, hybrid, networkPolicyOnly; did you mean encap?",
        ),
        ("trafficEncapMode: networkPolicyOnly", "trafficEncapMode: `networkPolicyOnly` is not implemented yet"),
        ("tunnelType: 4", "tunnelType: `4` is none of geneve, vxlan, gre, stt"),
        ("tunnelPort: 70000", "tunnelPort: `70000` is not 0 or a number from 1 to 65535"),
        ("tunnelPort: -1", "tunnelPort: `-1` is not 0 or a number"),
        ("tunnelCsum: 1", "tunnelCsum: `1` is not true or false"),
        ("defaultMTU: 100", "defaultMTU: `100` is not 0 or a number from 576 to 65535"),
        ("serviceCIDR: 10.96.0.0", "serviceCIDR: `10.96.0.0` is not an IPv4 network"),
        ("serviceCIDRv6: 10.96.0.0/12", "serviceCIDRv6: `10.96.0.0/12` is not an IPv6 network"),
        ("transportInterfaceCIDRs: 10.0.0.0/8", "transportInterfaceCIDRs: `10.0.0.0/8` is not a list"),
        ("transportInterfaceCIDRs: [10.0.0.0/8, x]", "transportInterfaceCIDRs[1]: `x` is not a network"),
        (
            "antreaProxy: {skipServices: [kube-dns]}",
            "antreaProxy.skipServices[0]: `kube-dns` is not an address, or namespace/name",
        ),
        ("antreaProxy: true", "antreaProxy: `true` is not a section with keys of its own"),
        (
            "antreaProxy: {defaultLoadBalancerMode: dsr}",
            "antreaProxy.defaultLoadBalancerMode: `dsr` is not implemented yet",
        ),
        ("featureGates: {Egress: 1}", "featureGates.Egress: `1` is neither true nor false"),
        ("featureGates: [Egress]", "featureGates: `[\"Egress\"]` is not a section"),
        ("- a", "is not a mapping of keys to values"),
        ("a: b: c", "mapping"),
        ("noSNAT: true\nnoSNAT: false", "duplicate"),
    ] {
        let error = problem(text);
        assert!(error.starts_with("agent.conf: ") && error.contains(expected), "{text}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn contradicting_keys_are_an_error() {
    for (text, expected) in [
        ("noSNAT: true", "noSNAT: true needs trafficEncapMode noEncap"),
        ("trafficEncapMode: hybrid\nnoSNAT: true", "noSNAT: true needs trafficEncapMode noEncap"),
        (
            "trafficEncapMode: noEncap\nantreaProxy: {enable: false}",
            "antreaProxy.enable: false needs trafficEncapMode encap",
        ),
        ("antreaProxy: {enable: false, proxyAll: true}", "antreaProxy.proxyAll: true needs antreaProxy.enable: true"),
        ("ovsBridge: antrea-gw0", "hostGateway: must differ from ovsBridge"),
    ] {
        assert!(problem(text).contains(expected), "{}", problem(text));
    }
}

#[test]
fn requested_encryption_that_is_missing_is_an_error() {
    for text in ["trafficEncryptionMode: ipsec", "trafficEncryptionMode: WireGuard", "enableIPSecTunnel: true"] {
        assert!(problem(text).contains("is not implemented yet"));
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let error = problem("tunnelTyp: gre\ntunnelPort: x\napiPort: 99999\n");
    assert_eq!(error.lines().next(), Some("agent.conf: 3 problems:"));
    assert_eq!(error.lines().count(), 4);
}

#[test]
fn a_missing_file_is_named_in_the_error() {
    let error = Config::load(Some(Path::new("/nonexistent/agent.conf"))).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/agent.conf: cannot be read: No such file"), "{error}");
}

/// `make codegen` updates the table.
#[test]
fn the_documentation_has_every_key() {
    let mut reader = Reader::empty(&keys::SCHEMA);
    Config::ask(&mut reader);
    let table = ::config::document(&keys::SCHEMA, &reader);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let document = fs::read_to_string(&path).unwrap();
    let mark = "<!-- From here on written by `make codegen`. -->\n\n";
    let (head, found) = document.split_once(mark).unwrap();
    if std::env::var_os("ANTREA_CODEGEN").is_some() {
        fs::write(path, format!("{head}{mark}{table}")).unwrap();
        return;
    }
    assert!(found == table, "docs/configuration.md is not what the keys are.\nFix: run `make codegen` and commit.");
}
