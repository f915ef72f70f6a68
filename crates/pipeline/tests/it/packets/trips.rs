//! How often a packet goes through the datapath: in userspace it is dropped when it comes around for the seventh time.

use super::frame::Packet;
use super::frame::Step::Syn;
use super::objects::{elsewhere, local};
use super::services::{BY_CLUSTER_IP, BY_NODE_PORT, CLUSTER_IP, NODE_PORT};
use super::world::{A, B, HOST, OUTSIDE, REMOTE, VIRTUAL, World, at, from_host, to_gateway};
use crate::cluster::Service;

/// How often the packet comes around until it leaves.
fn trips(w: &mut World, port: &str, packet: Packet) -> usize {
    let before = w.switch.recirculations();
    let came = w.send(port, packet);
    assert_eq!(came.len(), 1, "{came:?}");
    w.switch.recirculations() - before
}

#[test]
fn a_first_packet_comes_around_no_more_often_than_it_is_tracked_translated_and_balanced_r13() {
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)])));
    let direct = Packet::tcp(A.at(40000), B.at(80), Syn).between(A.mac, B.mac);
    // Tracked; then it is remembered on the way out.
    assert_eq!(trips(&mut w, A.port, direct), 1);
    // Tracked, hashed, translated.
    assert_eq!(trips(&mut w, A.port, to_gateway(A, Packet::tcp(A.at(40001), at(CLUSTER_IP, 80), Syn))), 3);
    assert_eq!(trips(&mut w, HOST.port, from_host(Packet::tcp(HOST.at(40002), at(CLUSTER_IP, 80), Syn))), 3);
    // The longest way: its source may be one that was translated, and is translated in the end.
    w.change(|c| c.services[0] = Service::of(BY_NODE_PORT, NODE_PORT, &[elsewhere(REMOTE.ip)]).with_affinity(600));
    let outside = || from_host(Packet::tcp(at(OUTSIDE, 50000), at(VIRTUAL, NODE_PORT), Syn));
    assert_eq!(trips(&mut w, HOST.port, outside()), 5);
    assert_eq!(trips(&mut w, HOST.port, outside()), 3, "once more, before there is an answer");
}
