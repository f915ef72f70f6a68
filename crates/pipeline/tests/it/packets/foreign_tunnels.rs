//! Tunnels that are not between Nodes: forged decapsulated packets, and attempts of Pods to send tunnel packets to a Node.

use std::net::IpAddr;

use openflow::flow::Flow;
use pipeline::model::Direction::Ingress;
use pipeline::model::{Endpoint, Mac, PeerPath};

use super::fragments;
use super::frame::Step::Syn;
use super::frame::{Arp, BROADCAST, Frame, NO_MAC, Packet, checksum};
use super::objects::{Narrowed, allow, elsewhere, isolate};
use super::services::{BY_CLUSTER_IP, CLUSTER_IP};
use super::world::{
    A, HOST, NODE, NODE_2, NODE_3, OUTSIDE, PEER_3_MAC, PEER_MAC, REMOTE, STRANGER_MAC, TO_NODE_2, VIRTUAL_MAC, World,
    at, to_gateway, tunnelled,
};
use crate::cluster::{Flows, Service, key};

/// A decapsulated packet from the Node whose gateway has this MAC.
fn from(node: Mac, packet: Packet) -> Packet {
    packet.between(node, VIRTUAL_MAC).routed(1)
}

/// The packet as it arrives at Pod A.
fn to_a(packet: Packet) -> Packet {
    packet.between(HOST.mac, A.mac).routed(2)
}

/// The flows before the fix: every decapsulated packet is accepted.
fn trusting(flows: &mut Flows) {
    let trust: Flow = "table=10,priority=190,ip,reg0=0/0xf actions=resubmit(,24)".parse().unwrap();
    flows.insert(key(&trust), trust);
}

#[test]
fn tunnel_packets_from_unknown_hosts_are_dropped() {
    let mut w = World::with(|c| {
        isolate(c, Ingress, A);
        c.rules = vec![allow(1, Ingress, A).with_peer(REMOTE.ip)];
    });
    let forged = |port| Packet::udp(REMOTE.at(port), A.at(80));
    w.drops("tun", from(STRANGER_MAC, forged(40000)));
    w.passes("tun", from(PEER_MAC, forged(40001)), A.port, to_a(forged(40001)));
    // The attack succeeds without the fix.
    w.edit(trusting);
    w.passes("tun", from(STRANGER_MAC, forged(40002)), A.port, to_a(forged(40002)));
}

#[test]
fn tunnel_packets_with_a_source_of_another_node_are_dropped() {
    let mut w = World::new();
    let packet = |src: IpAddr, port| Packet::tcp(at(src, port), A.at(80), Syn);
    for own in [REMOTE.ip, "10.10.2.1".parse().unwrap(), "10.10.2.254".parse().unwrap(), NODE_2] {
        w.passes("tun", from(PEER_MAC, packet(own, 40000)), A.port, to_a(packet(own, 40000)));
    }
    let foreign = ["10.10.3.11", "10.10.0.12", "10.10.0.1", "203.0.113.7", "127.0.0.1", "169.254.0.253"];
    for foreign in foreign.map(|ip| ip.parse().unwrap()).into_iter().chain([NODE, NODE_3]) {
        w.drops("tun", from(PEER_MAC, packet(foreign, 40001)));
    }
    w.passes("tun", from(PEER_3_MAC, packet(NODE_3, 40002)), A.port, to_a(packet(NODE_3, 40002)));
    w.drops("tun", from(PEER_3_MAC, packet(REMOTE.ip, 40003)));
    let v6 = |src: &str| Packet::tcp(at(src.parse().unwrap(), 40000), A.at6(80), Syn);
    w.passes("tun", from(PEER_MAC, v6("fd00:10:2::11")), A.port, to_a(v6("fd00:10:2::11")));
    for foreign in ["fd00:10:3::11", "fd00:10::12", "fe80::1", "::1"] {
        w.drops("tun", from(PEER_MAC, v6(foreign)));
    }
    // ARP never passes a tunnel.
    let (sha, spa, tpa) = (PEER_MAC, REMOTE.ip, A.ip);
    let arp = Arp { from_mac: PEER_MAC, to_mac: BROADCAST, reply: false, sha, spa, tha: NO_MAC, tpa };
    w.drops("tun", arp);
}

#[test]
fn tunnel_packets_are_accepted_from_every_address_of_a_peer() {
    let mut w = World::new();
    let packet = |src: IpAddr, port| Packet::udp(at(src, port), A.at(80));
    w.drops("tun", from(STRANGER_MAC, packet(REMOTE.ip, 40000)));
    w.change(|c| c.other_addresses = vec![(NODE_2, OUTSIDE)]);
    for own in [REMOTE.ip, NODE_2, OUTSIDE] {
        w.passes("tun", from(STRANGER_MAC, packet(own, 40001)), A.port, to_a(packet(own, 40001)));
    }
    w.drops("tun", from(STRANGER_MAC, packet(NODE_3, 40002)));
    // A peer's addresses never include this Node's.
    w.change(|c| c.other_addresses = vec![(NODE_2, NODE), (NODE_2, "10.10.0.12".parse().unwrap())]);
    w.drops("tun", from(PEER_MAC, packet(NODE, 40003)));
    w.drops("tun", from(PEER_MAC, packet("10.10.0.12".parse().unwrap(), 40003)));
}

#[test]
fn tunnel_packets_from_a_routed_peer_are_dropped() {
    let mut w = World::with(|c| {
        c.node.mode = pipeline::model::Mode::Hybrid;
        c.peers.iter_mut().filter(|peer| peer.path == PeerPath::Tunnel(NODE_2)).for_each(|p| p.path = PeerPath::Route);
    });
    w.drops("tun", from(PEER_MAC, Packet::udp(REMOTE.at(40000), A.at(80))));
    let other = Packet::udp(at("10.10.3.11".parse().unwrap(), 40000), A.at(80));
    w.passes("tun", from(PEER_3_MAC, other.clone()), A.port, to_a(other));
}

/// The flows before the fix: no guard for packets to Nodes.
fn unguarded(flows: &mut Flows) {
    flows.retain(|(table, priority, _), _| (*table, *priority) != (70, 220));
}

/// Addresses of Nodes, including this one, that Pod A can send to through the host.
const NODES: [IpAddr; 4] = [NODE, NODE_2, NODE_3, HOST.ip];

/// The same packet of another protocol.
fn as_protocol(packet: Packet, protocol: u8) -> Vec<u8> {
    let mut bytes = Frame::from(packet).bytes();
    bytes[14 + 9] = protocol;
    bytes[24..26].fill(0);
    let sum = checksum(&[&bytes[14..34]]).to_be_bytes();
    bytes[24..26].copy_from_slice(&sum);
    bytes
}

#[test]
fn tunnel_packets_from_a_pod_to_a_node_are_dropped() {
    let mut w = World::new();
    let udp = |to: IpAddr, port| to_gateway(A, Packet::udp(A.at(40000), at(to, port)));
    for node in NODES {
        for port in [6081, 4789, 8472] {
            w.drops(A.port, udp(node, port));
        }
        w.drops(A.port, to_gateway(A, Packet::tcp(A.at(40000), at(node, 7471), Syn)));
        assert_eq!(w.switch.send_unread(A.port, &as_protocol(udp(node, 1), 47)), 0, "GRE");
        w.passes(A.port, udp(node, 6082), HOST.port, udp(node, 6082));
        let tcp = to_gateway(A, Packet::tcp(A.at(40001), at(node, 6081), Syn));
        w.passes(A.port, tcp.clone(), HOST.port, tcp);
    }
    w.drops(A.port, to_gateway(A, Packet::udp(A.at6(40000), at(super::world::NODE6, 6081))));
    // Other destinations are not guarded.
    for port in [6081, 4789] {
        w.passes(A.port, udp(OUTSIDE, port), HOST.port, udp(OUTSIDE, port));
    }
    assert_eq!(w.switch.send_unread(A.port, &as_protocol(udp(OUTSIDE, 1), 47)), 1);
    let remote = Packet::udp(A.at(40000), REMOTE.at(6081));
    w.passes(A.port, to_gateway(A, remote.clone()), TO_NODE_2, tunnelled(remote));

    w.edit(unguarded);
    w.passes(A.port, udp(NODE_2, 6081), HOST.port, udp(NODE_2, 6081));
}

/// Whether the first of Pod A's fragments is output. The others are useless without it: the host reassembles packets before
/// it forwards them.
fn begins(w: &mut World, parts: &[Vec<u8>]) -> bool {
    let came = w.switch.send_parts(A.port, parts);
    came.iter().any(|(_, bytes)| u16::from_be_bytes([bytes[14 + 6], bytes[14 + 7]]) & 0x1fff == 0)
}

#[test]
fn fragmented_tunnel_packets_to_a_node_are_dropped() {
    let mut w = World::new();
    let parts = |to: IpAddr, port| fragments::parts(A.mac, HOST.mac, A.at(40000), at(to, port), 64);
    for node in NODES {
        for port in [6081, 4789, 8472] {
            assert!(!begins(&mut w, &parts(node, port)), "{node}:{port}");
        }
        fragments::passes(&mut w, A.port, &parts(node, 8125), HOST.port, parts(node, 8125));
    }
    fragments::passes(&mut w, A.port, &parts(OUTSIDE, 6081), HOST.port, parts(OUTSIDE, 6081));
    // As a reply to a packet with a Node's forged source.
    let asked = Packet::udp(at(NODE_2, 6081), A.at(40001)).between(HOST.mac, A.mac);
    w.passes(HOST.port, asked.clone(), A.port, asked);
    let answer = fragments::parts(A.mac, HOST.mac, A.at(40001), at(NODE_2, 6081), 64);
    assert!(!begins(&mut w, &answer));

    w.edit(unguarded);
    fragments::passes(&mut w, A.port, &parts(NODE_3, 6081), HOST.port, parts(NODE_3, 6081));
}

#[test]
fn tunnel_packets_to_a_node_through_a_service_are_dropped() {
    let endpoint = |port| Endpoint { port, ..elsewhere(NODE_2) };
    let service = |port| Service::of(BY_CLUSTER_IP, 53, &[endpoint(port)]).udp();
    let mut w = World::with(|c| c.services.push(service(6081)));
    let asked = |from| to_gateway(A, Packet::udp(A.at(from), at(CLUSTER_IP, 53)));
    let parts = |from, to| fragments::parts(A.mac, HOST.mac, A.at(from), to, 64);
    w.drops(A.port, asked(40000));
    // The connection is committed with its DNAT by now.
    w.drops(A.port, asked(40000));
    assert!(w.switch.send_parts(A.port, &parts(40000, at(CLUSTER_IP, 53))).is_empty());
    // Nor for an external client, which the host would SNAT to the Node's address.
    let outside = Packet::udp(at(OUTSIDE, 40000), at(CLUSTER_IP, 53)).between(HOST.mac, VIRTUAL_MAC);
    w.drops(HOST.port, outside);

    w.change(|c| c.services[0] = service(6082));
    let found = |from: u16| Packet::udp(A.at(from), at(NODE_2, 6082)).between(A.mac, HOST.mac).routed(1);
    w.passes(A.port, asked(40001), HOST.port, found(40001));
    let answer = Packet::udp(at(NODE_2, 6082), A.at(40001)).between(HOST.mac, A.mac);
    w.passes(HOST.port, answer, A.port, Packet::udp(at(CLUSTER_IP, 53), A.at(40001)).between(HOST.mac, A.mac));
    let came = w.switch.send_parts(A.port, &parts(40001, at(CLUSTER_IP, 53)));
    assert_eq!(came.len(), 2);
    // A Pod may listen on any port.
    let pod = Endpoint { port: 6081, ..elsewhere(REMOTE.ip) };
    w.change(|c| c.services[0] = Service::of(BY_CLUSTER_IP, 53, &[pod]).udp());
    let found = Packet::udp(A.at(40002), REMOTE.at(6081));
    w.passes(A.port, asked(40002), TO_NODE_2, tunnelled(found));
}

#[test]
fn without_tunnels_there_is_no_tunnel_guard() {
    let mut w = World::with(|c| {
        c.node.mode = pipeline::model::Mode::NoEncap;
        c.node.tunnels.clear();
        c.peers.iter_mut().for_each(|peer| peer.path = PeerPath::Route);
    });
    let packet = to_gateway(A, Packet::udp(A.at(40000), at(NODE_2, 6081)));
    w.passes(A.port, packet.clone(), HOST.port, packet);
    let tables: Vec<u8> = w.flows().map(|flow| flow.table).collect();
    assert!(!tables.contains(&65));
}

#[test]
fn packets_to_loopback_addresses_are_dropped() {
    let strange = |ip: &str| ip.parse::<IpAddr>().unwrap();
    let mut w = World::with(|c| {
        let endpoint = |ip: &str| Endpoint { address: ip.parse().unwrap(), port: 10350, is_local_pod: false };
        c.services.push(Service::of(BY_CLUSTER_IP, 80, &[endpoint("127.0.0.1")]));
    });
    for (from, to) in [(A.at(40000), "127.0.0.1"), (A.at(40000), "127.9.9.9"), (A.at6(40000), "::1")] {
        w.drops(A.port, to_gateway(A, Packet::tcp(from, at(strange(to), 10350), Syn)));
    }
    w.drops(A.port, to_gateway(A, Packet::tcp(A.at6(40000), at(strange("::ffff:127.0.0.1"), 10350), Syn)));
    w.drops(A.port, to_gateway(A, Packet::tcp(A.at(40000), at(CLUSTER_IP, 80), Syn)));
    w.drops("tun", from(PEER_MAC, Packet::tcp(REMOTE.at(40000), at(strange("127.0.0.1"), 10350), Syn)));
    for source in ["127.0.0.1", "127.3.4.5"] {
        w.drops(HOST.port, Packet::tcp(at(strange(source), 40000), A.at(80), Syn).between(HOST.mac, A.mac));
    }
    w.drops(HOST.port, Packet::tcp(at(strange("::1"), 40000), A.at6(80), Syn).between(HOST.mac, A.mac));

    // Without the fix.
    w.edit(|flows| {
        flows.retain(|(_, _, matches), flow| !flow.actions.is_empty() || !matches.to_string().contains("127."));
    });
    let packet = to_gateway(A, Packet::tcp(A.at(40001), at(strange("127.0.0.1"), 10350), Syn));
    w.passes(A.port, packet.clone(), HOST.port, packet);
    let served = Packet::tcp(A.at(40002), at(strange("127.0.0.1"), 10350), Syn).between(A.mac, HOST.mac).routed(1);
    w.passes(A.port, to_gateway(A, Packet::tcp(A.at(40002), at(CLUSTER_IP, 80), Syn)), HOST.port, served);
}
