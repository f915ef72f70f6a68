//! Other configurations: without tunnels, with kube-proxy, policy-only, without tiers.

use openflow::port::Port;
use pipeline::model::Direction::{Egress, Ingress};
use pipeline::model::{Datapath, Features, Mac, Mode, PeerPath, Uplink};

use super::frame::Packet;
use super::frame::Step::{Ack, Data, Syn, SynAck};
use super::objects::{Narrowed, TARGET, allow, elsewhere, isolate, local};
use super::services::{BY_CLUSTER_IP, BY_NODE_PORT, CLUSTER_IP, NODE_PORT, Side, converse};
use super::world::{
    A, B, C, HOST, OUTSIDE, PEER_MAC, REMOTE, TO_NODE_2, VIRTUAL, VIRTUAL_MAC, World, at, from_gateway, from_host,
    to_gateway, tunnelled,
};
use crate::cluster::{Cluster, Service};

fn no_encap(cluster: &mut Cluster) {
    cluster.node.mode = Mode::NoEncap;
    cluster.node.tunnels.clear();
    cluster.peers.iter_mut().for_each(|peer| peer.path = PeerPath::Route);
}

/// Pod A's connection to a Service.
fn pod_a() -> Side {
    Side {
        sends_at: A.port,
        gets_at: A.port,
        own: A.at(40000),
        other: at(CLUSTER_IP, 80),
        sent: |packet| to_gateway(A, packet),
        got: |packet| from_gateway(A, packet),
    }
}

#[test]
fn without_encapsulation_the_host_routes_between_nodes() {
    let mut w = World::with(no_encap);
    // Not routed by the switch: the host routes and decrements the TTL.
    let there = to_gateway(A, Packet::tcp(A.at(40000), REMOTE.at(80), Syn));
    w.passes(A.port, there.clone(), HOST.port, there);
    let back = Packet::tcp(REMOTE.at(80), A.at(40000), SynAck).between(HOST.mac, A.mac);
    w.passes(HOST.port, back.clone(), A.port, back);
}

#[test]
fn without_encapsulation_services_have_endpoints_on_other_nodes_for_pods_and_clients_outside() {
    let mut w = World::with(no_encap);
    w.change(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[elsewhere(REMOTE.ip)])));
    let remote = Side {
        sends_at: HOST.port,
        gets_at: HOST.port,
        own: REMOTE.at(TARGET),
        other: A.at(40000),
        sent: |packet| packet.between(HOST.mac, A.mac),
        got: |packet| packet.between(A.mac, HOST.mac),
    };
    converse(&mut w, &Side { got: |packet| packet.between(HOST.mac, A.mac), ..pod_a() }, &remote);

    w.change(|c| c.services[0] = Service::of(BY_NODE_PORT, NODE_PORT, &[elsewhere(REMOTE.ip)]));
    let turned = |packet: Packet| packet.between(HOST.mac, HOST.mac);
    let client =
        Side { own: at(OUTSIDE, 50000), other: at(VIRTUAL, NODE_PORT), sent: from_host, got: turned, ..remote };
    // The host SNATs these on output.
    let remote = Side { other: at(VIRTUAL, 50000), sent: from_host, got: turned, ..remote };
    converse(&mut w, &client, &remote);
}

#[test]
fn in_hybrid_mode_peers_are_reached_by_tunnel_or_route() {
    let mut w = World::with(|c| {
        c.node.mode = Mode::Hybrid;
        for peer in c.peers.iter_mut().skip(2) {
            peer.path = PeerPath::Route;
        }
    });
    let tunnel = Packet::tcp(A.at(40000), REMOTE.at(80), Syn);
    w.passes(A.port, to_gateway(A, tunnel.clone()), TO_NODE_2, tunnelled(tunnel));
    let routed = to_gateway(A, Packet::tcp(A.at(40000), at("10.10.3.11".parse().unwrap(), 80), Syn));
    w.passes(A.port, routed.clone(), HOST.port, routed);
}

#[test]
fn a_tunnel_port_of_one_peer_is_accepted_like_the_shared_one() {
    let mut w = World::new();
    let packet = super::world::from_tunnel(Packet::tcp(REMOTE.at(40000), B.at(80), Syn));
    w.passes("tun-4", packet.clone(), B.port, from_gateway(B, packet));
    w.change(|c| c.node.tunnels = vec![Port(1)]);
    w.drops("tun-4", super::world::from_tunnel(Packet::tcp(REMOTE.at(40001), B.at(80), Syn)));
}

#[test]
fn an_uplink_port_forwards_to_pods_in_modes_without_tunnels() {
    let mut w = World::with(|c| {
        no_encap(c);
        (c.node.datapath, c.node.uplink) = (Datapath::Windows, Some(Uplink { port: Port(14) }));
        isolate(c, Ingress, C);
    });
    let packet = |to| Packet::tcp(REMOTE.at(40000), to, Syn).between(PEER_MAC, Mac([0x0a, 0, 0, 0, 0, 9]));
    w.passes("tun-4", packet(B.at(80)), B.port, from_gateway(B, packet(B.at(80))));
    w.drops("tun-4", packet(C.at(80)));
    // The gateway's address alone does not identify the host.
    w.drops("tun-4", Packet { src: HOST.ip, ..packet(C.at(80)) });
    w.change(|c| c.node.mode = Mode::Encap);
    w.drops("tun-4", packet(B.at(81)));
}

const KUBE_PROXY: Features = Features { antrea_proxy: false, proxy_all: false, antrea_policy: true };

#[test]
fn with_kube_proxy_each_node_routes_once() {
    let mut w = World::with(|c| c.node.features = KUBE_PROXY);
    let direct = Packet::tcp(A.at(40000), B.at(80), Syn).between(A.mac, B.mac);
    w.passes(A.port, direct.clone(), B.port, direct);
    let there = Packet::tcp(A.at(40000), REMOTE.at(80), Syn);
    w.passes(A.port, to_gateway(A, there.clone()), TO_NODE_2, tunnelled(there));
    let back = super::world::from_tunnel(Packet::tcp(REMOTE.at(80), A.at(40000), SynAck));
    w.passes(REMOTE.port, back.clone(), A.port, from_gateway(A, back));
    // The TTL of packets that the host has routed is not decremented (L6).
    let host = Packet::tcp(at(OUTSIDE, 50000), REMOTE.at(80), Syn).between(HOST.mac, VIRTUAL_MAC);
    w.passes(HOST.port, host.clone(), TO_NODE_2, host);
}

#[test]
fn with_kube_proxy_services_go_through_the_host_and_policies_see_the_endpoint() {
    let mut w = World::with(|c| {
        c.node.features = KUBE_PROXY;
        isolate(c, Egress, A);
        isolate(c, Ingress, B);
        isolate(c, Ingress, A);
        c.rules = vec![allow(1, Egress, A).with_peer(B.ip), allow(2, Ingress, B).with_peer(A.ip)];
    });
    let (a, service, b) = (A.at(40000), at(CLUSTER_IP, 80), B.at(TARGET));
    for (step, answered) in [(Syn, SynAck), (Ack, SynAck), (Data, SynAck)] {
        let asked = to_gateway(A, Packet::tcp(a, service, step));
        w.passes(A.port, asked.clone(), HOST.port, asked);
        let resolved = Packet::tcp(a, b, step).between(HOST.mac, B.mac);
        w.passes(HOST.port, resolved.clone(), B.port, resolved);
        if step == Syn {
            // The reply returns through the host, though the client is on this bridge.
            let answer = Packet::tcp(b, a, answered);
            w.passes(B.port, answer.clone().between(B.mac, A.mac), HOST.port, answer.between(B.mac, HOST.mac));
            let undone = Packet::tcp(service, a, answered).between(HOST.mac, A.mac);
            w.passes(HOST.port, undone.clone(), A.port, undone);
        }
    }
    let other = Packet::tcp(A.at(40001), C.at(TARGET), Syn).between(HOST.mac, C.mac);
    w.drops(HOST.port, other);
}

#[test]
fn with_kube_proxy_and_without_encapsulation_resolved_packets_enter_the_host_a_second_time() {
    let mut w = World::with(|c| {
        no_encap(c);
        c.node.features = KUBE_PROXY;
        isolate(c, Egress, A);
        c.rules = vec![allow(1, Egress, A).with_peer(REMOTE.ip)];
    });
    let asked = to_gateway(A, Packet::tcp(A.at(40000), at(CLUSTER_IP, 80), Syn));
    w.passes(A.port, asked.clone(), HOST.port, asked);
    let resolved = |to| Packet::tcp(A.at(40000), at(to, TARGET), Syn).between(HOST.mac, VIRTUAL_MAC);
    let again = resolved(REMOTE.ip).between(Mac::REENTRANCE, HOST.mac);
    w.passes(HOST.port, resolved(REMOTE.ip), HOST.port, again);
    w.drops(HOST.port, resolved("10.10.3.11".parse().unwrap()));
}

fn policy_only(cluster: &mut Cluster) {
    cluster.node.mode = Mode::NetworkPolicyOnly;
    cluster.node.features = KUBE_PROXY;
    cluster.node.tunnels.clear();
    cluster.peers.clear();
}

#[test]
fn in_policy_only_mode_the_bridge_is_transparent() {
    let mut w = World::with(policy_only);
    // A Pod sends to the virtual MAC of ARP replies, and the TTL does not change.
    let sent = |packet: Packet| packet.between(A.mac, VIRTUAL_MAC);
    let there = Packet::tcp(A.at(40000), B.at(80), Syn);
    w.passes(A.port, sent(there.clone()), B.port, there.between(A.mac, B.mac));
    let back = Packet::tcp(B.at(80), A.at(40000), SynAck);
    w.passes(B.port, back.clone().between(B.mac, VIRTUAL_MAC), A.port, back.between(B.mac, A.mac));
    let out = Packet::udp(A.at(40000), at(OUTSIDE, 53));
    w.passes(A.port, sent(out.clone()), HOST.port, out.between(A.mac, HOST.mac));
    // From the host, with any destination MAC.
    let next_hop = Mac([0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc]);
    let come = Packet::tcp(at(OUTSIDE, 50000), A.at(80), Syn);
    w.passes(HOST.port, come.clone().between(HOST.mac, next_hop), A.port, come.between(HOST.mac, A.mac));
    let answer = Packet::tcp(A.at(80), at(OUTSIDE, 50000), SynAck);
    w.passes(A.port, sent(answer.clone()), HOST.port, answer.between(A.mac, HOST.mac));
}

#[test]
fn in_policy_only_mode_service_packets_enter_the_host_twice_with_policies_between() {
    let mut w = World::with(|c| {
        policy_only(c);
        isolate(c, Egress, A);
        c.rules = vec![allow(1, Egress, A).with_peer(REMOTE.ip)];
    });
    let next_hop = Mac([0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc]);
    let asked = Packet::tcp(A.at(40000), at(CLUSTER_IP, 80), Syn);
    w.passes(A.port, asked.clone().between(A.mac, VIRTUAL_MAC), HOST.port, asked.between(A.mac, HOST.mac));
    let resolved = |to| Packet::tcp(A.at(40000), at(to, TARGET), Syn);
    let again = resolved(REMOTE.ip).between(Mac::REENTRANCE, HOST.mac);
    w.passes(HOST.port, resolved(REMOTE.ip).between(HOST.mac, next_hop), HOST.port, again);
    w.drops(HOST.port, resolved(OUTSIDE).between(HOST.mac, next_hop));
    let undone = Packet::tcp(at(CLUSTER_IP, 80), A.at(40000), SynAck);
    w.passes(HOST.port, undone.clone().between(HOST.mac, next_hop), A.port, undone.between(HOST.mac, A.mac));
}

#[test]
fn in_policy_only_mode_policies_hold_in_both_directions() {
    let mut w = World::with(|c| {
        policy_only(c);
        isolate(c, Ingress, B);
        isolate(c, Egress, C);
        c.rules = vec![allow(1, Ingress, B).with_peer(A.ip)];
    });
    let syn = |from: super::world::End, to: super::world::End| Packet::tcp(from.at(40000), to.at(80), Syn);
    w.passes(A.port, syn(A, B).between(A.mac, VIRTUAL_MAC), B.port, syn(A, B).between(A.mac, B.mac));
    w.drops(C.port, syn(C, B).between(C.mac, VIRTUAL_MAC));
    w.drops(C.port, syn(C, A).between(C.mac, VIRTUAL_MAC));
    w.drops(HOST.port, Packet::tcp(at(OUTSIDE, 50000), B.at(80), Syn).between(HOST.mac, B.mac));
}

#[test]
fn in_policy_only_mode_antrea_proxy_balances_too() {
    let mut w = World::with(|c| {
        policy_only(c);
        c.node.features = Features { antrea_proxy: true, proxy_all: false, antrea_policy: true };
        c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)]));
    });
    let sent = |packet: Packet| packet.between(A.mac, VIRTUAL_MAC);
    let client = Side { sent, got: |packet| packet.between(B.mac, A.mac), ..pod_a() };
    let server = Side {
        sends_at: B.port,
        gets_at: B.port,
        own: B.at(TARGET),
        other: A.at(40000),
        sent: |packet| packet.between(B.mac, VIRTUAL_MAC),
        got: |packet| packet.between(A.mac, B.mac),
    };
    converse(&mut w, &client, &server);
    // The host routes to an endpoint on another Node.
    w.change(|c| c.services[0].set_endpoints(&[elsewhere(REMOTE.ip)]));
    let remote = Side {
        sends_at: HOST.port,
        gets_at: HOST.port,
        own: REMOTE.at(TARGET),
        other: A.at(40001),
        sent: |packet| packet.between(HOST.mac, VIRTUAL_MAC),
        got: |packet| packet.between(A.mac, HOST.mac),
    };
    converse(&mut w, &Side { own: A.at(40001), got: |packet| packet.between(HOST.mac, A.mac), ..client }, &remote);
}

#[test]
fn without_proxy_all_the_host_balances_its_own_services() {
    let mut w = World::with(|c| {
        c.node.features.proxy_all = false;
        c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)]));
    });
    let server = Side {
        sends_at: B.port,
        gets_at: B.port,
        own: B.at(TARGET),
        other: A.at(40000),
        sent: |packet| packet.between(B.mac, A.mac),
        got: |packet| from_gateway(B, packet),
    };
    converse(&mut w, &pod_a(), &server);
    // kube-proxy has selected B for an external client, to which B must reply through the host.
    let client = Side {
        sends_at: HOST.port,
        gets_at: HOST.port,
        own: at(OUTSIDE, 50000),
        other: B.at(TARGET),
        sent: |packet| packet.between(HOST.mac, B.mac),
        got: |packet| packet.between(B.mac, HOST.mac),
    };
    let server = Side { other: client.own, sent: |packet| to_gateway(B, packet), got: client.sent, ..server };
    converse(&mut w, &client, &server);
}

#[test]
fn without_tiers_denied_connections_stay_denied() {
    for direction in [Egress, Ingress] {
        let mut w = World::with(|c| {
            c.node.features.antrea_policy = false;
            c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)]));
            isolate(c, direction, if direction == Egress { A } else { B });
        });
        let packet = |step| to_gateway(A, Packet::tcp(A.at(40000), at(CLUSTER_IP, 80), step));
        w.drops(A.port, packet(Syn));
        w.send(B.port, Packet::tcp(B.at(TARGET), A.at(40000), SynAck).between(B.mac, A.mac));
        w.drops(A.port, packet(Ack));
        w.drops(A.port, packet(Data));
        let rule = if direction == Egress {
            allow(1, Egress, A).with_peer(B.ip)
        } else {
            allow(1, Ingress, B).with_peer(A.ip)
        };
        w.change(|c| c.rules = vec![rule]);
        let syn = to_gateway(A, Packet::tcp(A.at(40001), at(CLUSTER_IP, 80), Syn));
        w.passes(A.port, syn, B.port, from_gateway(B, Packet::tcp(A.at(40001), B.at(TARGET), Syn)));
    }
}
