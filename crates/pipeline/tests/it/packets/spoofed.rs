//! Forged sources: MACs, from which the switch learns ports, and Pod addresses that arrive through the host.

use std::net::IpAddr;

use openflow::matching::eth_type;
use pipeline::model::{Mac, Mode, PeerPath};

use super::frame::Step::Syn;
use super::frame::{Arp, BROADCAST, Frame, NO_MAC, Nd, Packet, checksum};
use super::switch::BRIDGE;
use super::world::{A, B, C, End, HOST, NODE, NODE_2, OUTSIDE, REMOTE, SNAT, World, at};
use crate::cluster::Flows;

/// The port number that the switch has learned for a MAC.
fn learned(w: &World, mac: Mac) -> Option<u32> {
    let table = w.switch.ovs.control("fdb/show", &[BRIDGE]).unwrap();
    let lines = table.lines().filter(|line| line.contains(&mac.to_string()));
    lines.map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).next()
}

fn learned_entries(w: &World) -> usize {
    w.switch.ovs.control("fdb/show", &[BRIDGE]).unwrap().lines().skip(1).count()
}

/// An ARP request of Pod A in a frame with this source MAC.
fn question(from_mac: Mac) -> Arp {
    Arp { from_mac, to_mac: BROADCAST, reply: false, sha: A.mac, spa: A.ip, tha: NO_MAC, tpa: B.ip }
}

#[test]
fn the_switch_does_not_learn_the_gateways_mac_from_a_pod() {
    let mut w = World::new();
    let hosts = Arp { from_mac: HOST.mac, sha: HOST.mac, spa: HOST.ip, ..question(HOST.mac) };
    assert_eq!(w.send(HOST.port, hosts).len(), 3);
    assert_eq!(learned(&w, HOST.mac), Some(2));
    for n in 0..20 {
        w.drops(A.port, question(Mac([0x0a, 0, 0, 7, 7, n])));
    }
    w.drops(A.port, question(HOST.mac));
    assert_eq!(learned(&w, HOST.mac), Some(2));
    assert_eq!(w.send(A.port, question(A.mac)).len(), 3);
    assert_eq!((learned(&w, A.mac), learned_entries(&w)), (Some(3), 2));
    // The same from the host.
    w.drops(HOST.port, Arp { from_mac: B.mac, sha: HOST.mac, spa: HOST.ip, ..question(B.mac) });

    // Without the fix, the gateway's MAC moves to the Pod's port, and the MAC table grows without limit.
    w.edit(|flows| {
        let guards: Vec<_> = flows.extract_if(.., |(table, ..), flow| *table == 10 && is_arp(flow)).collect();
        for (_, mut flow) in guards {
            flow.matches.set(openflow::field::Field::EthSrc, 0, 0);
            flows.insert(crate::cluster::key(&flow), flow);
        }
    });
    w.send(A.port, question(HOST.mac));
    assert_eq!(learned(&w, HOST.mac), Some(3));
    for n in 0..20 {
        w.send(A.port, question(Mac([0x0a, 0, 0, 7, 7, n])));
    }
    assert!(learned_entries(&w) > 20);
}

fn is_arp(flow: &openflow::flow::Flow) -> bool {
    flow.matches.get(openflow::field::Field::EthType).is_some_and(|(kind, _)| kind == u128::from(eth_type::ARP))
}

#[test]
fn tagged_frames_are_dropped_and_not_learned() {
    let mut w = World::new();
    let tagged = |frame: Frame, vlan: u16| {
        let mut bytes = frame.bytes();
        let tag = [0x8100u16, vlan].map(u16::to_be_bytes).concat();
        bytes.splice(12..12, tag);
        bytes
    };
    let packet: Frame = Packet::tcp(A.at(40000), B.at(80), Syn).between(A.mac, B.mac).into();
    for vlan in 0..20 {
        assert_eq!(w.switch.send_unread(A.port, &tagged(question(A.mac).into(), vlan)), 0, "VLAN {vlan}");
        assert_eq!(w.switch.send_unread(A.port, &tagged(packet.clone(), vlan)), 0, "VLAN {vlan}");
    }
    assert_eq!(learned_entries(&w), 0);
    w.edit(without_vlan_guard);
    for vlan in 1..20 {
        w.switch.send_unread(A.port, &tagged(question(A.mac).into(), vlan));
    }
    assert!(learned_entries(&w) > 15, "as it was");
}

fn without_vlan_guard(flows: &mut Flows) {
    flows.retain(|(table, priority, _), _| (*table, *priority) != (10, 230));
}

/// A solicitation of Pod A for Pod B with this MAC in its option, and its advertisement to Pod C.
fn messages(named: Option<Mac>) -> [Nd; 2] {
    let solicited_node = "ff02::1:ff00:12".parse().unwrap();
    let (from_mac, src) = (A.mac, A.ip6);
    let to_mac = Mac([0x33, 0x33, 0xff, 0, 0, 0x12]);
    let (flags, target) = (0, B.ip6);
    let solicit = Nd { from_mac, to_mac, src, dst: solicited_node, advertisement: false, flags, target, link: named };
    let (to_mac, dst, target) = (C.mac, C.ip6, A.ip6);
    [solicit, Nd { from_mac, to_mac, src, dst, advertisement: true, flags: 0x6000_0000, target, link: named }]
}

#[test]
fn neighbour_discovery_with_a_foreign_mac_is_dropped() {
    let mut w = World::new();
    for named in [Some(A.mac), None] {
        for message in messages(named) {
            assert!(!w.send(A.port, message.clone()).is_empty(), "{message:?}");
        }
    }
    for named in [HOST.mac, B.mac, Mac([0x0a, 0, 0, 9, 9, 9])] {
        for message in messages(Some(named)) {
            w.drops(A.port, message.clone());
            w.drops(A.port, Nd { from_mac: named, ..message });
        }
    }
    // Link-local addresses, and duplicate address detection.
    let link_local: IpAddr = "fe80::a".parse().unwrap();
    let [solicit, advertise] = messages(Some(HOST.mac));
    w.drops(A.port, Nd { src: link_local, ..solicit.clone() });
    w.drops(A.port, Nd { src: link_local, target: link_local, ..advertise });
    w.drops(A.port, Nd { src: "::".parse().unwrap(), ..solicit });
    // Two options: the switch reads none of them, receivers read the first.
    let [solicit, _] = messages(Some(HOST.mac));
    let mut bytes = Frame::from(solicit).bytes();
    let option = bytes[bytes.len() - 8..].to_vec();
    bytes.extend(option);
    bytes[14 + 4..14 + 6].copy_from_slice(&40u16.to_be_bytes());
    let icmp = 14 + 40;
    bytes[icmp + 2..icmp + 4].fill(0);
    let pseudo = [&bytes[14 + 8..14 + 40], &[0, 58, 0, 40]].concat();
    let sum = checksum(&[&pseudo, &bytes[icmp..]]).to_be_bytes();
    bytes[icmp + 2..icmp + 4].copy_from_slice(&sum);
    assert_eq!(w.switch.send_unread(A.port, &bytes), 0);
}

/// An external sender sends to Pod A with this forged source.
fn through_the_host(src: IpAddr, port: u16) -> Packet {
    let to = if src.is_ipv4() { A.at(80) } else { A.at6(80) };
    Packet::tcp(at(src, port), to, Syn).between(HOST.mac, A.mac)
}

#[test]
fn pod_sources_from_the_gateway_are_dropped() {
    let mut w = World::new();
    let honest = [HOST.ip, NODE, NODE_2, OUTSIDE, HOST.ip6, super::world::NODE6, super::world::OUTSIDE6];
    for source in honest {
        w.passes(HOST.port, through_the_host(source, 40000), A.port, through_the_host(source, 40000));
    }
    let own = [B.ip, C.ip, A.ip, SNAT, "10.10.0.200".parse().unwrap(), B.ip6];
    let remote = [REMOTE.ip, "10.10.3.1".parse().unwrap(), REMOTE.ip6];
    for source in own.into_iter().chain(remote) {
        w.drops(HOST.port, through_the_host(source, 40000));
    }
    w.edit(|flows| flows.retain(|(table, priority, _), _| (*table, *priority) != (10, 205)));
    w.passes(HOST.port, through_the_host(B.ip, 40001), A.port, through_the_host(B.ip, 40001));
}

#[test]
fn pod_sources_from_the_gateway_are_accepted_where_the_host_proxies_or_routes() {
    let passes = |w: &mut World, end: End| {
        w.passes(HOST.port, through_the_host(end.ip, 40000), A.port, through_the_host(end.ip, 40000));
    };
    // kube-proxy or another proxy has DNATed Pod B's packet to a Service.
    let kube_proxy = |w: &mut World| w.change(|c| c.node.features.antrea_proxy = false);
    let not_for_all = |w: &mut World| w.change(|c| c.node.features.proxy_all = false);
    let skipped = |w: &mut World| w.change(|c| c.node.host_balances = true);
    for change in [&kube_proxy as &dyn Fn(&mut World), &not_for_all, &skipped] {
        let mut w = World::new();
        change(&mut w);
        passes(&mut w, B);
        w.drops(HOST.port, through_the_host(REMOTE.ip, 40000));
    }
    // Without tunnels the host routes between Nodes.
    let mut w = World::with(|c| {
        c.node.mode = Mode::NoEncap;
        c.node.tunnels.clear();
        c.peers.iter_mut().for_each(|peer| peer.path = PeerPath::Route);
    });
    passes(&mut w, REMOTE);
    w.drops(HOST.port, through_the_host(B.ip, 40000));
}
