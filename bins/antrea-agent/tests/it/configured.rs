//! Effects of configuration keys.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use api::cni::request::Command;
use apiserver::Patch;
use serde_json::{Value, json};
use testkit::wait::{TIMEOUT, until};
use testkit::{Netns, Scratch};

use crate::fixture::{Node, SUBNETS, call, make};

const ANNOTATION: &str = "node.antrea.io/transport-addresses";

fn annotation(node: &Node) -> Value {
    node.api.local().get("v1", "nodes", "", "n1").unwrap()["metadata"]["annotations"][ANNOTATION].clone()
}

/// Another Node, whose transport address is not in `status.addresses`.
fn add_peer(node: &Node) {
    let peer = json!({
        "metadata": {"name": "n2", "annotations": {ANNOTATION: "10.77.0.2"}}, "spec": {"podCIDR": "10.10.2.0/24"},
    });
    node.api.local().create("v1", "nodes", "", peer).unwrap();
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.168.77.2"}]}});
    node.api.local().patch("v1", "nodes", "", "n2", "status", Patch::Merge, &addresses).unwrap();
}

#[test]
fn nodes_use_the_configured_transport_interface_and_publish_its_addresses() {
    let mut node = Node::without_agent("transportInterface: eth1", &SUBNETS);
    testkit::netns::veth_pair(&node.netns, "eth1", &node.outside, "eth1").unwrap();
    node.netns.add_address("eth1", "10.77.0.1/24").unwrap();
    node.netns.ip(["link", "set", "eth1", "mtu", "1400", "up"]).unwrap();
    add_peer(&node);

    // The ServiceAccount of antrea-agent.yml has no write permission.
    node.start_agent();
    node.wait_ended();
    assert!(
        node.log().contains("deploy/kubernetes/optional/transport-interface.yml grants the permission"),
        "{}",
        node.log()
    );
    make(&node.api, include_str!("../../../../deploy/kubernetes/optional/transport-interface.yml"));

    for key in ["transportInterface: eth1", "transportInterfaceCIDRs: [10.77.0.0/16]"] {
        node.configure(key);
        node.start_agent();
        node.wait_ready();
        let network = node.ask_json("/v1/agentinfo")["networkInfo"].clone();
        assert_eq!(network, json!({"transportInterface": "eth1", "podMTU": 1350}), "{key}");
        assert_eq!(annotation(&node), "10.77.0.1", "{key}");
        let to_peer = || node.flows().iter().any(|flow| flow.contains("set_field:10.77.0.2->tun_dst")).then_some(());
        until(format!("{key}: flows to the peer's other address"), TIMEOUT, to_peer)
            .unwrap_or_else(|error| panic!("{error}: {:#?}", node.flows()));
        node.stop_agent();
    }

    node.configure("");
    node.start_agent();
    node.wait_ready();
    assert_eq!(node.ask_json("/v1/agentinfo")["networkInfo"]["transportInterface"], "eth0");
    assert_eq!(annotation(&node), Value::Null);
}

#[test]
fn an_interface_that_is_not_there_is_an_error_that_names_it() {
    for (key, problem) in [
        ("transportInterface: eth7", "transportInterface: this host has no device eth7 with an IP address"),
        ("transportInterfaceCIDRs: [198.51.100.0/24]", "no device of this host has an address in [198.51.100.0/24]"),
    ] {
        let mut node = Node::without_agent(key, &SUBNETS);
        node.start_agent();
        node.wait_ended();
        assert!(node.log().contains(problem), "{}", node.log());
    }
}

#[test]
fn metrics_can_be_disabled() {
    let node = Node::start("enablePrometheusMetrics: false");
    assert_eq!(node.ask("/metrics").0, 404);
    assert_eq!(node.ask("/v1/agentinfo").0, 200);
}

#[test]
fn a_namespace_below_proc_is_found_where_the_nodes_proc_is() {
    let (host, pod) = (Scratch::new().unwrap(), Netns::new().unwrap());
    pod.link_up("lo").unwrap();
    // No process has this number, so the path does not exist in /proc.
    let named = Path::new("/proc/4000000000/ns/net");
    let seen = host.path().join(named.strip_prefix("/").unwrap());
    fs::create_dir_all(seen.parent().unwrap()).unwrap();
    fs::create_dir_all(host.path().join("proc/1")).unwrap();
    symlink(pod.path(), seen).unwrap();
    let node = Node::start(&format!("hostProcPathPrefix: {}", host.path().display()));
    let attachment = node.cni(&Command::Add(call("web", named))).unwrap().unwrap();
    let address = attachment.ips[0].address.addr();
    assert!(attachment.interfaces.iter().any(|interface| Path::new(&interface.sandbox) == named));
    assert!(pod.ip(["-br", "addr", "show", "eth0"]).unwrap().contains(&address.to_string()));
}
