//! A random Node: how it is set up, its Pods and its peers.

use std::net::IpAddr;

use openflow::action::Action;
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::{Match, eth_type};
use openflow::port::Port;
use pipeline::model::{
    Address, Applied, Datapath, Families, Features, Gateway, Mac, Mode, Node, Peer, PeerPath, Pod, Uplink,
};

use super::{policies, services};
use crate::cluster::Cluster;
use testkit::dice::Dice;

pub(super) const TUNNEL: u32 = 1;
pub(super) const GATEWAY: u32 = 2;
const FIRST_POD: u32 = 3;
/// A tunnel of one peer's own, as with IPsec.
pub(super) const OWN_TUNNEL: u32 = 14;
pub(super) const UPLINK: u32 = 15;
/// Where packets through the tunnel to the first peer come out, and so on.
const FIRST_PEER: u32 = 21;
/// OpenFlow ports of the bridge.
pub(super) const PORTS: [u32; 12] = [1, 2, 3, 4, 5, 6, 7, 14, 15, 21, 22, 23];

/// Addresses of Services, IPv4 and IPv6.
const SERVICES: [&str; 2] = ["10.96.0.0/12", "fd00:96::/108"];

pub(super) const GATEWAY_MAC: Mac = Mac([0x0a, 0, 0, 0, 0, 1]);
pub(super) const PEER_MAC: Mac = Mac([0x0a, 0, 0, 0, 0, 2]);

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The IPv4 address or the IPv6 address of the same thing.
pub(super) fn either(ipv6: bool, v4: &str, v6: &str) -> IpAddr {
    ip(if ipv6 { v6 } else { v4 })
}

/// A Node with all its objects.
pub(super) fn scene(dice: &mut Dice) -> Cluster {
    let mut cluster = Cluster::new(node(dice));
    let families: Vec<bool> = families(&cluster.node);
    cluster.pods = (0..2 + dice.below(4)).map(|n| pod(dice, &families, u32::try_from(n).unwrap())).collect();
    cluster.peers = peers(dice, &cluster.node);
    if cluster.node.features.antrea_proxy {
        cluster.services = services::services(dice, &cluster);
    }
    policies::add(dice, &mut cluster);
    cluster
}

/// The families of a Node: whether of IPv6.
pub(super) fn families(node: &Node) -> Vec<bool> {
    let Families { v4, v6 } = node.addresses;
    v4.map(|_| false).into_iter().chain(v6.map(|_| true)).collect()
}

fn node(dice: &mut Dice) -> Node {
    let mode = dice.one(&[Mode::Encap, Mode::Encap, Mode::NoEncap, Mode::Hybrid, Mode::NetworkPolicyOnly]);
    let proxy = dice.percent(80);
    let features =
        Features { antrea_proxy: proxy, proxy_all: proxy && dice.percent(75), antrea_policy: dice.percent(75) };
    let datapath = dice.one(&[Datapath::Netdev, Datapath::Netdev, Datapath::System, Datapath::Windows]);
    let address = |ipv6| Address {
        node: either(ipv6, "192.168.77.101", "fd00:77::101"),
        gateway: either(ipv6, "10.10.0.1", "fd00:10::1"),
        snat: either(ipv6, "10.10.0.254", "fd00:10::fe"),
        virtual_service: if ipv6 { Address::VIRTUAL_SERVICE6.into() } else { Address::VIRTUAL_SERVICE.into() },
        hairpin: if ipv6 { Address::HAIRPIN6.into() } else { Address::HAIRPIN.into() },
        pod_cidr: if ipv6 { "fd00:10::/64" } else { "10.10.0.0/24" }.parse().unwrap(),
    };
    let families = dice.one(&[&[false][..], &[true], &[false, true]]);
    let own = |ipv6: bool| families.contains(&ipv6).then(|| address(ipv6));
    let tunnels = match mode {
        Mode::Encap | Mode::Hybrid if dice.percent(30) => vec![Port(TUNNEL), Port(OWN_TUNNEL)],
        Mode::Encap | Mode::Hybrid => vec![Port(TUNNEL)],
        Mode::NoEncap | Mode::NetworkPolicyOnly => Vec::new(),
    };
    Node {
        mode,
        features,
        datapath,
        gateway: Gateway { port: Port(GATEWAY), mac: GATEWAY_MAC },
        uplink: (datapath == Datapath::Windows).then_some(Uplink { port: Port(UPLINK) }),
        tunnels,
        tunnel_port: None,
        addresses: Families { v4: own(false), v6: own(true) },
        node_port_addresses: families.iter().map(|ipv6| address(*ipv6).node).collect(),
        service_cidrs: families.iter().map(|ipv6| SERVICES[usize::from(*ipv6)].parse().unwrap()).collect(),
        all_zero_snat: dice.percent(30),
        host_balances: dice.percent(20),
    }
}

fn pod(dice: &mut Dice, families: &[bool], n: u32) -> Pod {
    let addresses = families.iter().map(|ipv6| either(*ipv6, &format!("10.10.0.1{n}"), &format!("fd00:10::1{n}")));
    let mut addresses: Vec<IpAddr> = addresses.collect();
    if addresses.len() > 1 && dice.percent(20) {
        addresses.remove(dice.below(2));
    }
    Pod { port: Port(FIRST_POD + n), mac: Mac([0x0a, 0, 0, 0, 1, u8::try_from(n).unwrap()]), addresses }
}

pub(super) fn applied(pod: &Pod) -> Applied {
    Applied { port: pod.port, addresses: pod.addresses.clone() }
}

fn peers(dice: &mut Dice, node: &Node) -> Vec<Peer> {
    if node.mode == Mode::NetworkPolicyOnly {
        return Vec::new();
    }
    let underlay6 = node.addresses.v4.is_none();
    let mut peers = Vec::new();
    for n in 2..2 + dice.below(4) {
        let routed = match node.mode {
            Mode::NoEncap => true,
            Mode::Hybrid => dice.percent(50),
            Mode::Encap | Mode::NetworkPolicyOnly => false,
        };
        let far = either(underlay6, &format!("192.168.77.10{n}"), &format!("fd00:77::10{n}"));
        let path = if routed { PeerPath::Route } else { PeerPath::Tunnel(far) };
        for ipv6 in families(node) {
            let cidr = if ipv6 { format!("fd00:10:{n}::/64") } else { format!("10.10.{n}.0/24") };
            let gateway = either(ipv6, &format!("10.10.{n}.1"), &format!("fd00:10:{n}::1"));
            peers.push(Peer { pod_cidr: cidr.parse().unwrap(), gateway, path });
        }
    }
    peers
}

/// Plain ports have no tunnel source: the fixture derives it from the inner source, or uses the first peer.
pub(super) fn near_ends(node: &Node) -> Vec<Flow> {
    let underlay6 = node.addresses.v4.is_none();
    let mut flows = Vec::new();
    for tunnel in &node.tunnels {
        for (n, priority) in (2..6u16).zip([u16::MAX - 1, u16::MAX, u16::MAX, u16::MAX]) {
            let far = either(underlay6, &format!("192.168.77.10{n}"), &format!("fd00:77::10{n}"));
            let (field, far) = match far {
                IpAddr::V4(far) => (Field::TunSrc, u128::from(u32::from(far))),
                IpAddr::V6(far) => (Field::TunIpv6Src, u128::from(far)),
            };
            let unknown = || Match::any().with(Field::InPort, tunnel.0).with(field, 0u8);
            let of_peer = if n == 2 {
                vec![unknown()]
            } else {
                let v4 = unknown().with(Field::EthType, eth_type::IPV4);
                let v6 = unknown().with(Field::EthType, eth_type::IPV6);
                vec![
                    v4.with_masked(Field::Ipv4Src, 0x0a0a_0000u32 | u32::from(n) << 8, 0xffff_ff00u32),
                    v6.with_masked(Field::Ipv6Src, u128::from(n) << 80 | 0xfd00_0010 << 96, u128::MAX << 64),
                ]
            };
            let known = Action::set(field, far);
            let flow = |matches| Flow::at(0, priority).when(matches).then(known.clone()).then(Action::resubmit(0));
            flows.extend(of_peer.into_iter().map(flow));
        }
    }
    flows
}

/// Plain ports ignore the tunnel destination: the fixture uses one port per peer, so that a wrong one is noticed.
pub(super) fn far_ends(node: &Node) -> Vec<Flow> {
    if node.tunnels.is_empty() {
        return Vec::new();
    }
    let underlay6 = node.addresses.v4.is_none();
    let mut flows = Vec::new();
    for (port, n) in (FIRST_PEER..).zip(2..5) {
        for family in [eth_type::IPV4, eth_type::IPV6] {
            let found = Match::any().with(Field::EthType, family).with(Field::Reg1, TUNNEL);
            let found = found.with_masked(Field::Reg0, 0x1_0000u32, 0x5_0000u32);
            let far = match either(underlay6, &format!("192.168.77.10{n}"), &format!("fd00:77::10{n}")) {
                IpAddr::V4(far) => found.with(Field::TunDst, u32::from(far)),
                IpAddr::V6(far) => found.with(Field::TunIpv6Dst, u128::from(far)),
            };
            flows.push(Flow::at(110, u16::MAX).when(far).then(Action::Output(Port(port))));
        }
    }
    flows
}
