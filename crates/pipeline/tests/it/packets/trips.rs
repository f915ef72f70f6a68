//! Recirculations per packet: the userspace datapath drops a packet that recirculates too often.

use super::frame::Packet;
use super::frame::Step::Syn;
use super::objects::{elsewhere, local};
use super::services::{BY_CLUSTER_IP, BY_NODE_PORT, CLUSTER_IP, NODE_PORT};
use super::world::{A, B, HOST, OUTSIDE, REMOTE, VIRTUAL, World, at, from_host, to_gateway};
use crate::cluster::Service;

/// The number of recirculations until the packet is output.
fn trips(w: &mut World, port: &str, packet: Packet) -> usize {
    let before = w.switch.recirculations();
    let came = w.send(port, packet);
    assert_eq!(came.len(), 1, "{came:?}");
    w.switch.recirculations() - before
}

#[test]
fn a_first_packet_recirculates_only_for_conntrack_nat_and_groups_r13() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)])));
    let direct = Packet::tcp(A.at(40000), B.at(80), Syn).between(A.mac, B.mac);
    // Conntrack lookup; the commit needs none.
    assert_eq!(trips(&mut w, A.port, direct), 1);
    // Conntrack lookup, group hash, DNAT.
    assert_eq!(trips(&mut w, A.port, to_gateway(A, Packet::tcp(A.at(40001), at(CLUSTER_IP, 80), Syn))), 3);
    assert_eq!(trips(&mut w, HOST.port, from_host(Packet::tcp(HOST.at(40002), at(CLUSTER_IP, 80), Syn))), 3);
    // The longest path: lookup in the SNAT zone first, and SNAT at the end.
    w.change(|c| c.services[0] = Service::of(BY_NODE_PORT, NODE_PORT, &[elsewhere(REMOTE.ip)]).with_affinity(600));
    let outside = || from_host(Packet::tcp(at(OUTSIDE, 50000), at(VIRTUAL, NODE_PORT), Syn));
    assert_eq!(trips(&mut w, HOST.port, outside()), 5);
    assert_eq!(trips(&mut w, HOST.port, outside()), 3, "once more, before there is an answer");
}
