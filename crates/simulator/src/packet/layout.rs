//! Offsets of the headers in a frame.

use openflow::matching::{eth_type, ip_proto};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Net {
    Other,
    Arp,
    V4,
    V6,
}

/// The transport protocol, if its header is complete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Transport {
    None,
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Icmpv6,
}

impl Transport {
    /// The protocols whose checksums cover the addresses of IPv6.
    pub(crate) fn of_proto(proto: u8) -> Self {
        match proto {
            ip_proto::TCP => Transport::Tcp,
            ip_proto::UDP => Transport::Udp,
            ip_proto::ICMPV6 => Transport::Icmpv6,
            _ => Transport::None,
        }
    }
}

/// The headers of a frame, by offset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Layout {
    /// The tag's control information, if the frame is tagged.
    pub(crate) vlan: Option<usize>,
    pub(crate) eth_type: u16,
    pub(crate) net: Net,
    pub(crate) l3: usize,
    pub(crate) proto: u8,
    /// Bit 0: a fragment; bit 1: not the first one.
    pub(crate) frag: u8,
    /// Offset of the transport header, if the network header is valid.
    pub(crate) l4: Option<usize>,
    /// End of the network packet; the rest of the frame is padding.
    pub(crate) end: usize,
    pub(crate) transport: Transport,
    /// An IPv6 address that a flow sets leaves the transport's checksum as it was: behind a routing header with places to go
    /// to, and behind a fragment header, but for that of a first fragment.
    pub(crate) unsummed: bool,
}

/// Frames whose type field is a length.
const NOT_ETHERNET_II: u16 = 0x05ff;
const FIRST_TYPE: u16 = 0x600;

impl Layout {
    pub(crate) fn of(frame: &[u8]) -> Self {
        let mut layout = Self {
            vlan: None,
            eth_type: 0,
            net: Net::Other,
            l3: 14,
            proto: 0,
            frag: 0,
            l4: None,
            end: frame.len(),
            transport: Transport::None,
            unsummed: false,
        };
        let Some(mut kind) = u16_at(frame, 12) else { return layout };
        if matches!(kind, 0x8100 | 0x88a8)
            && let Some(inner) = u16_at(frame, 16)
        {
            layout.vlan = Some(14);
            layout.l3 = 18;
            kind = inner;
        }
        layout.eth_type = if kind < FIRST_TYPE { NOT_ETHERNET_II } else { kind };
        match layout.eth_type {
            eth_type::IPV4 => layout.ipv4(frame),
            eth_type::IPV6 => layout.ipv6(frame),
            eth_type::ARP | eth_type::RARP => {
                let ethernet_and_ip = [0, 1, 8, 0, 6, 4];
                if frame.get(layout.l3..layout.l3 + 6) == Some(&ethernet_and_ip) && frame.len() >= layout.l3 + 28 {
                    layout.net = Net::Arp;
                }
            }
            _ => {}
        }
        layout
    }

    /// The layout of the packet that an ICMP error quotes; it may be truncated.
    pub(crate) fn quoted(frame: &[u8], l3: usize, end: usize, v6: bool) -> Option<Self> {
        let mut layout = Self { l3, end, l4: None, vlan: None, ..Self::of(&[]) };
        let frame = frame.get(..end)?;
        if v6 {
            layout.ipv6_headers(frame);
        } else {
            let length = usize::from(frame.get(l3)? & 0xf) * 4;
            if length < 20 || l3 + length > end {
                return None;
            }
            layout.net = Net::V4;
            layout.proto = *frame.get(l3 + 9)?;
            layout.frag = ipv4_frag(u16_at(frame, l3 + 6)?);
            layout.l4 = Some(l3 + length);
        }
        layout.l4.map(|_| layout)
    }

    fn ipv4(&mut self, frame: &[u8]) {
        let (Some(first), Some(total), Some(fragment), Some(proto)) =
            (frame.get(self.l3), u16_at(frame, self.l3 + 2), u16_at(frame, self.l3 + 6), frame.get(self.l3 + 9))
        else {
            return;
        };
        let (header, total) = (usize::from(first & 0xf) * 4, usize::from(total));
        let room = frame.len() - self.l3;
        if header < 20 || total < header || total > room || room - total > usize::from(u8::MAX) {
            return;
        }
        self.net = Net::V4;
        self.proto = *proto;
        self.frag = ipv4_frag(fragment);
        self.end = self.l3 + total;
        self.l4 = Some(self.l3 + header);
        self.find_transport(frame);
    }

    fn ipv6(&mut self, frame: &[u8]) {
        let Some(payload) = u16_at(frame, self.l3 + 4) else { return };
        let end = self.l3 + 40 + usize::from(payload);
        if end > frame.len() || frame.len() - end > usize::from(u8::MAX) {
            return;
        }
        self.end = end;
        self.ipv6_headers(frame.get(..end).unwrap_or_default());
        self.find_transport(frame);
    }

    fn ipv6_headers(&mut self, frame: &[u8]) {
        let (Some(mut proto), mut at) = (frame.get(self.l3 + 6).copied(), self.l3 + 40) else { return };
        if frame.len() < at {
            return;
        }
        self.net = Net::V6;
        loop {
            let next = frame.get(at).copied();
            let length = frame.get(at + 1).map(|length| usize::from(*length));
            self.unsummed |= proto == 43 && frame.get(at + 3).is_some_and(|left| *left > 0);
            match (proto, next, length) {
                (0 | 43 | 60, Some(next), Some(length)) => (proto, at) = (next, at + length * 8 + 8),
                (51, Some(next), Some(length)) => (proto, at) = (next, at + length * 4 + 8),
                (44, Some(next), Some(_)) => {
                    let Some(offset) = u16_at(frame, at + 2) else { return };
                    self.unsummed |= offset & 0xfff9 != 1;
                    // A fragment header of a packet that is not fragmented says so with zeros.
                    if offset & 0xfff9 != 0 {
                        self.frag = if offset & 0xfff8 == 0 { 1 } else { 3 };
                    }
                    (proto, at) = (next, at + 8);
                    if self.frag == 3 {
                        break;
                    }
                }
                (0 | 43 | 44 | 51 | 60, _, _) => return,
                _ => break,
            }
            if at > frame.len() {
                return;
            }
        }
        self.proto = proto;
        self.l4 = Some(at);
    }

    fn find_transport(&mut self, frame: &[u8]) {
        let Some(l4) = self.l4.filter(|_| self.frag & 2 == 0) else { return };
        let size = self.end.saturating_sub(l4);
        self.transport = match (self.net, self.proto) {
            (_, ip_proto::TCP) => {
                let header = frame.get(l4 + 12).map_or(0, |offset| usize::from(offset >> 4) * 4);
                if header >= 20 && size >= header { Transport::Tcp } else { Transport::None }
            }
            (_, ip_proto::UDP) if size >= 8 => Transport::Udp,
            (_, ip_proto::SCTP) if size >= 12 => Transport::Sctp,
            (Net::V4, ip_proto::ICMP) if size >= 8 => Transport::Icmp,
            (Net::V6, ip_proto::ICMPV6) if size >= 4 => Transport::Icmpv6,
            _ => Transport::None,
        };
    }
}

fn ipv4_frag(offset: u16) -> u8 {
    match (offset & 0x2000 != 0, offset & 0x1fff != 0) {
        (_, true) => 3,
        (true, false) => 1,
        (false, false) => 0,
    }
}

pub(crate) fn u16_at(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}
