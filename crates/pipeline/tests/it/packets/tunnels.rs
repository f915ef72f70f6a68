//! Real tunnels between two Nodes in namespaces of their own.

use std::net::IpAddr;

use openflow::port::Port;
use pipeline::TransportBridge;
use pipeline::model::{Direction, Mac};
use testkit::netns::veth_pair;
use testkit::ovs::in_kernel;
use testkit::wait::{TIMEOUT, until};
use testkit::{Host, Netns, Nic, Ovs};
use types::network::TunnelPackets;

use super::kernel::{SHORT, connect, exchange, install};
use super::objects::{TARGET, elsewhere};
use super::services::{BY_CLUSTER_IP, CLUSTER_IP};
use super::switch::BRIDGE;
use super::two_nodes::{R, node_2};
use super::world::{A, End, HOST, NODE, NODE_2, PEER_MAC, at, usual};
use crate::client::Client;
use crate::cluster::{Cluster, Service};

/// Name of the transport bridge; the agent calls it otherwise.
const UNDERLAY: &str = "br-phy";

/// A Node with one Pod.
struct Node {
    ovs: Ovs,
    client: Client,
    cluster: Cluster,
    pod: Host,
    /// The Node's own address, and the peer's.
    ends: [IpAddr; 2],
}

impl Node {
    fn new(netns: &Netns, cluster: Cluster, pod: End, gateway: (IpAddr, Mac), ends: [IpAddr; 2]) -> Self {
        let ovs = Ovs::start_in(netns).unwrap();
        for bridge in [BRIDGE, UNDERLAY] {
            ovs.add_bridge(bridge).unwrap();
        }
        netns.add_address("eth0", &format!("{}/24", ends[0])).unwrap();
        netns.link_up("eth0").unwrap();
        ovs.attach(UNDERLAY, "eth0", 1).unwrap();
        // Any address will do.
        netns.add_address(UNDERLAY, "169.254.0.251/32").unwrap();
        netns.link_up(UNDERLAY).unwrap();
        let client = Client::connect(&ovs, BRIDGE);
        let (address, mac) = (format!("{}/24", pod.ip), text(pod.mac));
        let nic = Nic { port: pod.port, ofport: 3, mac: &mac, addresses: &[&address], gateways: &[] };
        let pod = Host::attach(&ovs, BRIDGE, &nic).unwrap();
        let (gateway, mac) = (gateway.0.to_string(), text(gateway.1));
        pod.netns().ip(["neigh", "add", &gateway, "lladdr", &mac, "dev", "eth0"]).unwrap();
        pod.netns().ip(["route", "add", "default", "via", &gateway]).unwrap();
        // Room for the tunnel header.
        pod.netns().ip(["link", "set", "dev", "eth0", "mtu", "1400"]).unwrap();
        Self { ovs, client, cluster, pod, ends }
    }

    /// The MAC of the interface with the Node's address.
    fn mac(&self) -> String {
        let mac = self.ovs.vsctl(["get", "interface", "eth0", "mac_in_use"]).unwrap();
        mac.trim().trim_matches('"').to_owned()
    }

    /// Adds the route and a static neighbour, since packets are lost during ARP resolution.
    fn knows(&self, other: &Node) {
        self.ovs.control("ovs/route/add", &[&format!("{}/32", self.ends[1]), "eth0"]).unwrap();
        self.ovs.control("tnl/neigh/set", &[UNDERLAY, &self.ends[1].to_string(), &other.mac()]).unwrap();
    }

    /// Makes the transport bridge pass the packets of this tunnel type only.
    fn pass(&self, tunnel: TunnelPackets) {
        let IpAddr::V4(address) = self.ends[0] else { panic!("the underlay has IPv4") };
        let flows = TransportBridge { uplink: Port(1), address, tunnel }.flows();
        let flows: String = flows.iter().map(|flow| format!("{flow}\n")).collect();
        self.ovs.ofctl_stdin(["replace-flows", UNDERLAY, "-"], &flows).unwrap();
    }

    /// The shared tunnel port, of this type.
    fn shared_tunnel(&self, kind: &str) {
        let settings = [&format!("type={kind}"), "options:remote_ip=flow", "ofport_request=1"];
        let add = ["--may-exist", "add-port", BRIDGE, "tun", "--", "set", "interface", "tun"];
        self.ovs.vsctl(add.iter().copied().chain(settings)).unwrap();
        assert_eq!(self.ovs.vsctl(["get", "interface", "tun", "ofport", "error"]).unwrap(), "1\n[]\n");
    }

    /// A tunnel port of a single peer, as with IPsec: all packets of this peer arrive at it.
    fn own_tunnel(&self, kind: &str) {
        let (kind, remote) = (format!("type={kind}"), format!("options:remote_ip={}", self.ends[1]));
        let add = ["add-port", BRIDGE, "tun-4", "--", "set", "interface", "tun-4", "ofport_request=14", &kind, &remote];
        self.ovs.vsctl(add).unwrap();
    }

    fn change(&mut self, change: impl FnOnce(&mut Cluster)) {
        change(&mut self.cluster);
        self.client.clear();
        install(&mut self.client, &self.cluster);
        self.ovs.settle().unwrap();
    }
}

fn text(Mac(mac): Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[test]
fn pods_communicate_through_every_tunnel_type_of_the_userspace_datapath() {
    if in_kernel() {
        // Tunnels of the kernel need no transport bridge; labs with every tunnel protocol run there.
        return;
    }
    let (here, there) = (Netns::new().unwrap(), Netns::new().unwrap());
    veth_pair(&here, "eth0", &there, "eth0").unwrap();
    let mut one = usual();
    one.services.push(Service::of(BY_CLUSTER_IP, 80, &[elsewhere(R.ip)]));
    let mut two = usual();
    node_2(&mut two);
    let mut one = Node::new(&here, one, A, (HOST.ip, HOST.mac), [NODE, NODE_2]);
    let mut two = Node::new(&there, two, R, ("10.10.2.1".parse().unwrap(), PEER_MAC), [NODE_2, NODE]);
    one.knows(&two);
    two.knows(&one);
    let server = two.pod.tcp_listen(("0.0.0.0", TARGET)).unwrap();
    let kinds =
        [("geneve", TunnelPackets::Udp(6081)), ("vxlan", TunnelPackets::Udp(4789)), ("gre", TunnelPackets::Gre)];
    for (kind, packets) in kinds {
        for node in [&mut one, &mut two] {
            node.shared_tunnel(kind);
            node.change(|c| c.isolated.clear());
        }
        assert!(!one.pod.ping_once(R.ip, SHORT).unwrap(), "{kind}: passes a bridge that does not know it");
        one.pass(packets);
        two.pass(packets);
        one.pod.ping(R.ip).unwrap();
        let (near, far, seen) = connect(&one.pod, &server, at(CLUSTER_IP, 80));
        assert_eq!(seen, A.ip);
        exchange(&near, &far);
        two.change(|c| c.isolated.push((Direction::Ingress, R.applied())));
        assert!(one.pod.tcp_connect(at(CLUSTER_IP, 80), SHORT).is_err(), "{kind}: judged where it arrives");
        exchange(&near, &far);
    }

    two.own_tunnel("gre");
    two.change(|c| {
        c.isolated.clear();
        c.node.tunnels = vec![Port(1)];
    });
    let lost = || (!one.pod.ping_once(R.ip, SHORT).unwrap()).then_some(());
    until("the peer's own tunnel to be in use, which no flow knows", TIMEOUT, lost).unwrap();
    two.change(|c| c.node.tunnels = vec![Port(1), Port(14)]);
    one.pod.ping(R.ip).unwrap();
}
