//! The identity of a connection.

use std::net::IpAddr;

use openflow::matching::ip_proto;

use super::Tuple;
use crate::packet::{Layout, Net, Packet, Transport};

/// One side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct End {
    pub(super) address: IpAddr,
    /// The port, or the identifier of ICMP.
    pub(super) port: u16,
    /// The type of ICMP that this side sends.
    pub(super) kind: u8,
}

/// Both sides of a connection, seen from one of them, in a zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key {
    pub(super) zone: u16,
    pub(super) proto: u8,
    pub(super) src: End,
    pub(super) dst: End,
}

/// The key of a packet, and whether it is an ICMP error, so that the key is that of the packet it quotes, reversed.
pub(super) struct Extracted {
    pub(super) key: Key,
    pub(super) related: bool,
}

impl Key {
    /// The key of a packet; none if the packet cannot be tracked.
    pub(super) fn of(packet: &Packet, zone: u16) -> Option<Extracted> {
        let layout = packet.layout();
        let (src, dst) = (packet.src()?, packet.dst()?);
        // A packet with a truncated or invalid transport header cannot be tracked.
        let whole = layout.transport != Transport::None || !has_header(layout);
        if layout.frag != 0 || layout.l4.is_none() || !whole || !packet.checksums_hold() {
            return None;
        }
        let segment = packet.segment()?;
        if layout.transport == Transport::Udp {
            let length = usize::from(u16::from_be_bytes([*segment.get(4)?, *segment.get(5)?]));
            if length < 8 || length > segment.len() {
                return None;
            }
        }
        if is_error(layout, *segment.first().unwrap_or(&0)) {
            let quoted = packet.quoted()?;
            let inner = (packet.quoted_address(&quoted, 0)?, packet.quoted_address(&quoted, 1)?);
            let v6 = quoted.net == Net::V6;
            let inner_segment = packet.quoted_segment(&quoted);
            // IPv4 needs eight bytes of the quoted header, IPv6 the complete header.
            let least = match (v6, quoted.proto) {
                (true, ip_proto::TCP) => 20,
                _ => 8,
            };
            let tracked = matches!(quoted.proto, ip_proto::TCP | ip_proto::UDP)
                || quoted.proto == if v6 { ip_proto::ICMPV6 } else { ip_proto::ICMP };
            if inner.0 != dst || quoted.frag != 0 || (tracked && inner_segment.len() < least) {
                return None;
            }
            if is_error(&quoted, *inner_segment.first().unwrap_or(&0)) {
                return None;
            }
            let key = Self::from_segment(zone, inner.0, inner.1, &quoted, inner_segment)?;
            return Some(Extracted { key: key.reversed(), related: true });
        }
        let key = Self::from_segment(zone, src, dst, layout, segment)?;
        Some(Extracted { key, related: false })
    }

    fn from_segment(zone: u16, src: IpAddr, dst: IpAddr, layout: &Layout, segment: &[u8]) -> Option<Key> {
        let word = |at: usize| Some(u16::from_be_bytes([*segment.get(at)?, *segment.get(at + 1)?]));
        let (src_port, dst_port, kinds) = match (layout.proto, layout.net) {
            (ip_proto::TCP | ip_proto::UDP, _) => {
                let ports = (word(0)?, word(2)?);
                if ports.0 == 0 || ports.1 == 0 {
                    return None;
                }
                (ports.0, ports.1, (0, 0))
            }
            (ip_proto::ICMP, Net::V4) | (ip_proto::ICMPV6, Net::V6) => {
                let (kind, code, id) = (*segment.first()?, *segment.get(1)?, word(4)?);
                let answer = answer_of(layout.net == Net::V6, kind).filter(|_| code == 0)?;
                (id, id, (kind, answer))
            }
            _ => (0, 0, (0, 0)),
        };
        Some(Key {
            zone,
            proto: layout.proto,
            src: End { address: src, port: src_port, kind: kinds.0 },
            dst: End { address: dst, port: dst_port, kind: kinds.1 },
        })
    }

    /// The key of the tuple that opened a connection; ICMP identifiers are not part of it and come from `like`.
    pub(super) fn from_original(original: &Tuple, zone: u16, like: &Key) -> Key {
        let icmp = matches!(original.proto, ip_proto::ICMP | ip_proto::ICMPV6);
        let kind = u8::try_from(original.src_port).unwrap_or_default();
        let (src, dst) = if icmp {
            let answer = answer_of(original.src.is_ipv6(), kind).unwrap_or_default();
            ((like.src.port, kind), (like.dst.port, answer))
        } else {
            ((original.src_port, 0), (original.dst_port, 0))
        };
        Key {
            zone,
            proto: original.proto,
            src: End { address: original.src, port: src.0, kind: src.1 },
            dst: End { address: original.dst, port: dst.0, kind: dst.1 },
        }
    }

    /// The key of the opposite direction.
    pub(super) fn reversed(self) -> Key {
        Key { src: self.dst, dst: self.src, ..self }
    }

    /// The same for both directions.
    pub(super) fn bucket(self) -> Key {
        if self.src <= self.dst { self } else { self.reversed() }
    }

    /// As the fields of a packet show it.
    pub(super) fn tuple(&self) -> Tuple {
        let icmp = matches!(
            (self.proto, self.src.address),
            (ip_proto::ICMP, IpAddr::V4(_)) | (ip_proto::ICMPV6, IpAddr::V6(_))
        );
        let (src_port, dst_port) = if icmp { (u16::from(self.src.kind), 0) } else { (self.src.port, self.dst.port) };
        Tuple { src: self.src.address, dst: self.dst.address, proto: self.proto, src_port, dst_port }
    }

    /// Whether the ports can be translated.
    pub(super) fn has_ports(&self) -> bool {
        matches!(self.proto, ip_proto::TCP | ip_proto::UDP)
    }
}

/// Whether the protocol has a header that tracking looks at.
fn has_header(layout: &Layout) -> bool {
    match layout.proto {
        ip_proto::TCP | ip_proto::UDP => true,
        ip_proto::ICMP => layout.net == Net::V4,
        ip_proto::ICMPV6 => layout.net == Net::V6,
        _ => false,
    }
}

fn is_error(layout: &Layout, kind: u8) -> bool {
    match (layout.proto, layout.net) {
        (ip_proto::ICMP, Net::V4) => matches!(kind, 3 | 4 | 5 | 11 | 12),
        (ip_proto::ICMPV6, Net::V6) => (1..=4).contains(&kind),
        _ => false,
    }
}

/// The ICMP type of replies to this type.
fn answer_of(v6: bool, kind: u8) -> Option<u8> {
    match (v6, kind) {
        (false, 8) => Some(0),
        (false, 0) => Some(8),
        (false, 13) => Some(14),
        (false, 14) => Some(13),
        (false, 15) => Some(16),
        (false, 16) => Some(15),
        (true, 128) => Some(129),
        (true, 129) => Some(128),
        _ => None,
    }
}
