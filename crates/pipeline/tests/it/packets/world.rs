//! One Node as its packets see it: Pods A, B and C, the host behind the gateway, two other Nodes, and the world outside.

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

/// Whoever sends and receives at a port of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// The port's name.
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
/// A Pod of Node 2: what it sends comes in by the tunnel.
pub(super) const REMOTE: End =
    End { port: "tun", ip: ip(10, 10, 2, 11), ip6: ip6(0x10, 2, 0x11), mac: Mac::GLOBAL_VIRTUAL };
/// Where packets for Node 2 come out, and those for Node 3.
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
/// A client far away.
pub(super) const OUTSIDE: IpAddr = ip(203, 0, 113, 7);
pub(super) const OUTSIDE6: IpAddr = ip6(0x113, 0, 7);
pub(super) const VIRTUAL_MAC: Mac = Mac::GLOBAL_VIRTUAL;
/// The gateway of Node 2.
pub(super) const PEER_MAC: Mac = Mac([0x0a, 0, 0, 0, 0, 2]);

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

/// What a Pod sends to its gateway: to all that is not in its subnet.
pub(super) fn to_gateway(from: End, packet: Packet) -> Packet {
    packet.between(from.mac, HOST.mac)
}

/// As a Pod gets it from its gateway: routed.
pub(super) fn from_gateway(to: End, packet: Packet) -> Packet {
    packet.between(HOST.mac, to.mac).routed(1)
}

/// What comes out of the tunnel to another Node.
pub(super) fn tunnelled(packet: Packet) -> Packet {
    packet.between(HOST.mac, VIRTUAL_MAC).routed(1)
}

/// As it comes out of another Node's tunnel: that Node has routed it.
pub(super) fn from_tunnel(packet: Packet) -> Packet {
    packet.between(PEER_MAC, VIRTUAL_MAC).routed(1)
}

/// What the host sends to a Service's address: the next hop is the virtual one.
pub(super) fn from_host(packet: Packet) -> Packet {
    packet.between(HOST.mac, VIRTUAL_MAC)
}

/// A Node with everything switched on, three Pods and two peers, IPv4 and IPv6.
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
        datapath: Datapath::Netdev,
        gateway: Gateway { port: Port(2), mac: HOST.mac },
        tunnels: vec![Port(1), Port(14)],
        uplink: None,
        addresses: Families { v4: Some(v4), v6: Some(v6) },
        node_port_addresses: vec![NODE, NODE6],
        service_cidrs: vec!["10.96.0.0/12".parse().unwrap(), "fd00:96::/108".parse().unwrap()],
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

/// The Node, and the switch that has its flows.
pub(super) struct World {
    pub(super) switch: Switch,
    cluster: Cluster,
    /// What is done to the flows before they are installed.
    edit: fn(&mut Flows),
    flows: Flows,
    groups: BTreeMap<u32, Group>,
}

impl World {
    /// The usual Node.
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    /// The usual Node, but for this.
    pub(super) fn with(change: impl FnOnce(&mut Cluster)) -> Self {
        let mut world = World {
            switch: Switch::take(),
            cluster: usual(),
            edit: |_| {},
            flows: Flows::new(),
            groups: BTreeMap::new(),
        };
        // A plain port takes no notice of where a tunnel leads to: the fixture does.
        let found = Match::ip().with_masked(Field::Reg0, 0x1_0000u32, 0x5_0000u32).with(Field::Reg1, 1u8);
        let to = |node: IpAddr, port: u32, matches: &Match| {
            let IpAddr::V4(node) = node else { unreachable!("tunnels are on IPv4 here") };
            let leads = matches.clone().with(Field::TunDst, u32::from(node));
            add(&Flow::at(110, u16::MAX).when(leads).then(Action::Output(Port(port))))
        };
        let found6 = found.clone().with(Field::EthType, openflow::matching::eth_type::IPV6);
        let ways = [&found, &found6].map(|family| [to(NODE_2, 12, family), to(NODE_3, 13, family)]).concat();
        world.switch.client.done(&ways);
        world.change(change);
        world
    }

    /// Changes what there is, and installs the difference.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Cluster)) {
        change(&mut self.cluster);
        self.install();
    }

    /// Changes the flows as they are compiled, from now on: to a seed's, to show what that does.
    pub(super) fn edit(&mut self, edit: fn(&mut Flows)) {
        self.edit = edit;
        self.install();
    }

    /// The flows that are installed.
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

    /// Lets a frame arrive at a port, and returns all that comes out because of it.
    pub(super) fn send(&mut self, port: &str, frame: impl Into<Frame>) -> Vec<(&'static str, Frame)> {
        self.switch.send(port, &frame.into().bytes())
    }

    /// As [`World::send`], for a frame with a mark, which only a kernel can give it: the controller says that it has one.
    pub(super) fn send_marked(&mut self, port: &str, mark: u32, frame: impl Into<Frame>) -> Vec<(&'static str, Frame)> {
        let (_, number) = PORTS.into_iter().find(|(name, _)| *name == port).unwrap();
        let actions = vec![Action::set(Field::PktMark, mark), Action::resubmit(0)];
        let out = PacketOut::new(Port(number.into()), actions, frame.into().bytes());
        self.switch.client.done(&[Message::PacketOut(out)]);
        self.switch.came()
    }

    /// The frame comes out once, there, as this.
    #[track_caller]
    pub(super) fn passes(&mut self, port: &str, frame: impl Into<Frame>, to: &'static str, as_this: impl Into<Frame>) {
        let frame = frame.into();
        let came = self.send(port, frame.clone());
        assert_eq!(came, [(to, as_this.into())], "from {port}: {frame:?}\n{}", self.switch.story());
    }

    /// The frame comes out nowhere.
    #[track_caller]
    pub(super) fn drops(&mut self, port: &str, frame: impl Into<Frame>) {
        let frame = frame.into();
        let came = self.send(port, frame.clone());
        assert_eq!(came, [], "from {port}: {frame:?}\n{}", self.switch.story());
    }
}

/// Puts a flow that is written as `ovs-ofctl` does in the place of the one with its match.
#[track_caller]
pub(super) fn replace(flows: &mut Flows, text: &str) {
    let flow: Flow = text.parse().unwrap();
    let old = flows.insert(key(&flow), flow);
    assert!(old.is_some(), "there is no such flow: {text}");
}
