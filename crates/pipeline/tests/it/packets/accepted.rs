//! P39: a connection that a policy has denied stays denied, whatever an accomplice at the other end sends.
//!
//! A connection to a Service is DNATed and committed before policies are evaluated. If every established connection
//! bypassed policies, an unsolicited reply would open it.

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

/// The reference flows: every established connection bypasses Kubernetes rules and tiers.
fn believe_all_that_is_remembered(flows: &mut Flows) {
    for flow in flows.values_mut() {
        let passes = flow.matches.get(Field::CtState).is_some_and(|(_, mask)| mask & 0x01 != 0);
        if [45, 50, 60, 85, 90, 100].contains(&flow.table) && passes {
            flow.matches.set(Field::CtLabel, 0, 0);
        }
    }
}

/// A tries, B sends an unsolicited reply, A tries again: returns A's packets that arrive at B.
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
    // Again without the Service, directly to the endpoint.
    came.extend(w.send(A.port, packet(a, b, Data).between(A.mac, B.mac)));
    came
}

#[test]
fn an_unsolicited_reply_does_not_open_a_denied_service_connection() {
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
fn with_the_reference_flows_an_unsolicited_reply_opens_it() {
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
fn an_unsolicited_reply_from_another_node_does_not_open_it() {
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
fn an_unsolicited_reply_does_not_open_it_for_an_external_client() {
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

/// Destination MACs that a Pod can choose, whatever the IP destination.
const DETOURS: [(&str, Mac); 4] =
    [("the gateway", HOST.mac), ("the tunnel", VIRTUAL_MAC), ("another Pod", C.mac), ("an unknown MAC", Mac([2; 6]))];

#[test]
fn a_connection_through_the_host_does_not_bypass_ingress_policies() {
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
            // B cooperates, and replies.
            w.send(B.port, packet(b, a, SynAck).between(B.mac, A.mac));
            for step in [Ack, Data] {
                let came = w.send(A.port, packet(a, b, step).between(A.mac, B.mac));
                assert_eq!(came, [], "through {detour}, TCP: {tcp}");
            }
        }
    }
}

#[test]
fn a_packet_is_forwarded_by_ip_address_whatever_its_mac() {
    let mut w = World::with(|c| {
        isolate(c, Egress, A);
        c.rules = vec![allow(1, Egress, A).with_peer(OUTSIDE)];
    });
    // A may connect to external addresses, but not to B, which cooperates.
    let packet = Packet::udp(A.at(40000), at(OUTSIDE, 53));
    for (_, mac) in DETOURS.into_iter().chain([("B", B.mac)]) {
        w.passes(A.port, packet.clone().between(A.mac, mac), HOST.port, to_gateway(A, packet.clone()));
    }
}

#[test]
fn packets_to_unassigned_pod_addresses_are_dropped() {
    let free = End { ip: [10, 10, 0, 77].into(), mac: Mac([0x0a, 0, 0, 0, 0, 0x77]), ..B };
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(free)])));
    let to = |end: End, step| Packet::tcp(A.at(40000), end.at(TARGET), step);
    for mac in [free.mac, VIRTUAL_MAC, HOST.mac] {
        for step in [Syn, Data] {
            w.drops(A.port, to(free, step).between(A.mac, mac));
        }
        w.drops(A.port, Packet::udp(A.at(40000), free.at(TARGET)).between(A.mac, mac));
    }
    w.drops(A.port, to_gateway(A, Packet::tcp(A.at(40001), at(CLUSTER_IP, 80), Syn)));
    w.drops(HOST.port, from_host(Packet::udp(HOST.at(40000), free.at(TARGET))));
    // The gateway's own address is the host's.
    let to_host = to_gateway(A, Packet::udp(A.at(40000), HOST.at(53)));
    w.passes(A.port, to_host.clone(), HOST.port, to_host);
}
