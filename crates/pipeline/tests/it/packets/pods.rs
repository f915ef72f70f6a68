//! Packets between Pods, the host and external addresses, without Services or policies.

use super::frame::Packet;
use super::frame::Step::{Ack, Data, Reply, Syn, SynAck};
use super::world::{
    A, B, HOST, OUTSIDE, PEER_MAC, REMOTE, TO_NODE_2, TO_NODE_3, VIRTUAL_MAC, World, at, from_tunnel, to_gateway,
    tunnelled,
};

#[test]
fn pods_of_one_node_are_switched_not_routed() {
    let mut w = World::new();
    let (a, b) = (A.at(40000), B.at(80));
    for (step, from_a) in [(Syn, true), (SynAck, false), (Ack, true), (Data, true), (Reply, false)] {
        let (from, to, packet) = if from_a { (A, B, Packet::tcp(a, b, step)) } else { (B, A, Packet::tcp(b, a, step)) };
        let packet = packet.between(from.mac, to.mac);
        w.passes(from.port, packet.clone(), to.port, packet);
    }
    let ping = Packet::ping(A.ip, B.ip, 1).between(A.mac, B.mac);
    w.passes(A.port, ping.clone(), B.port, ping);
    let pong = Packet::pong(B.ip, A.ip, 1).between(B.mac, A.mac);
    w.passes(B.port, pong.clone(), A.port, pong);
}

#[test]
fn pods_of_two_nodes_use_the_tunnel_and_each_node_routes_once() {
    let mut w = World::new();
    let (a, r) = (A.at(40000), REMOTE.at(80));
    w.passes(A.port, to_gateway(A, Packet::tcp(a, r, Syn)), TO_NODE_2, tunnelled(Packet::tcp(a, r, Syn)));
    let reply = from_tunnel(Packet::tcp(r, a, SynAck));
    w.passes(REMOTE.port, reply.clone(), A.port, reply.between(HOST.mac, A.mac).routed(1));
    // Each peer's Pod through the tunnel to its Node.
    let other = Packet::udp(a, at("10.10.3.11".parse().unwrap(), 53));
    w.passes(A.port, to_gateway(A, other.clone()), TO_NODE_3, tunnelled(other));
}

#[test]
fn the_ttl_of_packets_from_the_host_is_not_decremented_l6() {
    let mut w = World::new();
    let to_pod = Packet::tcp(at(OUTSIDE, 50000), A.at(80), Syn).between(HOST.mac, A.mac);
    w.passes(HOST.port, to_pod.clone(), A.port, to_pod);
    let to_peer = Packet::tcp(HOST.at(50000), REMOTE.at(80), Syn).between(HOST.mac, VIRTUAL_MAC);
    w.passes(HOST.port, to_peer.clone(), TO_NODE_2, to_peer);
    // The reply is for the host itself: the TTL is not decremented.
    let answer = from_tunnel(Packet::tcp(REMOTE.at(80), HOST.at(50000), SynAck));
    w.passes(REMOTE.port, answer.clone(), HOST.port, answer.between(PEER_MAC, HOST.mac));
}

#[test]
fn a_pod_reaches_the_host_and_external_addresses() {
    let mut w = World::new();
    for outside in [HOST.ip, OUTSIDE] {
        let there = to_gateway(A, Packet::udp(A.at(40000), at(outside, 53)));
        w.passes(A.port, there.clone(), HOST.port, there);
        let back = Packet::udp(at(outside, 53), A.at(40000)).between(HOST.mac, A.mac);
        w.passes(HOST.port, back.clone(), A.port, back);
    }
}
