//! SCTP. The userspace datapath tracks it by addresses alone: ports are neither tracked nor translated. The kernel's tracks
//! and translates them.

use openflow::flow::Flow;
use pipeline::model::Direction::Ingress;
use pipeline::model::{Endpoint, Protocol};
use testkit::ovs::in_kernel;

use super::frame::Packet;
use super::objects::{Narrowed, TARGET, allow, isolate, local};
use super::services::{BY_CLUSTER_IP, CLUSTER_IP};
use super::world::{A, B, C, World, at, from_gateway, to_gateway};
use crate::client::add;
use crate::cluster::Service;

#[test]
fn rules_match_sctp_ports_r14() {
    let mut w = World::with(|c| {
        isolate(c, Ingress, B);
        c.rules = vec![
            allow(1, Ingress, B).with_peer(A.ip).to_ports(Protocol::Sctp, 80, 80),
            allow(2, Ingress, B).with_peer(C.ip).to_ports(Protocol::Tcp, 80, 80),
        ];
    });
    let packet = |from: super::world::End, port| Packet::sctp(from.at(40000), B.at(port)).between(from.mac, B.mac);
    w.drops(A.port, packet(A, 81));
    w.passes(A.port, packet(A, 80), B.port, packet(A, 80));
    w.drops(C.port, packet(C, 80));
    let answer = Packet::sctp(B.at(80), A.at(40000)).between(B.mac, A.mac);
    w.passes(B.port, answer.clone(), A.port, answer);
    w.passes(A.port, packet(A, 80), B.port, packet(A, 80));
    if in_kernel() {
        return;
    }
    // To the tracker it is the same, established connection.
    w.drops(A.port, packet(A, 81));
    let bypass: Flow = "table=85,priority=64990,ct_state=-new+est,ct_label=0x80000000000000000000000000000000/\
        0x80000000000000000000000000000000,ip actions=resubmit(,101)"
        .parse()
        .unwrap();
    w.switch.change(&[add(&bypass)]);
    w.passes(A.port, packet(A, 81), B.port, packet(A, 81));
}

#[test]
fn an_sctp_service_forwards_to_an_endpoint() {
    let target = if in_kernel() { TARGET } else { 80 };
    let endpoint = Endpoint { port: target, ..local(B) };
    let mut w = World::with(|c| {
        let mut service = Service::of(BY_CLUSTER_IP, 80, &[endpoint]);
        service.protocol = Protocol::Sctp;
        service.frontends[0].protocol = Protocol::Sctp;
        c.services.push(service);
    });
    for _ in 0..2 {
        let (sent, got) = (Packet::sctp(A.at(40000), at(CLUSTER_IP, 80)), Packet::sctp(A.at(40000), B.at(target)));
        w.passes(A.port, to_gateway(A, sent), B.port, from_gateway(B, got));
        let (sent, got) = (Packet::sctp(B.at(target), A.at(40000)), Packet::sctp(at(CLUSTER_IP, 80), A.at(40000)));
        w.passes(B.port, sent.between(B.mac, A.mac), A.port, from_gateway(A, got));
    }
}
