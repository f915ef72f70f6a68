//! Services: clients in different places, and the addresses that endpoint and client see.

mod affinity;
mod clients;
mod cluster_ip;
mod external;
mod hairpin;
mod reuse;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use pipeline::model::FrontendKind;

use super::frame::Packet;
use super::frame::Step::{Ack, Data, Reply, Syn, SynAck};
use super::world::World;

pub(super) const CLUSTER_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
pub(super) const EXTERNAL_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));
pub(super) const NODE_PORT: u16 = 30080;
pub(super) const BY_CLUSTER_IP: FrontendKind = FrontendKind::ClusterIp(CLUSTER_IP);
pub(super) const BY_EXTERNAL_IP: FrontendKind = FrontendKind::External(EXTERNAL_IP);
pub(super) const BY_NODE_PORT: FrontendKind = FrontendKind::NodePort { ipv6: false };

/// One side of a conversation through the Node: its addresses, and its frames at its port.
pub(super) struct Side {
    /// Input port of its frames.
    pub(super) sends_at: &'static str,
    /// Output port of frames for it.
    pub(super) gets_at: &'static str,
    /// Its own address and that of the other side, as it sees them.
    pub(super) own: SocketAddr,
    pub(super) other: SocketAddr,
    /// Its frames on input, and frames for it on output.
    pub(super) sent: fn(Packet) -> Packet,
    pub(super) got: fn(Packet) -> Packet,
}

/// A whole TCP conversation: every packet is output once, at the expected port, with the expected addresses.
#[track_caller]
pub(super) fn converse(w: &mut World, client: &Side, server: &Side) {
    for (step, by_client) in [(Syn, true), (SynAck, false), (Ack, true), (Data, true), (Reply, false), (Data, true)] {
        let (from, to) = if by_client { (client, server) } else { (server, client) };
        let sent = (from.sent)(Packet::tcp(from.own, from.other, step));
        let got = (to.got)(Packet::tcp(to.other, to.own, step));
        w.passes(from.sends_at, sent, to.gets_at, got);
    }
}

/// The same with UDP: a retransmitted request, and the reply.
#[track_caller]
pub(super) fn ask(w: &mut World, client: &Side, server: &Side) {
    for by_client in [true, true, false, true] {
        let (from, to) = if by_client { (client, server) } else { (server, client) };
        let sent = (from.sent)(Packet::udp(from.own, from.other));
        let got = (to.got)(Packet::udp(to.other, to.own));
        w.passes(from.sends_at, sent, to.gets_at, got);
    }
}
