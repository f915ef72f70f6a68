//! The main paths with IPv6.

use std::net::{IpAddr, Ipv6Addr};

use openflow::packet::PacketIn2;
use openflow::port::Port;
use pipeline::model::Direction::{Egress, Ingress};
use pipeline::model::{FrontendKind, Protocol, RuleAction};

use super::frame::Packet;
use super::frame::Step::{Ack, Data, Syn, SynAck};
use super::objects::{Narrowed, TARGET, allow, elsewhere, isolate, local6, tiered};
use super::services::{NODE_PORT, Side, ask, converse};
use super::world::{
    A, B, C, HAIRPIN6, HOST, NODE6, OUTSIDE6, PEER_MAC, REMOTE, SNAT6, TO_NODE_2, VIRTUAL_MAC, VIRTUAL6, World, at,
    from_gateway, from_host, from_tunnel, to_gateway, tunnelled,
};
use crate::cluster::Service;

const CLUSTER_IP6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 0x10));
const BY_CLUSTER_IP6: FrontendKind = FrontendKind::ClusterIp(CLUSTER_IP6);
const BY_NODE_PORT6: FrontendKind = FrontendKind::NodePort { ipv6: true };

fn pod_a() -> Side {
    Side {
        sends_at: A.port,
        gets_at: A.port,
        own: A.at6(40000),
        other: at(CLUSTER_IP6, 80),
        sent: |packet| to_gateway(A, packet),
        got: |packet| from_gateway(A, packet),
    }
}

fn pod_b() -> Side {
    Side {
        sends_at: B.port,
        gets_at: B.port,
        own: B.at6(TARGET),
        other: A.at6(40000),
        sent: |packet| packet.between(B.mac, A.mac),
        got: |packet| from_gateway(B, packet),
    }
}

fn client_outside() -> Side {
    Side {
        sends_at: HOST.port,
        gets_at: HOST.port,
        own: at(OUTSIDE6, 50000),
        other: at(VIRTUAL6, NODE_PORT),
        sent: from_host,
        got: |packet| packet.between(B.mac, HOST.mac).routed(1),
    }
}

fn remote() -> Side {
    Side {
        sends_at: REMOTE.port,
        gets_at: TO_NODE_2,
        own: REMOTE.at6(TARGET),
        other: A.at6(40000),
        sent: from_tunnel,
        got: tunnelled,
    }
}

#[test]
fn pods_communicate_on_one_node_across_nodes_and_with_external_addresses() {
    let mut w = World::new();
    let syn = Packet::tcp(A.at6(40000), B.at6(80), Syn).between(A.mac, B.mac);
    w.passes(A.port, syn.clone(), B.port, syn);
    let answer = Packet::tcp(B.at6(80), A.at6(40000), SynAck).between(B.mac, A.mac);
    w.passes(B.port, answer.clone(), A.port, answer);
    let ping = Packet::ping(A.ip6, B.ip6, 7).between(A.mac, B.mac);
    w.passes(A.port, ping.clone(), B.port, ping);
    let there = Packet::tcp(A.at6(40000), REMOTE.at6(80), Syn);
    w.passes(A.port, to_gateway(A, there.clone()), TO_NODE_2, tunnelled(there));
    let back = from_tunnel(Packet::tcp(REMOTE.at6(80), A.at6(40000), SynAck));
    w.passes(REMOTE.port, back.clone(), A.port, from_gateway(A, back));
    let out = to_gateway(A, Packet::udp(A.at6(40000), at(OUTSIDE6, 53)));
    w.passes(A.port, out.clone(), HOST.port, out);
}

#[test]
fn services_are_reached_by_cluster_ip_from_pods_and_the_host() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP6, 80, &[local6(B)])));
    converse(&mut w, &pod_a(), &pod_b());
    let host = Side {
        own: HOST.at6(41000),
        other: at(CLUSTER_IP6, 80),
        got: |packet| packet.between(B.mac, HOST.mac),
        ..client_outside()
    };
    let server = Side {
        other: HOST.at6(41000),
        sent: |packet| to_gateway(B, packet),
        got: |packet| packet.between(HOST.mac, B.mac),
        ..pod_b()
    };
    converse(&mut w, &host, &server);
    w.change(|c| c.services[0] = Service::of(BY_CLUSTER_IP6, 80, &[elsewhere(REMOTE.ip6)]).udp());
    ask(&mut w, &Side { got: |packet| from_gateway(A, packet).routed(1), ..pod_a() }, &remote());
}

#[test]
fn services_are_reached_by_node_port_from_outside_with_both_policies() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_NODE_PORT6, NODE_PORT, &[local6(B)])));
    let got: fn(Packet) -> Packet = |packet| packet.between(HOST.mac, B.mac);
    let sent: fn(Packet) -> Packet = |packet| packet.between(B.mac, VIRTUAL_MAC);
    converse(&mut w, &client_outside(), &Side { other: at(SNAT6, 50000), sent, got, ..pod_b() });

    let own = at(OUTSIDE6, 50001);
    w.change(|c| c.services[0] = Service::of(BY_NODE_PORT6, NODE_PORT, &[local6(B)]).local_only(&[local6(B)]));
    let sent: fn(Packet) -> Packet = |packet| to_gateway(B, packet);
    converse(&mut w, &Side { own, ..client_outside() }, &Side { other: own, sent, got, ..pod_b() });

    let own = at(OUTSIDE6, 50002);
    w.change(|c| c.services[0] = Service::of(BY_NODE_PORT6, NODE_PORT, &[elsewhere(REMOTE.ip6)]));
    let client = Side { own, got: |packet| packet.between(PEER_MAC, HOST.mac).routed(2), ..client_outside() };
    let got: fn(Packet) -> Packet = |packet| packet.between(HOST.mac, VIRTUAL_MAC);
    converse(&mut w, &client, &Side { other: at(SNAT6, 50002), got, ..remote() });

    let own = at(OUTSIDE6, 50003);
    w.change(|c| c.services[0] = Service::of(BY_NODE_PORT6, NODE_PORT, &[elsewhere(NODE6)]));
    let client = Side { own, got: |packet| packet.between(HOST.mac, HOST.mac), ..client_outside() };
    converse(&mut w, &client, &Side { own: at(NODE6, TARGET), other: at(VIRTUAL6, 50003), ..client });
}

#[test]
fn a_pod_reaches_itself_through_a_service() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP6, 80, &[local6(A)])));
    converse(&mut w, &pod_a(), &Side { own: A.at6(TARGET), other: at(HAIRPIN6, 40000), ..pod_a() });
}

#[test]
fn a_client_keeps_its_endpoint() {
    let endpoints = [local6(B), local6(C), elsewhere(REMOTE.ip6)];
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP6, 80, &endpoints).with_affinity(300)));
    let mut chosen = Vec::new();
    for port in 40000..40010 {
        let came = w.send(A.port, to_gateway(A, Packet::tcp(A.at6(port), at(CLUSTER_IP6, 80), Syn)));
        w.switch.settle();
        chosen.extend(came.into_iter().map(|(port, _)| port));
    }
    assert_eq!(chosen.len(), 10);
    chosen.dedup();
    assert_eq!(chosen.len(), 1, "{chosen:?}");
}

#[test]
fn policies_allow_and_deny_in_both_directions() {
    let mut w = World::with(|c| {
        isolate(c, Ingress, B);
        isolate(c, Egress, A);
        c.rules = vec![
            allow(1, Ingress, B).with_block("fd00:10::/64", &["fd00:10::13/128"]).to_ports(Protocol::Tcp, 80, 83),
            allow(2, Egress, A).with_peer(B.ip6),
        ];
    });
    let syn = |from: super::world::End, to: super::world::End, port| {
        Packet::tcp(from.at6(40000), to.at6(port), Syn).between(from.mac, to.mac)
    };
    w.passes(A.port, syn(A, B, 80), B.port, syn(A, B, 80));
    w.passes(A.port, syn(A, B, 83), B.port, syn(A, B, 83));
    w.drops(A.port, syn(A, B, 84));
    w.drops(A.port, syn(A, C, 80));
    w.drops(C.port, syn(C, B, 80));
    // IPv6 rules do not affect IPv4.
    w.drops(A.port, Packet::tcp(A.at(40000), B.at(80), Syn).between(A.mac, B.mac));
    let probe = Packet::tcp(HOST.at6(40000), B.at6(9), Syn).between(HOST.mac, B.mac);
    w.probes(probe, B);
}

#[test]
fn a_denied_service_connection_stays_denied_p39() {
    for tcp in [true, false] {
        let mut w = World::with(|c| {
            let service = Service::of(BY_CLUSTER_IP6, 80, &[local6(B)]);
            c.services.push(if tcp { service } else { service.udp() });
            c.rules = vec![tiered(1, Egress, A, 14000, RuleAction::Drop)];
        });
        let packet = |from, to, step| if tcp { Packet::tcp(from, to, step) } else { Packet::udp(from, to) };
        let sent = |step| to_gateway(A, packet(A.at6(40000), at(CLUSTER_IP6, 80), step));
        w.drops(A.port, sent(Syn));
        w.send(B.port, packet(B.at6(TARGET), A.at6(40000), SynAck).between(B.mac, A.mac));
        for step in [Ack, Data] {
            w.drops(A.port, sent(step));
        }
    }
}

#[test]
fn a_service_without_endpoints_goes_to_the_agent() {
    let mut w = World::with(|c| {
        let mut service = Service::of(BY_CLUSTER_IP6, 80, &[]);
        service.frontends[0].group = None;
        c.services.push(service);
    });
    w.drops(A.port, to_gateway(A, Packet::tcp(A.at6(40000), at(CLUSTER_IP6, 80), Syn)));
    let asked = w.switch.client.packet_ins();
    assert_eq!(asked.iter().map(PacketIn2::in_port).collect::<Vec<_>>(), [Some(Port(3))]);
}
