//! IP fragments. The tracker of the userspace datapath reassembles them and forwards the fragments with the state of the whole
//! packet. Flows see no ports in any of them: a connection that begins with fragments matches no rule with ports, and Services
//! have flows for it. The kernel's forwards the whole packet, and fragments it again at the output port.

use std::net::{IpAddr, SocketAddr};

use openflow::matching::eth_type;
use pipeline::model::Direction::{Egress, Ingress};
use pipeline::model::{FrontendKind, Mac, Protocol};
use testkit::ovs::in_kernel;

use super::frame::{self, Packet};
use super::objects::{Narrowed, TARGET, allow, elsewhere, isolate, local};
use super::services::{BY_CLUSTER_IP, BY_EXTERNAL_IP, BY_NODE_PORT, CLUSTER_IP, EXTERNAL_IP, NODE_PORT};
use super::world::{
    A, B, C, End, HOST, OUTSIDE, REMOTE, SNAT, TO_NODE_2, VIRTUAL, VIRTUAL_MAC, World, at, from_gateway, to_gateway,
};
use crate::cluster::Service;

/// Where the datagram is split: only the last fragment may be smaller than 1200 bytes.
const CUT: usize = 1400;

/// A large UDP datagram without a checksum, in two fragments.
pub(super) fn parts(from_mac: Mac, to_mac: Mac, src: SocketAddr, dst: SocketAddr, ttl: u8) -> Vec<Vec<u8>> {
    let length = 2000u16;
    let mut datagram = [src.port(), dst.port(), length, 0].map(u16::to_be_bytes).concat();
    datagram.extend((8..length).map(|at| at.to_be_bytes()[1]));
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (src.ip(), dst.ip()) else { panic!("IPv4 only") };
    let part = |offset: usize, body: &[u8], more: bool| {
        let total = u16::try_from(20 + body.len()).unwrap();
        let place = u16::try_from(offset / 8).unwrap() | if more { 0x2000 } else { 0 };
        let mut header = [[0x45, 0], total.to_be_bytes(), [0, 7], place.to_be_bytes(), [ttl, 17], [0, 0]].concat();
        header.extend([src.octets(), dst.octets()].concat());
        let sum = frame::checksum(&[&header]).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
        header.extend(body);
        frame::frame(from_mac, to_mac, eth_type::IPV4, header)
    };
    vec![part(0, &datagram[..CUT], true), part(CUT, &datagram[CUT..], false)]
}

/// The output port of a fragmented datagram, which must arrive complete and as expected.
#[track_caller]
pub(super) fn passes(w: &mut World, port: &str, sent: &[Vec<u8>], to: &'static str, got: Vec<Vec<u8>>) {
    let came = w.switch.send_parts(port, sent);
    let expected: Vec<_> = got.into_iter().map(|part| (to, part)).collect();
    // Without the bytes, to keep the message short.
    assert!(came == expected, "{} parts came out of {:?}", came.len(), came.first().map(|(port, _)| port));
}

#[test]
fn a_connection_that_begins_with_fragments_is_matched_by_addresses() {
    let mut w = World::with(|c| isolate(c, Ingress, B));
    let there = |from: End, to: End| parts(from.mac, to.mac, from.at(40000), to.at(53), 64);
    passes(&mut w, A.port, &there(A, C), C.port, there(A, C));
    assert!(w.switch.send_parts(A.port, &there(A, B)).is_empty());
    w.change(|c| c.rules = vec![allow(1, Ingress, B).to_ports(Protocol::Udp, 53, 53)]);
    if in_kernel() {
        passes(&mut w, A.port, &there(A, B), B.port, there(A, B));
    } else {
        assert!(w.switch.send_parts(A.port, &there(A, B)).is_empty());
    }
    w.change(|c| c.rules.push(allow(2, Ingress, B).with_peer(A.ip)));
    passes(&mut w, A.port, &there(A, B), B.port, there(A, B));
}

#[test]
fn fragments_of_a_known_connection_are_translated() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 53, &[local(B)]).udp()));
    let (a, b, service) = (A.at(40000), B.at(TARGET), at(CLUSTER_IP, 53));
    let small = |from, to| Packet::udp(from, to);
    w.passes(A.port, to_gateway(A, small(a, service)), B.port, from_gateway(B, small(a, b)));
    w.passes(B.port, small(b, a).between(B.mac, A.mac), A.port, from_gateway(A, small(service, a)));
    let asked = parts(A.mac, HOST.mac, a, service, 64);
    passes(&mut w, A.port, &asked, B.port, parts(HOST.mac, B.mac, a, b, 63));
    let answer = parts(B.mac, A.mac, b, a, 64);
    passes(&mut w, B.port, &answer, A.port, parts(HOST.mac, A.mac, service, a, 63));
}

/// UDP Services at port 53 with endpoint B, and at port 54 of the same address with endpoint C.
fn two_ports(kind: FrontendKind) -> [Service; 2] {
    [(1, 53, B), (2, 54, C)].map(|(id, port, endpoint)| {
        let mut service = Service::of(kind, port, &[local(endpoint)]).udp();
        (service.groups[0].id, service.frontends[0].group) = (id, Some(id));
        service
    })
}

#[test]
fn a_connection_that_begins_with_fragments_reaches_the_port_of_a_service() {
    let mut w = World::with(|c| c.services.extend(two_ports(BY_CLUSTER_IP)));
    for (port, endpoint) in [(53, B), (54, C)] {
        let (a, b, service) = (A.at(40000), endpoint.at(TARGET), at(CLUSTER_IP, port));
        let sent = parts(A.mac, HOST.mac, a, service, 64);
        let got = parts(HOST.mac, endpoint.mac, a, b, 63);
        passes(&mut w, A.port, &sent, endpoint.port, got.clone());
        // Once more, before there is an answer.
        passes(&mut w, A.port, &sent, endpoint.port, got);
        let answer = parts(endpoint.mac, A.mac, b, a, 64);
        passes(&mut w, endpoint.port, &answer, A.port, parts(HOST.mac, A.mac, service, a, 63));
        // Small datagrams of the same connection.
        w.passes(
            A.port,
            to_gateway(A, Packet::udp(a, service)),
            endpoint.port,
            from_gateway(endpoint, Packet::udp(a, b)),
        );
    }
    // The last fragment first.
    let (a, service) = (A.at(40001), at(CLUSTER_IP, 54));
    let sent: Vec<_> = parts(A.mac, HOST.mac, a, service, 64).into_iter().rev().collect();
    passes(&mut w, A.port, &sent, C.port, parts(HOST.mac, C.mac, a, C.at(TARGET), 63));
    // A port without a Service: to the host, which knows the address.
    let other = parts(A.mac, HOST.mac, a, at(CLUSTER_IP, 55), 64);
    passes(&mut w, A.port, &other, HOST.port, other.clone());
}

#[test]
fn fragments_from_outside_reach_services_with_snat() {
    for (kind, address, port) in [(BY_NODE_PORT, VIRTUAL, NODE_PORT), (BY_EXTERNAL_IP, EXTERNAL_IP, 53)] {
        for (endpoint, to, mac) in [(local(B), B.port, B.mac), (elsewhere(REMOTE.ip), TO_NODE_2, VIRTUAL_MAC)] {
            let mut w = World::with(|c| c.services.push(Service::of(kind, port, &[endpoint]).udp()));
            let (client, service) = (at(OUTSIDE, 50000), at(address, port));
            let (snat, target) = (at(SNAT, 50000), at(endpoint.address, TARGET));
            let sent = parts(HOST.mac, VIRTUAL_MAC, client, service, 64);
            passes(&mut w, HOST.port, &sent, to, parts(HOST.mac, mac, snat, target, 64));
            if to == B.port {
                let answer = parts(B.mac, HOST.mac, target, snat, 64);
                passes(&mut w, B.port, &answer, HOST.port, parts(B.mac, HOST.mac, service, client, 63));
            }
        }
    }
}

/// Asserts that all fragments are dropped, and none waits for the rest of its packet: the tracker would forward it later, to any
/// port.
#[track_caller]
fn discards(w: &mut World, port: &str, sent: &[Vec<u8>]) {
    // Earlier tests may have left fragments in the switch. The kernel keeps none here.
    let waiting = |w: &World| -> u32 {
        let status = w.switch.ovs.control("dpctl/ipf-get-status", &[]).unwrap_or_default();
        status.lines().find_map(|line| line.trim().strip_prefix("num frag: ")).map_or(0, |n| n.parse().unwrap())
    };
    let before = waiting(w);
    assert!(w.switch.send_parts(port, sent).is_empty());
    assert!(waiting(w) <= before);
}

#[test]
fn fragments_that_are_refused_or_denied_are_not_kept() {
    let mut w = World::with(|c| {
        c.services.extend(two_ports(BY_CLUSTER_IP));
        c.services[0].frontends[0].group = None;
        isolate(c, Ingress, C);
        isolate(c, Egress, B);
    });
    for (from, port) in [(A, 53), (A, 54), (B, 55)] {
        let sent = parts(from.mac, HOST.mac, from.at(40000), at(CLUSTER_IP, port), 64);
        discards(&mut w, from.port, &sent);
    }
}

#[test]
fn fragments_of_clients_outside_of_the_source_ranges_are_dropped() {
    let mut w = World::with(|c| {
        let mut service = Service::of(BY_EXTERNAL_IP, 53, &[local(B)]).udp();
        service.frontends[0].frontend.clients = Some(["192.0.2.0/24".parse().unwrap()].into());
        c.services.push(service);
    });
    let sent = |client| parts(HOST.mac, VIRTUAL_MAC, client, at(EXTERNAL_IP, 53), 64);
    discards(&mut w, HOST.port, &sent(at(OUTSIDE, 50000)));
    let admitted = at("192.0.2.7".parse().unwrap(), 50000);
    let got = parts(HOST.mac, B.mac, at(SNAT, 50000), B.at(TARGET), 64);
    passes(&mut w, HOST.port, &sent(admitted), B.port, got);
}
