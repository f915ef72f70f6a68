//! P39: a connection that a policy has denied stays denied, whatever an accomplice at the other end sends.
//!
//! The destination of a Service's packet is translated, and the connection remembered, before policies are asked. If being
//! remembered were enough to pass them, an answer nobody is waiting for would open the way.

use openflow::field::Field;
use pipeline::model::Direction::{Egress, Ingress};
use pipeline::model::{Direction, Features, Mac, RuleAction, RuleKind};

use super::frame::Packet;
use super::frame::Step::{Ack, Data, Reply, Syn, SynAck};
use super::objects::{Narrowed, TARGET, allow, elsewhere, isolate, local, tiered};
use super::services::{BY_CLUSTER_IP, BY_NODE_PORT, CLUSTER_IP, NODE_PORT};
use super::world::{
    A, B, C, End, HOST, OUTSIDE, REMOTE, VIRTUAL, VIRTUAL_MAC, World, at, from_host, from_tunnel, to_gateway,
};
use crate::cluster::{Cluster, Flows, Service};

/// How a connection from A to B is denied.
type Denial = fn(&mut Cluster);

const DENIALS: [(&str, Denial); 6] = [
    ("egress isolation", |c| isolate(c, Egress, A)),
    ("ingress isolation", |c| isolate(c, Ingress, B)),
    ("a tier's egress rule", |c| c.rules.push(tiered(1, Egress, A, 14000, RuleAction::Drop))),
    ("a tier's ingress rule", |c| c.rules.push(tiered(1, Ingress, B, 14000, RuleAction::Drop))),
    ("the baseline's egress rule", |c| baseline_drop(c, Egress, A)),
    ("the baseline's ingress rule", |c| baseline_drop(c, Ingress, B)),
];

fn baseline_drop(cluster: &mut Cluster, direction: Direction, pod: End) {
    let kind = RuleKind::Baseline { priority: 100, action: RuleAction::Drop };
    cluster.rules.push(pipeline::model::Rule { kind, ..allow(1, direction, pod) });
}

/// The flows as the seed has them: to be remembered is enough. So is a way past the rules of tiers.
fn believe_all_that_is_remembered(flows: &mut Flows) {
    for flow in flows.values_mut() {
        let passes = flow.matches.get(Field::CtState).is_some_and(|(_, mask)| mask & 0x01 != 0);
        if [45, 50, 60, 85, 90, 100].contains(&flow.table) && passes {
            flow.matches.set(Field::CtLabel, 0, 0);
        }
    }
}

/// A tries, B sends an answer that A has not asked for, A tries again: what of A's arrives at B?
fn attack(w: &mut World, tcp: bool) -> Vec<(&'static str, super::frame::Frame)> {
    let (a, service, b) = (A.at(40000), at(CLUSTER_IP, 80), B.at(TARGET));
    let packet = |from, to, step| if tcp { Packet::tcp(from, to, step) } else { Packet::udp(from, to) };
    w.drops(A.port, to_gateway(A, packet(a, service, Syn)));
    for step in [SynAck, Reply] {
        w.send(B.port, packet(b, a, step).between(B.mac, A.mac));
    }
    let mut came = Vec::new();
    for step in [Ack, Data, Data] {
        came.extend(w.send(A.port, to_gateway(A, packet(a, service, step))));
    }
    // And once more without the Service, as the endpoint is known now.
    came.extend(w.send(A.port, packet(a, b, Data).between(A.mac, B.mac)));
    came
}

#[test]
fn an_answer_of_an_accomplice_does_not_open_a_denied_service_connection() {
    for (how, denial) in DENIALS {
        for tcp in [true, false] {
            let mut w = World::with(|c| {
                let service = Service::of(BY_CLUSTER_IP, 80, &[local(B)]);
                c.services.push(if tcp { service } else { service.udp() });
                denial(c);
            });
            assert_eq!(attack(&mut w, tcp), [], "{how}, TCP: {tcp}");
        }
    }
}

#[test]
fn with_the_seeds_flows_an_accomplice_opens_it() {
    for (how, denial) in &DENIALS[..4] {
        for tcp in [true, false] {
            let mut w = World::with(|c| {
                let service = Service::of(BY_CLUSTER_IP, 80, &[local(B)]);
                c.services.push(if tcp { service } else { service.udp() });
                denial(c);
            });
            w.edit(believe_all_that_is_remembered);
            assert_ne!(attack(&mut w, tcp), [], "{how}, TCP: {tcp}");
        }
    }
}

#[test]
fn nor_does_an_accomplice_on_another_node() {
    for (how, denial) in DENIALS.into_iter().step_by(2) {
        for tcp in [true, false] {
            let mut w = World::with(|c| {
                let service = Service::of(BY_CLUSTER_IP, 80, &[elsewhere(REMOTE.ip)]);
                c.services.push(if tcp { service } else { service.udp() });
                denial(c);
            });
            let (a, service, r) = (A.at(40000), at(CLUSTER_IP, 80), REMOTE.at(TARGET));
            let packet = |from, to, step| if tcp { Packet::tcp(from, to, step) } else { Packet::udp(from, to) };
            w.drops(A.port, to_gateway(A, packet(a, service, Syn)));
            w.send(REMOTE.port, from_tunnel(packet(r, a, SynAck)));
            for step in [Ack, Data] {
                let came = w.send(A.port, to_gateway(A, packet(a, service, step)));
                assert_eq!(came, [], "{how}, TCP: {tcp}");
            }
        }
    }
}

#[test]
fn nor_do_pods_open_the_way_in_for_a_client_outside() {
    for tcp in [true, false] {
        let mut w = World::with(|c| {
            let service = Service::of(BY_NODE_PORT, NODE_PORT, &[local(B)]);
            c.services.push(if tcp { service } else { service.udp() });
            isolate(c, Ingress, B);
        });
        let (client, b) = (at(OUTSIDE, 50000), B.at(TARGET));
        let packet = |from, to, step| if tcp { Packet::tcp(from, to, step) } else { Packet::udp(from, to) };
        let sent = |step| from_host(packet(client, at(VIRTUAL, NODE_PORT), step));
        w.drops(HOST.port, sent(Syn));
        w.send(B.port, to_gateway(B, packet(b, client, SynAck)));
        for step in [Ack, Data] {
            w.drops(HOST.port, sent(step));
        }
    }
}

/// Where a Pod can send its frames, whatever is in them.
const DETOURS: [(&str, Mac); 4] =
    [("the gateway", HOST.mac), ("the tunnel", VIRTUAL_MAC), ("another Pod", C.mac), ("nobody", Mac([2; 6]))];

#[test]
fn a_detour_does_not_spare_a_connection_the_policies_of_its_destination() {
    let kube_proxy = Features { antrea_proxy: false, proxy_all: false, antrea_policy: true };
    for ((detour, mac), features) in DETOURS.into_iter().flat_map(|d| [(d, Features::default()), (d, kube_proxy)]) {
        for tcp in [true, false] {
            let mut w = World::with(|c| {
                c.node.features = features;
                isolate(c, Ingress, B);
                isolate(c, Egress, B);
            });
            let packet = |from, to, step| if tcp { Packet::tcp(from, to, step) } else { Packet::udp(from, to) };
            let (a, b) = (A.at(40000), B.at(80));
            w.send(A.port, packet(a, b, Syn).between(A.mac, mac));
            // B would like to be reached, and answers.
            w.send(B.port, packet(b, a, SynAck).between(B.mac, A.mac));
            for step in [Ack, Data] {
                let came = w.send(A.port, packet(a, b, step).between(A.mac, B.mac));
                assert_eq!(came, [], "through {detour}, TCP: {tcp}");
            }
        }
    }
}

#[test]
fn a_packet_leaves_for_its_destination_only_whatever_mac_it_is_sent_to() {
    let mut w = World::with(|c| {
        isolate(c, Egress, A);
        c.rules = vec![allow(1, Egress, A).with_peer(OUTSIDE)];
    });
    // A may talk to the world outside, but not to B, which would listen.
    let packet = Packet::udp(A.at(40000), at(OUTSIDE, 53));
    for (_, mac) in DETOURS.into_iter().chain([("B", B.mac)]) {
        w.passes(A.port, packet.clone().between(A.mac, mac), HOST.port, to_gateway(A, packet.clone()));
    }
}
