//! Ethernet frames as values: built by hand, and read with every checksum verified.

mod read;
mod write;

pub(super) use testkit::frames::checksum;
pub(super) use write::frame;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use pipeline::model::{Mac, Protocol};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    Ip(Packet),
    Arp(Arp),
    Nd(Nd),
}

/// An IP packet in its frame.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) from_mac: Mac,
    pub(super) to_mac: Mac,
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) ttl: u8,
    pub(super) payload: Payload,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Payload {
    Tcp {
        src: u16,
        dst: u16,
        step: Step,
    },
    Udp {
        src: u16,
        dst: u16,
    },
    Sctp {
        src: u16,
        dst: u16,
    },
    Echo {
        reply: bool,
        id: u16,
    },
    /// ICMP "port unreachable", with a copy of the beginning of the packet.
    Unreachable(About),
}

/// The packet in an ICMP error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct About {
    pub(super) protocol: Protocol,
    pub(super) src: SocketAddr,
    pub(super) dst: SocketAddr,
}

/// A segment of a TCP conversation; its sequence numbers follow from its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Syn,
    SynAck,
    Ack,
    /// From the client, after the handshake.
    Data,
    /// From the server, after `Data`.
    Reply,
    /// From the server, after the handshake.
    Reset,
}

impl Step {
    const ALL: [Step; 6] = [Step::Syn, Step::SynAck, Step::Ack, Step::Data, Step::Reply, Step::Reset];

    /// Sequence number, acknowledgement, flags.
    fn header(self) -> (u32, u32, u8) {
        match self {
            Step::Syn => (100, 0, 0x02),
            Step::SynAck => (500, 101, 0x12),
            Step::Ack => (101, 501, 0x10),
            Step::Data => (101, 501, 0x18),
            Step::Reply => (501, 101, 0x18),
            Step::Reset => (501, 101, 0x14),
        }
    }
}

/// An ARP message, in a frame from its sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Arp {
    pub(super) from_mac: Mac,
    pub(super) to_mac: Mac,
    pub(super) reply: bool,
    pub(super) sha: Mac,
    pub(super) spa: IpAddr,
    pub(super) tha: Mac,
    pub(super) tpa: IpAddr,
}

/// A neighbour solicitation or advertisement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Nd {
    pub(super) from_mac: Mac,
    pub(super) to_mac: Mac,
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) advertisement: bool,
    /// Flags of an advertisement: router, solicited, override.
    pub(super) flags: u32,
    pub(super) target: IpAddr,
    /// The link-layer address option: source or target.
    pub(super) link: Option<Mac>,
}

/// The Ethernet broadcast address.
pub(super) const BROADCAST: Mac = Mac([0xff; 6]);
/// The target's MAC in ARP requests.
pub(super) const NO_MAC: Mac = Mac([0; 6]);
const HOPS: u8 = 64;

impl Packet {
    fn new(src: IpAddr, dst: IpAddr, payload: Payload) -> Self {
        Self { from_mac: NO_MAC, to_mac: NO_MAC, src, dst, ttl: HOPS, payload }
    }

    pub(super) fn tcp(src: SocketAddr, dst: SocketAddr, step: Step) -> Self {
        Self::new(src.ip(), dst.ip(), Payload::Tcp { src: src.port(), dst: dst.port(), step })
    }

    pub(super) fn udp(src: SocketAddr, dst: SocketAddr) -> Self {
        Self::new(src.ip(), dst.ip(), Payload::Udp { src: src.port(), dst: dst.port() })
    }

    pub(super) fn sctp(src: SocketAddr, dst: SocketAddr) -> Self {
        Self::new(src.ip(), dst.ip(), Payload::Sctp { src: src.port(), dst: dst.port() })
    }

    pub(super) fn ping(src: IpAddr, dst: IpAddr, id: u16) -> Self {
        Self::new(src, dst, Payload::Echo { reply: false, id })
    }

    pub(super) fn pong(src: IpAddr, dst: IpAddr, id: u16) -> Self {
        Self::new(src, dst, Payload::Echo { reply: true, id })
    }

    /// The error of `src` about this packet, to its sender.
    pub(super) fn unreachable(src: IpAddr, to: IpAddr, about: About) -> Self {
        Self::new(src, to, Payload::Unreachable(about))
    }

    /// The packet in a frame between these MACs.
    #[must_use]
    pub(super) fn between(self, from_mac: Mac, to_mac: Mac) -> Self {
        Self { from_mac, to_mac, ..self }
    }

    /// The packet after this many routers decremented the TTL.
    #[must_use]
    pub(super) fn routed(self, times: u8) -> Self {
        Self { ttl: self.ttl - times, ..self }
    }
}

impl From<Packet> for Frame {
    fn from(packet: Packet) -> Self {
        Frame::Ip(packet)
    }
}

impl From<Arp> for Frame {
    fn from(arp: Arp) -> Self {
        Frame::Arp(arp)
    }
}

impl From<Nd> for Frame {
    fn from(nd: Nd) -> Self {
        Frame::Nd(nd)
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from_mac, to_mac, src, dst, ttl, payload } = self;
        write!(f, "{from_mac} > {to_mac}, {src} > {dst}, ttl {ttl}, {payload:?}")
    }
}
