//! Tunnels without the kernel module: the bridge, routes and neighbours that the agent sets up in Open vSwitch.

use apiserver::Patch;
use serde_json::json;
use testkit::process::run;
use testkit::wait::{TIMEOUT, until};

use crate::fixture::{NODE_IP, Node, OUTSIDE_IP, SUBNETS, reaches};

/// A Node behind a router.
const FAR: &str = "192.168.99.3";

impl Node {
    fn join(&self, name: &str, address: &str, subnet: &str) {
        let object = json!({"metadata": {"name": name}, "spec": {"podCIDR": subnet, "podCIDRs": [subnet]}});
        self.api.local().create("v1", "nodes", "", object).unwrap();
        let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
        self.api.local().patch("v1", "nodes", "", name, "status", Patch::Merge, &addresses).unwrap();
    }

    /// Waits until a command of Open vSwitch prints exactly these lines about tunnels.
    fn wait_tunnels(&self, when: &str, expected: &[String]) {
        let mut last = Vec::new();
        let same = || {
            last = self.tunnels();
            (last == expected).then_some(())
        };
        until(format!("the tunnels {when}"), TIMEOUT, same)
            .unwrap_or_else(|error| panic!("{error}: {last:#?} instead of {expected:#?}\n{}", self.log()));
    }

    /// The routes of tunnels with the MACs of their next hops, and the number of flows of the transport bridge.
    fn tunnels(&self) -> Vec<String> {
        // ovs-vswitchd may be starting.
        let appctl = |command: &str| self.ovs.control(command, &[]).unwrap_or_default();
        let neighbours = appctl("tnl/neigh/show");
        let mac = |ip: &str| {
            let mut lines = neighbours.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let found = lines.find(|words| words.first() == Some(&ip) && words.last() == Some(&"antrea-phy0"));
            found.map_or("unknown".to_owned(), |words| words[1].to_owned())
        };
        let mut routes = Vec::new();
        for line in appctl("ovs/route/show").lines() {
            let Some(words) = line.strip_prefix("User: ") else { continue };
            let words: Vec<&str> = words.split_whitespace().collect();
            let to = words[0].trim_end_matches("/32");
            let hop = if words[3] == "GW" { words[4] } else { to };
            routes.push(format!("{to} by {hop} at {}", mac(hop)));
        }
        routes.sort();
        let flows = self.ovs.ofctl(["-O", "OpenFlow15", "dump-flows", "antrea-phy0"]).unwrap_or_default();
        routes.push(format!("{} flows", flows.lines().filter(|line| line.contains("actions=")).count()));
        routes
    }

    /// Gives the neighbour another MAC, which it announces as a Node does that takes over an address.
    fn set_outside_mac(&self, mac: &str) {
        self.outside.sysctls(&[("net.ipv4.conf.eth0.arp_notify", "1")]).unwrap();
        self.outside.ip(["link", "set", "eth0", "address", mac]).unwrap();
    }
}

fn expected(mac: &str, nodes: &[(&str, &str)]) -> Vec<String> {
    let routes = nodes.iter().map(|(to, hop)| format!("{to} by {hop} at {mac}"));
    routes.chain(["5 flows".to_owned()]).collect()
}

#[test]
fn tunnels_follow_nodes_routes_and_macs_and_survive_the_switch_and_the_agent() {
    let mut node = Node::without_agent("", &SUBNETS);
    let (mac, other_mac) = ("0a:00:00:00:00:01", "0a:00:00:00:00:02");
    node.set_outside_mac(mac);
    node.netns.ip(["route", "add", "192.168.96.0/19", "via", OUTSIDE_IP]).unwrap();
    run(node.netns.command("ethtool").args(["-K", "eth0", "gro", "on"]), None).unwrap();
    node.start_agent();
    node.wait_ready();
    node.wait_log("turned off GRO of the transport interface");
    node.join("near", OUTSIDE_IP, "10.10.2.0/24");
    node.join("far", FAR, "10.10.3.0/24");
    let both = [(OUTSIDE_IP, OUTSIDE_IP), (FAR, OUTSIDE_IP)];
    node.wait_tunnels("to both Nodes", &expected(mac, &both));
    until("the agent is ready", TIMEOUT, || (node.ask("/readyz").0 == 200).then_some(())).unwrap();
    assert_eq!(node.problems(), [""; 0]);
    // The kernel keeps the address.
    assert!(reaches(&node.outside, NODE_IP.parse().unwrap()));
    assert!(reaches(&node.netns, OUTSIDE_IP.parse().unwrap()));

    node.ovs.kill_vswitchd().unwrap();
    node.ovs.start_vswitchd().unwrap();
    node.wait_tunnels("after the restart of ovs-vswitchd", &expected(mac, &both));

    node.kill_agent();
    node.ovs.kill_vswitchd().unwrap();
    node.ovs.start_vswitchd().unwrap();
    node.set_outside_mac(other_mac);
    node.start_agent();
    node.wait_ready();
    node.wait_tunnels("after the restart of both", &expected(other_mac, &both));
    node.set_outside_mac(mac);
    node.wait_tunnels("after a change of the MAC", &expected(mac, &both));

    // Routes of the kernel.
    node.outside.add_address("eth0", "192.168.77.253/24").unwrap();
    node.netns.ip(["route", "add", FAR, "via", "192.168.77.253"]).unwrap();
    node.wait_tunnels("by another router", &expected(mac, &[both[0], (FAR, "192.168.77.253")]));
    node.netns.ip(["route", "del", FAR]).unwrap();
    node.netns.ip(["route", "del", "192.168.96.0/19"]).unwrap();
    node.wait_problem("Node address 192.168.99.3: this Node has no route to it");
    node.netns.ip(["route", "add", "192.168.96.0/19", "via", OUTSIDE_IP]).unwrap();
    node.wait_tunnels("by the first router", &expected(mac, &both));
    until("no problem", TIMEOUT, || node.problems().is_empty().then_some(())).unwrap();

    // Nodes that leave.
    node.api.local().delete("v1", "nodes", "", "near", None).unwrap();
    node.wait_tunnels("without the Node that has left", &expected(mac, &both[1..]));
    let listening = node.ovs.control("tnl/ports/show", &["-v"]).unwrap();
    assert!(listening.contains(&format!("dst={NODE_IP},")), "packets are no longer decapsulated: {listening}");

    node.stop_agent();
    node.configure("trafficEncapMode: noEncap");
    node.start_agent();
    node.wait_ready();
    assert_eq!(node.ovs.vsctl(["list-br"]).unwrap(), "br-int\n");
}

#[test]
fn an_uplink_that_cannot_carry_tunnels_is_a_problem_with_its_fix() {
    let mut node = Node::without_agent("", &SUBNETS);
    // A bridge with the Node's address.
    for command in [
        "link add br0 type bridge",
        "link set eth0 master br0",
        "addr flush dev eth0",
        "link set br0 up",
        "addr add 192.168.77.1/24 dev br0",
        "addr add fd77::1/64 dev br0",
    ] {
        node.netns.ip(command.split(' ')).unwrap();
    }
    node.start_agent();
    node.wait_ready();
    let problem = "transport interface br0 is a device of type bridge, so Open vSwitch cannot send and receive tunnel packets on \
                   it without its kernel module: load the openvswitch module, set trafficEncapMode: noEncap, or choose another \
                   transportInterface";
    node.wait_problem(problem);
    node.wait_log(problem);
    let readiness = node.ask("/readyz");
    assert!(readiness.0 == 503 && readiness.1.contains(problem), "{readiness:?}");
    assert_eq!(node.ovs.vsctl(["list-br"]).unwrap(), "br-int\n");
    // Pods of this Node work.
    let (one, two) = (node.add("one"), node.add("two"));
    assert!(reaches(&one.netns, two.v4));
    node.stop_agent();

    node.configure("trafficEncapMode: noEncap");
    node.start_agent();
    node.wait_ready();
    until("the agent is ready", TIMEOUT, || (node.ask("/readyz").0 == 200).then_some(())).unwrap();
}

#[test]
fn an_uplink_of_another_bridge_of_open_vswitch_is_a_problem_with_its_fix() {
    let mut node = Node::without_agent("", &SUBNETS);
    node.ovs.vsctl(["add-br", "br-ex", "--", "set", "bridge", "br-ex", "datapath_type=netdev"]).unwrap();
    node.ovs.vsctl(["add-port", "br-ex", "eth0"]).unwrap();
    node.start_agent();
    node.wait_ready();
    node.wait_problem("transport interface eth0 is a port of bridge br-ex in Open vSwitch");
    assert_eq!(node.ovs.vsctl(["port-to-br", "eth0"]).unwrap(), "br-ex\n");
}

#[test]
fn an_agent_whose_transport_interface_changes_starts_again() {
    let mut node = Node::start("");
    node.netns.ip(["link", "set", "eth0", "mtu", "1400"]).unwrap();
    node.wait_ended();
    let change =
        "changed from eth0 with address 192.168.77.1 and MTU 1500 to eth0 with address 192.168.77.1 and MTU 1400";
    assert!(node.log().contains(change), "{}", node.log());
    node.start_agent();
    node.wait_ready();
    assert_eq!(node.ask_json("/v1/agentinfo")["networkInfo"]["podMTU"], 1350);
}
