//! Repair of drift in the host network and the bridge.

use testkit::wait::{TIMEOUT, until};

use crate::fixture::{Node, reaches};

#[test]
fn drift_of_the_host_network_is_repaired_and_counted() {
    let node = Node::start("antreaProxy: {proxyAll: true}");
    let pod = node.add("web");
    let address = || node.netns.ip(["-4", "addr", "show", "dev", "antrea-gw0"]).unwrap().contains("10.10.1.1/24");
    until("the gateway has its address", TIMEOUT, || address().then_some(())).unwrap();
    until("the kernel is at rest", TIMEOUT, || (node.metric("antrea_agent_ovs_total_flow_count") > 0).then_some(()))
        .unwrap();

    node.netns.ip(["addr", "del", "10.10.1.1/24", "dev", "antrea-gw0"]).unwrap();
    until("the address is back", TIMEOUT, || address().then_some(())).unwrap();
    let table = || testkit::process::run(node.netns.command("nft").args(["list", "table", "inet", "antrea"]), None);
    table().unwrap();
    testkit::process::run(node.netns.command("nft").args(["delete", "table", "inet", "antrea"]), None).unwrap();
    until("the rules are back", TIMEOUT, || table().ok()).unwrap();
    assert!(reaches(&pod.netns, "10.10.1.1".parse().unwrap()));
    assert!(node.metric("antrea_agent_host_repair_count") >= 2);
    assert!(node.log().contains("host network drifted; repaired"));
}

#[test]
fn routes_and_flows_of_a_node_are_added_and_removed_with_it() {
    let node = Node::start("");
    let peer = serde_json::json!({"metadata": {"name": "n2"}, "spec": {"podCIDR": "10.10.2.0/24", "podCIDRs": ["10.10.2.0/24"]}});
    node.api.local().create("v1", "nodes", "", peer).unwrap();
    let status = serde_json::json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.168.77.2"}]}});
    node.api.local().patch("v1", "nodes", "", "n2", "status", apiserver::Patch::Merge, &status).unwrap();
    let route = || node.netns.ip(["route", "show", "10.10.2.0/24"]).unwrap();
    let there = || route().contains("via 10.10.2.1 dev antrea-gw0").then_some(());
    until("the route comes", TIMEOUT, there).unwrap();
    let flow = || node.flows().iter().any(|flow| flow.contains("nw_dst=10.10.2.0/24"));
    until("the flow comes", TIMEOUT, || flow().then_some(())).unwrap();
    node.api.local().delete("v1", "nodes", "", "n2", None).unwrap();
    until("both go", TIMEOUT, || (route().is_empty() && !flow()).then_some(())).unwrap();
}

#[test]
fn drift_of_the_bridge_is_repaired_and_counted() {
    let node = Node::start("");
    let (one, two) = (node.add("one"), node.add("two"));
    let port = one.attachment.host().unwrap().name.clone();
    node.ovs.vsctl(["del-port", "br-int", &port]).unwrap();
    assert!(reaches(&one.netns, two.v4), "the port is put back");
    let mode = || node.ovs.vsctl(["get", "bridge", "br-int", "fail_mode"]).unwrap().trim().to_owned();
    node.ovs.vsctl(["set", "bridge", "br-int", "fail_mode=standalone"]).unwrap();
    until("the bridge is closed again", TIMEOUT, || (mode() == "secure").then_some(())).unwrap();
    let limits = || node.ovs.vsctl(["get", "bridge", "br-int", "flow_tables"]).unwrap();
    node.ovs.vsctl(["clear", "bridge", "br-int", "flow_tables"]).unwrap();
    until("the table of clients is limited again", TIMEOUT, || limits().contains("40=").then_some(())).unwrap();
    assert_eq!(node.metric("antrea_agent_bridge_repair_count"), 3);
    node.del(&one);
    node.del(&two);
    node.no_traces();
}

#[test]
fn spoofed_clients_displace_only_each_other_from_session_affinity() {
    const LIMIT: usize = 8192;
    let node = Node::start("antreaProxy: {proxyAll: true}");
    // Flows as the switch learns them for these clients.
    let clients = |addresses: &mut dyn Iterator<Item = [u8; 4]>| {
        let flow = |ip: [u8; 4]| {
            let ip = std::net::Ipv4Addr::from(ip);
            format!("table=40,priority=200,hard_timeout=600,tcp,nw_src={ip},nw_dst=10.96.0.1,tp_dst=80,actions=drop\n")
        };
        let flows: String = addresses.map(flow).collect();
        node.ovs.ofctl_stdin(["add-flows", "br-int", "-"], &flows).unwrap();
    };
    clients(&mut (1..=100).map(|n| [10, 1, 0, n]));
    clients(&mut (0..LIMIT + 1000).map(|n| [203, 0, n.to_be_bytes()[6], n.to_be_bytes()[7]]));
    let flows = node.ovs.ofctl(["dump-flows", "br-int", "table=40"]).unwrap();
    let count = |text: &str| flows.lines().filter(|line| line.contains(text)).count();
    assert_eq!(count("nw_src=10.1.0."), 100, "a small network keeps its clients");
    assert_eq!(count("priority=0 "), 1, "flows without a timeout stay");
    assert_eq!(count("table=40"), LIMIT);
}
