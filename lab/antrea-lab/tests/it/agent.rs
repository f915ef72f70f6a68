//! Pods that antrea-agent connects, in every mode and with every tunnel protocol.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::json;
use testkit::wait::until;

use crate::lab::{Kube, Lab, TIMEOUT, script};

/// The agent and its plugin belong to other packages. `cargo test --workspace` has built them before it runs any test; when
/// this package is tested alone, they are built if they are not there, and used as they are if they are.
static BUILT: LazyLock<()> = LazyLock::new(|| {
    let lab = Path::new(env!("CARGO_BIN_EXE_antrea-lab"));
    if ["antrea-agent", "antrea-cni", "antrea-controller"].iter().all(|name| lab.with_file_name(name).exists()) {
        return;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--locked", "-p", "antrea-agent", "-p", "antrea-cni", "-p", "antrea-controller"]);
    if lab.components().any(|part| part.as_os_str() == "release") {
        build.arg("--release");
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
    assert!(status.success(), "antrea-agent and antrea-cni can't be built");
});

/// Starts a lab with antrea-agent, without Pods.
pub(crate) fn network(name: &'static str, nodes: u16, arguments: &[&str]) -> (Lab, Kube) {
    LazyLock::force(&BUILT);
    let lab = Lab::start_with(name, nodes, &[&["--network", "antrea"], arguments].concat());
    let api = lab.api();
    (lab, api)
}

/// A lab with a client on the first Node, and a server on each; their addresses, IPv4 first.
fn start(name: &'static str, arguments: &[&str]) -> (Lab, Kube, Vec<Vec<String>>) {
    let (lab, api) = network(name, 3, arguments);
    api.pod("client", script("node-1", "exec sleep 1000"));
    let servers = ["node-1", "node-2", "node-3"];
    for node in servers {
        let container =
            json!({"name": "c", "image": "agnhost", "args": ["netexec", "--http-port=80", "--udp-port=80"]});
        api.pod(node, json!({"nodeName": node, "containers": [container]}));
    }
    api.until_ready("client");
    let addresses = servers.map(|node| api.until_ready(node)).to_vec();
    (lab, api, addresses)
}

fn host(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

/// By ping, TCP and UDP, and with more bytes than fit into one packet.
fn reaches_all(lab: &Lab, addresses: &[Vec<String>]) {
    let client = lab.exec("client", &["hostname", "-I"]).unwrap();
    for address in addresses.iter().flatten() {
        lab.exec("client", &["ping", "-n", "-c", "1", "-w", "20", address]).unwrap();
        let get = |target: &str| {
            let url = format!("http://{}{target}", host(address));
            lab.exec("client", &["curl", "-gsS", "--max-time", "10", &url]).unwrap()
        };
        let seen = get("/clientip");
        let seen = seen.rsplit_once(':').unwrap().0.trim_matches(['[', ']']);
        assert!(
            client.split_whitespace().any(|own| own == seen),
            "{address} was asked by {seen}, not by one of {client}"
        );
        let long = "x".repeat(20_000);
        assert_eq!(get(&format!("/echo?msg={long}")), long);
        let udp = format!("exec 3<>/dev/udp/{address}/80; echo -n 'echo hello' >&3; timeout 5 head -c 5 <&3");
        assert_eq!(lab.exec("client", &["bash", "-c", &udp]).unwrap(), "hello");
    }
}

/// Four packets that are seen on a wire while the first Node's client pings, a line each.
fn wire(lab: &Lab, bridge: &str, to: &str) -> String {
    let seen = std::thread::scope(|scope| {
        let capture = [
            "timeout",
            "20",
            "tcpdump",
            "-lni",
            bridge,
            "-c",
            "4",
            "udp port 6081 or udp port 4789 or proto gre or icmp",
        ];
        let capture = scope.spawn(move || lab.node("fabric", &capture).unwrap());
        until("four packets on the wire", TIMEOUT, || {
            let _ = lab.exec("client", &["ping", "-n", "-c", "1", "-W", "1", to]);
            capture.is_finished().then_some(())
        })
        .unwrap();
        capture.join().unwrap()
    });
    // tcpdump prints a second line for encapsulated packets; the first line begins with the time.
    let first = seen.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    first.map(|line| format!("{line}\n")).collect()
}

fn tunnels(kind: &'static str, seen: &str) {
    let (lab, _, addresses) = start(kind, &["--tunnel", kind]);
    reaches_all(&lab, &addresses);
    for (node, bridge) in [(1, "br-a"), (2, "br-b")] {
        let packets = wire(&lab, bridge, &addresses[node][0]);
        assert!(packets.lines().all(|line| line.contains(seen)), "{packets}");
    }
}

#[test]
fn geneve_connects_all_pods_and_is_used_on_the_wire() {
    tunnels("geneve", "6081: Geneve");
}

#[test]
fn vxlan_connects_all_pods_and_is_used_on_the_wire() {
    tunnels("vxlan", "4789: VXLAN");
}

#[test]
fn gre_connects_all_pods_and_is_used_on_the_wire() {
    tunnels("gre", "GREv0");
}

#[test]
fn without_tunnels_packets_are_plain_on_the_wire() {
    let (lab, _, addresses) = start("noencap", &["--mode", "noencap"]);
    reaches_all(&lab, &addresses);
    for (node, bridge) in [(1, "br-a"), (2, "br-b")] {
        let packets = wire(&lab, bridge, &addresses[node][0]);
        let plain = |line: &str| line.contains("ICMP echo") && line.contains(&addresses[node][0]);
        assert!(packets.lines().all(plain), "{packets}");
    }
}

#[test]
fn hybrid_is_plain_within_a_subnet_and_encapsulated_between_subnets() {
    let (lab, _, addresses) = start("hybrid", &["--mode", "hybrid"]);
    reaches_all(&lab, &addresses);
    let near = wire(&lab, "br-a", &addresses[1][0]);
    assert!(near.lines().all(|line| line.contains("ICMP echo") && !line.contains("Geneve")), "{near}");
    let far = wire(&lab, "br-b", &addresses[2][0]);
    assert!(far.lines().all(|line| line.contains("Geneve")), "{far}");
}

#[test]
fn service_names_resolve_and_external_traffic_of_pods_has_the_address_of_their_node() {
    let (lab, api, _) = start("services", &[]);
    for node in ["node-1", "node-2", "node-3"] {
        let labels = json!({"metadata": {"labels": {"app": "web"}}});
        let patch = kube::api::Patch::Merge(labels);
        api.wait(api.pods().patch(node, &kube::api::PatchParams::default(), &patch)).unwrap();
    }
    let spec = json!({"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80, "nodePort": 30080}]});
    api.apply("v1", "Service", "web", json!({"spec": spec}));
    // End to end: the resolver uses the ClusterIP of the DNS, and curl the ClusterIP that the name resolves to.
    let ask = || {
        lab.exec("client", &["curl", "-sS", "--max-time", "2", "http://web.default.svc.cluster.local/hostname"]).ok()
    };
    let name = until("an answer of the Service", TIMEOUT, ask).unwrap();
    assert!(name.starts_with("node-"), "{name}");
    let from_outside =
        || lab.node("outside", &["curl", "-sS", "--max-time", "2", "http://192.168.2.13:30080/hostname"]).ok();
    until("an answer of the NodePort", TIMEOUT, from_outside).unwrap();
    let seen = lab.exec("client", &["curl", "-sS", "--max-time", "5", "http://203.0.113.10/clientip"]).unwrap();
    assert!(seen.starts_with("192.168.1.11:"), "{seen}");
}
