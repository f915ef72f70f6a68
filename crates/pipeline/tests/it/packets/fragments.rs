//! IP fragments. The tracker of the userspace datapath reassembles them and forwards the fragments with the state of the whole
//! packet. Flows see no ports in any of them: a connection that begins with fragments matches no Service, and no rule with
//! ports. The kernel's forwards the whole packet, and fragments it again at the output port.

use std::net::{IpAddr, SocketAddr};

use openflow::matching::eth_type;
use pipeline::model::Direction::Ingress;
use pipeline::model::{Mac, Protocol};
use testkit::ovs::in_kernel;

use super::frame::{self, Packet};
use super::objects::{Narrowed, TARGET, allow, isolate, local};
use super::services::{BY_CLUSTER_IP, CLUSTER_IP};
use super::world::{A, B, C, End, HOST, World, at, from_gateway, to_gateway};
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
