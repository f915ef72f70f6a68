//! One Node: Pods A, B and C, the host behind the gateway, two other Nodes, and external clients.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use openflow::action::Action;
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::group::Group;
use openflow::matching::Match;
use openflow::message::Message;
use openflow::packet::PacketOut;
use openflow::port::Port;
use pipeline::model::{Address, Applied, Datapath, Families, Features, Gateway, Mac, Mode, Node, Peer, PeerPath, Pod};

use super::frame::{Frame, Packet};
use super::switch::{PORTS, Switch};
use crate::client::{add, put_group, remove, remove_group};
use crate::cluster::{Cluster, Flows, key};

/// A sender and receiver with a port of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// Interface name of the port.
    pub(super) port: &'static str,
    pub(super) ip: IpAddr,
    pub(super) ip6: IpAddr,
    pub(super) mac: Mac,
}

const fn ip(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn ip6(net: u16, subnet: u16, host: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xfd00, net, subnet, 0, 0, 0, 0, host))
}

const fn pod(port: &'static str, n: u8) -> End {
    End { port, ip: ip(10, 10, 0, 10 + n), ip6: ip6(0x10, 0, 0x10 + n as u16), mac: Mac([0x0a, 0, 0, 0, 1, n]) }
}

pub(super) const A: End = pod("pod-a", 1);
pub(super) const B: End = pod("pod-b", 2);
pub(super) const C: End = pod("pod-c", 3);
/// The host, with the gateway's addresses.
pub(super) const HOST: End =
    End { port: "gw", ip: ip(10, 10, 0, 1), ip6: ip6(0x10, 0, 1), mac: Mac([0x0a, 0, 0, 0, 0, 1]) };
/// A Pod of Node 2: its packets arrive through the tunnel.
pub(super) const REMOTE: End =
    End { port: "tun", ip: ip(10, 10, 2, 11), ip6: ip6(0x10, 2, 0x11), mac: Mac::GLOBAL_VIRTUAL };
/// Output ports of packets for Node 2 and Node 3.
pub(super) const TO_NODE_2: &str = "to-node-2";
pub(super) const TO_NODE_3: &str = "to-node-3";

pub(super) const NODE: IpAddr = ip(192, 168, 77, 101);
pub(super) const NODE6: IpAddr = ip6(0x77, 0, 0x101);
pub(super) const NODE_2: IpAddr = ip(192, 168, 77, 102);
pub(super) const NODE_3: IpAddr = ip(192, 168, 77, 103);
pub(super) const SNAT: IpAddr = ip(10, 10, 0, 254);
pub(super) const SNAT6: IpAddr = ip6(0x10, 0, 0xfe);
pub(super) const VIRTUAL: IpAddr = IpAddr::V4(Address::VIRTUAL_SERVICE);
pub(super) const VIRTUAL6: IpAddr = IpAddr::V6(Address::VIRTUAL_SERVICE6);
pub(super) const HAIRPIN: IpAddr = IpAddr::V4(Address::HAIRPIN);
pub(super) const HAIRPIN6: IpAddr = IpAddr::V6(Address::HAIRPIN6);
/// Address of an external client.
pub(super) const OUTSIDE: IpAddr = ip(203, 0, 113, 7);
pub(super) const OUTSIDE6: IpAddr = ip6(0x113, 0, 7);
pub(super) const VIRTUAL_MAC: Mac = Mac::GLOBAL_VIRTUAL;
/// The gateway of Node 2.
pub(super) const PEER_MAC: Mac = Mac([0x0a, 0, 0, 0, 0, 2]);
/// The gateway of Node 3.
pub(super) const PEER_3_MAC: Mac = Mac([0x0a, 0, 0, 0, 0, 3]);
/// A host outside of the cluster that sends tunnelled packets.
pub(super) const STRANGER_MAC: Mac = Mac([0x0a, 0, 0, 0, 9, 9]);

impl End {
    /// A port of its IPv4 address.
    pub(super) fn at(self, port: u16) -> SocketAddr {
        at(self.ip, port)
    }

    /// A port of its IPv6 address.
    pub(super) fn at6(self, port: u16) -> SocketAddr {
        at(self.ip6, port)
    }

    pub(super) fn pod(self) -> Pod {
        let (_, number) = PORTS.into_iter().find(|(name, _)| *name == self.port).unwrap();
        Pod { port: Port(number.into()), mac: self.mac, addresses: vec![self.ip, self.ip6] }
    }

    pub(super) fn applied(self) -> Applied {
        let Pod { port, addresses, .. } = self.pod();
        Applied { port, addresses }
    }
}

pub(super) fn at(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip, port)
}

/// A packet from a Pod to its gateway, for a destination outside of its subnet.
pub(super) fn to_gateway(from: End, packet: Packet) -> Packet {
    packet.between(from.mac, HOST.mac)
}

/// The same packet as the gateway forwards it to a Pod: routed.
pub(super) fn from_gateway(to: End, packet: Packet) -> Packet {
    packet.between(HOST.mac, to.mac).routed(1)
}

/// The packet as it enters the tunnel to another Node.
pub(super) fn tunnelled(packet: Packet) -> Packet {
    packet.between(HOST.mac, VIRTUAL_MAC).routed(1)
}

/// The packet as it arrives through a tunnel: the other Node has routed it.
pub(super) fn from_tunnel(packet: Packet) -> Packet {
    packet.between(PEER_MAC, VIRTUAL_MAC).routed(1)
}

/// A packet from the host to a Service address: the next hop is the virtual MAC.
pub(super) fn from_host(packet: Packet) -> Packet {
    packet.between(HOST.mac, VIRTUAL_MAC)
}

/// A Node with all features, three Pods and two peers, IPv4 and IPv6.
pub(super) fn usual() -> Cluster {
    let v4 = Address {
        node: NODE,
        gateway: HOST.ip,
        snat: SNAT,
        virtual_service: VIRTUAL,
        hairpin: HAIRPIN,
        pod_cidr: "10.10.0.0/24".parse().unwrap(),
    };
    let v6 = Address {
        node: NODE6,
        gateway: HOST.ip6,
        snat: SNAT6,
        virtual_service: VIRTUAL6,
        hairpin: HAIRPIN6,
        pod_cidr: "fd00:10::/64".parse().unwrap(),
    };
    let mut cluster = Cluster::new(Node {
        mode: Mode::Encap,
        features: Features::default(),
        datapath: if testkit::ovs::in_kernel() { Datapath::System } else { Datapath::Netdev },
        gateway: Gateway { port: Port(2), mac: HOST.mac },
        tunnels: vec![Port(1), Port(14)],
        tunnel_port: Some(8472),
        uplink: None,
        addresses: Families { v4: Some(v4), v6: Some(v6) },
        node_port_addresses: vec![NODE, NODE6],
        service_cidrs: vec!["10.96.0.0/12".parse().unwrap(), "fd00:96::/108".parse().unwrap()],
        all_zero_snat: testkit::ovs::in_kernel(),
        host_balances: false,
    });
    cluster.pods = [A, B, C].map(End::pod).into();
    for (n, node) in [(2, NODE_2), (3, NODE_3)] {
        let path = PeerPath::Tunnel(node);
        let v4 = Peer { pod_cidr: format!("10.10.{n}.0/24").parse().unwrap(), gateway: ip(10, 10, n, 1), path };
        let n = u16::from(n);
        let v6 = Peer { pod_cidr: format!("fd00:10:{n}::/64").parse().unwrap(), gateway: ip6(0x10, n, 1), path };
        cluster.peers.extend([v4, v6]);
    }
    cluster
}

/// The Node, and the switch with its flows.
pub(super) struct World {
    pub(super) switch: Switch,
    cluster: Cluster,
    /// Changes the flows before they are installed.
    edit: fn(&mut Flows),
    flows: Flows,
    groups: BTreeMap<u32, Group>,
}

impl World {
    /// The Node of most tests.
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    /// The Node of most tests, changed by `change`.
    pub(super) fn with(change: impl FnOnce(&mut Cluster)) -> Self {
        let mut world = World {
            switch: Switch::take(),
            cluster: usual(),
            edit: |_| {},
            flows: Flows::new(),
            groups: BTreeMap::new(),
        };
        // Plain ports stand for the tunnel; the fixture selects one by the tunnel destination.
        let found = Match::ip().with_masked(Field::Reg0, 0x1_0000u32, 0x5_0000u32).with(Field::Reg1, 1u8);
        let to = |node: IpAddr, port: u32, matches: &Match| {
            let IpAddr::V4(node) = node else { unreachable!("tunnels are on IPv4 here") };
            let leads = matches.clone().with(Field::TunDst, u32::from(node));
            add(&Flow::at(110, u16::MAX).when(leads).then(Action::Output(Port(port))))
        };
        let found6 = found.clone().with(Field::EthType, openflow::matching::eth_type::IPV6);
        let ways = [&found, &found6].map(|family| [to(NODE_2, 12, family), to(NODE_3, 13, family)]).concat();
        // The tunnel source is set by the fixture, from the MAC of the sending Node's gateway.
        let from = |mac: Mac, node: IpAddr, tunnel: u8| {
            let IpAddr::V4(node) = node else { unreachable!("tunnels are on IPv4 here") };
            let unknown = Match::any().with(Field::InPort, tunnel).with(Field::EthSrc, mac).with(Field::TunSrc, 0u8);
            let known = Action::set(Field::TunSrc, u32::from(node));
            add(&Flow::at(0, u16::MAX - 1).when(unknown).then(known).then(Action::resubmit(0)))
        };
        let nodes = [(HOST.mac, NODE), (PEER_MAC, NODE_2), (PEER_3_MAC, NODE_3), (STRANGER_MAC, OUTSIDE)];
        let origins = [1, 14].map(|tunnel| nodes.map(|(mac, node)| from(mac, node, tunnel))).concat();
        world.switch.client.done(ways.iter().chain(&origins));
        world.change(change);
        world
    }

    /// Changes the objects, and installs the difference.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Cluster)) {
        change(&mut self.cluster);
        self.install();
    }

    /// Changes compiled flows from now on, for example to reference flows, to show their effect.
    pub(super) fn edit(&mut self, edit: fn(&mut Flows)) {
        self.edit = edit;
        self.install();
    }

    /// The flows in the switch.
    pub(super) fn flows(&self) -> impl Iterator<Item = &Flow> {
        self.flows.values()
    }

    fn install(&mut self) {
        let mut flows = self.cluster.flows();
        (self.edit)(&mut flows);
        let flows: Flows = flows.into_values().map(|flow| (key(&flow), flow)).collect();
        let groups = self.cluster.groups();
        let mut messages = Vec::new();
        let gone = self.flows.iter().filter(|(key, _)| !flows.contains_key(*key));
        messages.extend(gone.map(|(_, flow)| remove(flow)));
        messages.extend(groups.iter().filter(|(id, g)| self.groups.get(*id) != Some(*g)).map(|(_, g)| put_group(g)));
        messages.extend(flows.iter().filter(|(key, f)| self.flows.get(*key) != Some(*f)).map(|(_, f)| add(f)));
        messages.extend(self.groups.keys().filter(|id| !groups.contains_key(*id)).map(|id| remove_group(*id)));
        self.switch.change(&messages);
        (self.flows, self.groups) = (flows, groups);
    }

    /// Sends a frame into a port, and returns all frames that the switch outputs.
    pub(super) fn send(&mut self, port: &str, frame: impl Into<Frame>) -> Vec<(&'static str, Frame)> {
        self.switch.send(port, &frame.into().bytes())
    }

    /// As [`World::send`], for a frame with a packet mark: the controller sets it, as only a kernel can do otherwise.
    pub(super) fn send_marked(&mut self, port: &str, mark: u32, frame: impl Into<Frame>) -> Vec<(&'static str, Frame)> {
        let (_, number) = PORTS.into_iter().find(|(name, _)| *name == port).unwrap();
        let actions = vec![Action::set(Field::PktMark, mark), Action::resubmit(0)];
        let out = PacketOut::new(Port(number.into()), actions, frame.into().bytes());
        self.switch.client.done(&[Message::PacketOut(out)]);
        self.switch.came()
    }

    /// Asserts that a probe of the host reaches the Pod. On the kernel's datapath a mark identifies the host.
    #[track_caller]
    pub(super) fn probes(&mut self, probe: Packet, to: End) {
        let mark = u32::from(testkit::ovs::in_kernel());
        let came = self.send_marked(HOST.port, mark, probe.clone());
        assert_eq!(came, [(to.port, probe.into())], "{}", self.switch.story());
    }

    /// Asserts that the frame is output once, at this port, as this.
    #[track_caller]
    pub(super) fn passes(&mut self, port: &str, frame: impl Into<Frame>, to: &'static str, as_this: impl Into<Frame>) {
        let frame = frame.into();
        let came = self.send(port, frame.clone());
        assert_eq!(came, [(to, as_this.into())], "from {port}: {frame:?}\n{}", self.switch.story());
    }

    /// Asserts that the frame is dropped.
    #[track_caller]
    pub(super) fn drops(&mut self, port: &str, frame: impl Into<Frame>) {
        let frame = frame.into();
        let came = self.send(port, frame.clone());
        assert_eq!(came, [], "from {port}: {frame:?}\n{}", self.switch.story());
    }
}

/// Replaces the flow with the same match by this one, in the syntax of `ovs-ofctl`.
#[track_caller]
pub(super) fn replace(flows: &mut Flows, text: &str) {
    let flow: Flow = text.parse().unwrap();
    let old = flows.insert(key(&flow), flow);
    assert!(old.is_some(), "there is no such flow: {text}");
}
