//! Somebody else changes what is the agent's.

use testkit::wait::{PATIENCE, until};

use crate::fixture::{Node, reaches};

#[test]
fn what_somebody_else_changed_on_the_host_is_repaired_and_counted() {
    let node = Node::start("antreaProxy: {proxyAll: true}");
    let pod = node.add("web");
    let address = || node.netns.ip(["-4", "addr", "show", "dev", "antrea-gw0"]).unwrap().contains("10.10.1.1/24");
    until("the gateway has its address", PATIENCE, || address().then_some(())).unwrap();
    until("the kernel is at rest", PATIENCE, || (node.metric("antrea_agent_ovs_total_flow_count") > 0).then_some(()))
        .unwrap();

    node.netns.ip(["addr", "del", "10.10.1.1/24", "dev", "antrea-gw0"]).unwrap();
    until("the address is back", PATIENCE, || address().then_some(())).unwrap();
    let table = || testkit::process::run(node.netns.command("nft").args(["list", "table", "inet", "antrea"]), None);
    table().unwrap();
    testkit::process::run(node.netns.command("nft").args(["delete", "table", "inet", "antrea"]), None).unwrap();
    until("the rules are back", PATIENCE, || table().ok()).unwrap();
    assert!(reaches(&pod.netns, "10.10.1.1".parse().unwrap()));
    assert!(node.metric("antrea_agent_host_repair_count") >= 2);
    assert!(node.log().contains("somebody has changed the host; repaired"));
}

#[test]
fn a_node_that_comes_has_a_route_and_one_that_goes_has_none() {
    let node = Node::start("");
    let peer = serde_json::json!({"metadata": {"name": "n2"}, "spec": {"podCIDR": "10.10.2.0/24", "podCIDRs": ["10.10.2.0/24"]}});
    node.api.local().create("v1", "nodes", "", peer).unwrap();
    let status = serde_json::json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.168.77.2"}]}});
    node.api.local().patch("v1", "nodes", "", "n2", "status", apiserver::Patch::Merge, &status).unwrap();
    let route = || node.netns.ip(["route", "show", "10.10.2.0/24"]).unwrap();
    let there = || route().contains("via 10.10.2.1 dev antrea-gw0").then_some(());
    until("the route comes", PATIENCE, there).unwrap();
    let flow = || node.flows().iter().any(|flow| flow.contains("nw_dst=10.10.2.0/24"));
    until("the flow comes", PATIENCE, || flow().then_some(())).unwrap();
    node.api.local().delete("v1", "nodes", "", "n2", None).unwrap();
    until("both go", PATIENCE, || (route().is_empty() && !flow()).then_some(())).unwrap();
}

#[test]
fn what_somebody_else_changed_on_the_bridge_is_repaired_and_counted() {
    let node = Node::start("");
    let (one, two) = (node.add("one"), node.add("two"));
    let port = one.attachment.host().unwrap().name.clone();
    node.ovs.vsctl(["del-port", "br-int", &port]).unwrap();
    assert!(reaches(&one.netns, two.v4), "the port is put back");
    let mode = || node.ovs.vsctl(["get", "bridge", "br-int", "fail_mode"]).unwrap().trim().to_owned();
    node.ovs.vsctl(["set", "bridge", "br-int", "fail_mode=standalone"]).unwrap();
    until("the bridge is closed again", PATIENCE, || (mode() == "secure").then_some(())).unwrap();
    assert_eq!(node.metric("antrea_agent_bridge_repair_count"), 2);
    node.del(&one);
    node.del(&two);
    node.no_traces();
}
