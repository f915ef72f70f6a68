//! No object or Pod can cut a Node off from the API or its neighbours, or bypass the protection against forged packets.

use std::fs;
use std::net::UdpSocket;

use apiserver::Patch;
use serde_json::{Value, json};
use testkit::Netns;
use testkit::wait::{TIMEOUT, until};

use crate::fixture::{NODE_IP, Node, OUTSIDE_IP, reaches};

const PROXY_ALL: &str = "antreaProxy: {proxyAll: true}";

impl Node {
    /// The device by which the Node sends to an address.
    fn device_to(&self, address: &str) -> String {
        // `ip` fails if there is no route.
        let route = self.netns.ip(["route", "get", address]).unwrap_or_default();
        route.split_whitespace().skip_while(|word| *word != "dev").nth(1).unwrap_or_default().to_owned()
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        let info: Value = self.ask_json("/v1/agentinfo");
        info["problems"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn wait_problem(&self, about: &str) {
        let found = || self.problems().iter().any(|problem| problem.contains(about)).then_some(());
        until(format!("a problem: {about}"), TIMEOUT, found)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.problems()));
    }

    fn make_service(&self, name: &str, external: &str) {
        let spec = json!({"externalIPs": [external], "ports": [{"port": 443}]});
        self.api
            .local()
            .create("v1", "services", "default", json!({"metadata": {"name": name}, "spec": spec}))
            .unwrap();
    }

    /// A new Service still gets a route: the Node receives updates of the API.
    fn hears_the_api(&self, name: &str, external: &str) {
        self.make_service(name, external);
        let routed = || (self.device_to(external) == "antrea-gw0").then_some(());
        until(format!("the route to {external}"), TIMEOUT, routed)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
    }
}

#[test]
fn a_service_with_the_apis_address_takes_no_node_from_the_api() {
    let node = Node::with_api_outside(PROXY_ALL);
    node.make_service("hijack", OUTSIDE_IP);
    let problem = format!(
        "Service default/hijack: spec.externalIPs: {OUTSIDE_IP} is an address of the Kubernetes API, so this Node itself does \
         not reach the Service there; choose another address"
    );
    node.wait_problem(&problem);
    node.hears_the_api("honest", "192.0.2.77");
    assert_eq!(node.device_to(OUTSIDE_IP), "eth0");
    assert_eq!(node.log().matches(&problem).count(), 1, "{}", node.log());
    assert_eq!(node.ask("/readyz"), (200, "ok\n".to_owned()));
}

#[test]
fn a_node_object_takes_neither_the_underlay_nor_an_older_nodes_pods() {
    let node = Node::with_api_outside(PROXY_ALL);
    let join = |name: &str, address: &str, subnet: &str| {
        let object = json!({"metadata": {"name": name}, "spec": {"podCIDR": subnet, "podCIDRs": [subnet]}});
        node.api.local().create("v1", "nodes", "", object).unwrap();
        let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
        node.api.local().patch("v1", "nodes", "", name, "status", Patch::Merge, &addresses).unwrap();
    };
    join("honest", "192.168.77.3", "10.10.3.0/24");
    until("the route to its Pods", TIMEOUT, || (node.device_to("10.10.3.7") == "antrea-gw0").then_some(())).unwrap();
    // creationTimestamp has a resolution of one second.
    let created = |name: &str| {
        let object = node.api.local().get("v1", "nodes", "", name).unwrap();
        object["metadata"]["creationTimestamp"].as_str().unwrap().to_owned()
    };
    let is_later = || {
        let _ = node.api.local().delete("v1", "nodes", "", "clock", None);
        node.api.local().create("v1", "nodes", "", json!({"metadata": {"name": "clock"}})).unwrap();
        (created("clock") > created("honest")).then_some(())
    };
    until("the next second", TIMEOUT, is_later).unwrap();
    join("a-rogue", "192.168.77.4", "10.10.3.0/24");
    join("b-rogue", "192.168.77.5", "192.168.77.0/25");
    node.wait_problem("Node a-rogue: spec.podCIDRs: 10.10.3.0/24 overlaps 10.10.3.0/24 of Node honest, which keeps it");
    node.wait_problem("Node b-rogue: spec.podCIDRs: 192.168.77.0/25 contains 192.168.77.1, an address of this Node");
    assert_eq!(node.device_to("192.168.77.9"), "eth0");
    let tunnelled = |address: &str| node.flows().iter().any(|flow| flow.contains(&format!("{address}->tun_dst")));
    assert_eq!(["192.168.77.3", "192.168.77.4", "192.168.77.5"].map(tunnelled), [true, false, false]);
    node.hears_the_api("honest", "192.0.2.77");
}

#[test]
fn an_agent_that_finds_a_route_between_itself_and_the_api_removes_it() {
    let mut node = Node::with_api_outside(PROXY_ALL);
    node.kill_agent();
    for destination in [OUTSIDE_IP, "192.168.77.128/25"] {
        let left = ["via", "169.254.0.253", "dev", "antrea-gw0", "onlink", "proto", "167"];
        node.netns.ip(["route", "add", destination].into_iter().chain(left)).unwrap();
    }
    assert_eq!(node.device_to(OUTSIDE_IP), "antrea-gw0");
    node.start_agent();
    node.wait_ready();
    assert_eq!(node.device_to(OUTSIDE_IP), "eth0");
    assert_eq!(node.device_to("192.168.77.200"), "eth0");
    node.wait_log("removing a stale route that hides the Kubernetes API");
    node.hears_the_api("honest", "192.0.2.77");
}

fn bind(netns: &Netns, address: String) -> UdpSocket {
    let socket = netns.run(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

#[test]
fn a_hostile_pod_and_a_hostile_neighbour_get_nothing_past_the_host() {
    let node = Node::start(PROXY_ALL);
    let pod = node.add("pod");
    assert!(reaches(&pod.netns, NODE_IP.parse().unwrap()));
    // The neighbour is a Node, so its tunnel port is protected.
    let object = json!({"metadata": {"name": "n2"}, "spec": {"podCIDR": "10.10.2.0/24", "podCIDRs": ["10.10.2.0/24"]}});
    node.api.local().create("v1", "nodes", "", object).unwrap();
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": OUTSIDE_IP}]}});
    node.api.local().patch("v1", "nodes", "", "n2", "status", Patch::Merge, &addresses).unwrap();
    let guarded = || {
        let rules =
            testkit::process::run(node.netns.command("nft").args(["list", "set", "inet", "antrea", "nodes"]), None);
        rules.unwrap().contains(OUTSIDE_IP).then_some(())
    };
    until("the rules about n2", TIMEOUT, guarded).unwrap();

    // First packets that must not arrive, then packets that must, on the same path.
    let from_pod = bind(&pod.netns, format!("{}:0", pod.v4));
    let control = bind(&node.netns, format!("{NODE_IP}:9001"));
    let silent = |socket: &UdpSocket| {
        control.recv(&mut [0; 9]).expect("what is allowed arrives");
        socket.set_nonblocking(true).unwrap();
        socket.recv(&mut [0; 9]).is_err()
    };

    let loopback = bind(&node.netns, "127.0.0.1:7777".to_owned());
    pod.netns.run(|| fs::write("/proc/sys/net/ipv4/conf/eth0/route_localnet", "1")).unwrap().unwrap();
    for local in ["127.0.0.1", "127.0.0.0/8"] {
        pod.netns.ip(["route", "del", "local", local, "dev", "lo", "table", "local"]).unwrap();
    }
    pod.netns.ip(["route", "add", "127.0.0.0/8", "via", "10.10.1.1", "dev", "eth0"]).unwrap();
    from_pod.send_to(b"x", "127.0.0.1:7777").unwrap();
    from_pod.send_to(b"x", (NODE_IP, 9001)).unwrap();
    assert!(silent(&loopback), "a Pod reaches the Node's loopback");

    let (tunnel, allowed) =
        (bind(&node.outside, format!("{OUTSIDE_IP}:6081")), bind(&node.outside, format!("{OUTSIDE_IP}:6082")));
    from_pod.send_to(b"x", (OUTSIDE_IP, 6081)).unwrap();
    from_pod.send_to(b"x", (OUTSIDE_IP, 6082)).unwrap();
    allowed.recv(&mut [0; 9]).expect("what is allowed arrives");
    tunnel.set_nonblocking(true).unwrap();
    assert!(tunnel.recv(&mut [0; 9]).is_err(), "a Pod reaches another Node's tunnel");

    let victim = bind(&pod.netns, format!("{}:9000", pod.v4));
    let honest = bind(&node.outside, format!("{OUTSIDE_IP}:0"));
    node.outside.ip(["route", "add", "10.10.1.0/24", "via", NODE_IP]).unwrap();
    for address in ["10.10.1.200", "10.10.2.7"] {
        node.outside.add_address("eth0", &format!("{address}/32")).unwrap();
        let forged = bind(&node.outside, format!("{address}:0"));
        forged.send_to(b"x", (pod.v4, 9000)).unwrap();
        victim.set_nonblocking(false).unwrap();
        honest.send_to(b"honest", (pod.v4, 9000)).unwrap();
        let (length, from) = victim.recv_from(&mut [0; 9]).expect("what is allowed arrives");
        assert_eq!((length, from.ip().to_string().as_str()), (6, OUTSIDE_IP), "a neighbour sends as {address}");
    }
}
