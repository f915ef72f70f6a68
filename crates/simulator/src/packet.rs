//! A packet: an Ethernet frame, and its header fields by name.

mod build;
mod checksum;
mod layout;
mod text;

pub use build::{Segment, TcpSegment};
pub use text::{Arrival, ArrivalError};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use openflow::field::Field;

pub(crate) use layout::{Layout, Net, Transport};

use layout::u16_at;

/// An Ethernet frame. Any bytes are accepted; a truncated or invalid header counts as absent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Packet {
    bytes: Vec<u8>,
    layout: Layout,
}

/// Position of a field in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    offset: usize,
    bytes: usize,
    shift: u32,
    bits: u32,
}

fn at(offset: usize, bytes: u8) -> Place {
    bits_at(offset, bytes, 0, u32::from(bytes) * 8)
}

fn bits_at(offset: usize, bytes: u8, shift: u32, bits: u32) -> Place {
    Place { offset, bytes: usize::from(bytes), shift, bits }
}

impl Place {
    fn mask(self) -> u128 {
        u128::MAX >> (128 - self.bits)
    }
}

impl Packet {
    /// Parses the headers of a frame; never fails.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let layout = Layout::of(&bytes);
        Self { bytes, layout }
    }

    /// The bytes of the frame.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The value of a header field; zero if the packet has no such header, as the switch sees it.
    pub fn get(&self, field: Field) -> u128 {
        match field {
            Field::EthType => return u128::from(self.layout.eth_type),
            Field::VlanVid => return self.layout.vlan.map_or(0, |at| self.uint(at, 2) & 0xfff | 0x1000),
            Field::IpProto => return u128::from(self.layout.proto),
            Field::IpFrag => return u128::from(self.layout.frag),
            Field::NdOptionsType => return u128::from(self.nd_options_type()),
            _ => {}
        }
        let Some(place) = self.place(field) else { return 0 };
        let value = self.uint(place.offset, place.bytes) >> place.shift & place.mask();
        // The switch keeps the low byte of the operation and knows no other.
        if field == Field::ArpOp && value > 0xff { 0 } else { value }
    }

    /// Writes a header field and updates checksums (a wrong one stays wrong); does nothing if there is no such header.
    pub fn set(&mut self, field: Field, value: u128) {
        if self.get(field) == value {
            return;
        }
        if field == Field::VlanVid {
            if let Some(at) = self.layout.vlan {
                let kept = self.uint(at, 2) & 0xf000;
                self.put_uint(at, 2, kept | value & 0xfff);
            }
            return;
        }
        let Some(place) = self.place(field) else { return };
        let old = self.uint(place.offset, place.bytes);
        let mask = place.mask() << place.shift;
        let new = old & !mask | value << place.shift & mask;
        if new == old {
            return;
        }
        if self.layout.transport == Transport::Sctp && matches!(field, Field::SctpSrc | Field::SctpDst) {
            return self.set_sctp(place, new);
        }
        if matches!(field, Field::NdReserved | Field::NdOptionsType) {
            return self.set_nd_extensions(place, new);
        }
        let [network, transport] = self.checksums(field);
        self.put_checked(place, new, [network, transport]);
    }

    /// Source address of the IP packet.
    pub fn src(&self) -> Option<IpAddr> {
        self.address(0)
    }

    /// Destination address of the IP packet.
    pub fn dst(&self) -> Option<IpAddr> {
        self.address(1)
    }

    fn address(&self, which: usize) -> Option<IpAddr> {
        address_at(&self.bytes, &self.layout, which)
    }

    /// Ports of TCP, UDP or SCTP.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let l4 = self.layout.l4?;
        match self.layout.transport {
            Transport::Tcp | Transport::Udp | Transport::Sctp => {
                Some((u16_at(&self.bytes, l4)?, u16_at(&self.bytes, l4 + 2)?))
            }
            _ => None,
        }
    }

    /// The bytes from the transport header to the end of the packet.
    pub(crate) fn segment(&self) -> Option<&[u8]> {
        self.bytes.get(self.layout.l4?..self.layout.end)
    }

    /// Position of the field, if the packet has it.
    fn place(&self, field: Field) -> Option<Place> {
        let Layout { net, l3, l4, transport, .. } = self.layout;
        let l4 = l4.unwrap_or_default();
        let place = match (field, net, transport) {
            (Field::EthDst, ..) if self.bytes.len() >= 14 => at(0, 6),
            (Field::EthSrc, ..) if self.bytes.len() >= 14 => at(6, 6),
            (Field::VlanPcp, ..) => bits_at(self.layout.vlan?, 2, 13, 3),
            (Field::ArpOp, Net::Arp, _) => at(l3 + 6, 2),
            (Field::ArpSha, Net::Arp, _) => at(l3 + 8, 6),
            (Field::ArpSpa, Net::Arp, _) => at(l3 + 14, 4),
            (Field::ArpTha, Net::Arp, _) => at(l3 + 18, 6),
            (Field::ArpTpa, Net::Arp, _) => at(l3 + 24, 4),
            (Field::Ipv4Src, Net::V4, _) => at(l3 + 12, 4),
            (Field::Ipv4Dst, Net::V4, _) => at(l3 + 16, 4),
            (Field::IpDscp, Net::V4, _) => bits_at(l3 + 1, 1, 2, 6),
            (Field::IpEcn, Net::V4, _) => bits_at(l3 + 1, 1, 0, 2),
            (Field::IpTtl, Net::V4, _) => at(l3 + 8, 1),
            (Field::Ipv6Src, Net::V6, _) => at(l3 + 8, 16),
            (Field::Ipv6Dst, Net::V6, _) => at(l3 + 24, 16),
            (Field::IpDscp, Net::V6, _) => bits_at(l3, 4, 22, 6),
            (Field::IpEcn, Net::V6, _) => bits_at(l3, 4, 20, 2),
            (Field::Ipv6Label, Net::V6, _) => bits_at(l3, 4, 0, 20),
            (Field::IpTtl, Net::V6, _) => at(l3 + 7, 1),
            (Field::TcpSrc, _, Transport::Tcp)
            | (Field::UdpSrc, _, Transport::Udp)
            | (Field::SctpSrc, _, Transport::Sctp) => at(l4, 2),
            (Field::TcpDst, _, Transport::Tcp)
            | (Field::UdpDst, _, Transport::Udp)
            | (Field::SctpDst, _, Transport::Sctp) => at(l4 + 2, 2),
            (Field::TcpFlags, _, Transport::Tcp) => bits_at(l4 + 12, 2, 0, 12),
            (Field::Icmpv4Type, _, Transport::Icmp) | (Field::Icmpv6Type, _, Transport::Icmpv6) => at(l4, 1),
            (Field::Icmpv4Code, _, Transport::Icmp) | (Field::Icmpv6Code, _, Transport::Icmpv6) => at(l4 + 1, 1),
            (Field::NdReserved, _, Transport::Icmpv6) if self.is_nd(&[135, 136]) => at(l4 + 4, 4),
            (Field::NdTarget, _, Transport::Icmpv6) if self.is_nd(&[135, 136]) => at(l4 + 8, 16),
            (Field::NdOptionsType, _, Transport::Icmpv6) if self.is_nd(&[135, 136]) && self.layout.end > l4 + 24 => {
                at(l4 + 24, 1)
            }
            (Field::NdSll, _, Transport::Icmpv6) if self.is_nd(&[135]) => at(self.nd_option(1)?, 6),
            (Field::NdTll, _, Transport::Icmpv6) if self.is_nd(&[136]) => at(self.nd_option(2)?, 6),
            _ => return None,
        };
        Some(place)
    }

    fn is_nd(&self, types: &[u8]) -> bool {
        self.segment().is_some_and(|segment| {
            segment.len() >= 24
                && segment.first().is_some_and(|kind| types.contains(kind))
                && segment.get(1) == Some(&0)
        })
    }

    /// Where the link-layer address of the option of this type is.
    fn nd_option(&self, kind: u8) -> Option<usize> {
        let mut option = self.layout.l4? + 24;
        while option + 8 <= self.layout.end {
            match self.bytes.get(option..option + 2)? {
                [_, 0] => return None,
                [k, 1] if *k == kind => return Some(option + 2),
                [_, length] => option += usize::from(*length) * 8,
                _ => return None,
            }
        }
        None
    }

    /// The type of the first option with a link-layer address.
    fn nd_options_type(&self) -> u8 {
        let here = |kind: &u8| {
            self.is_nd(&[135, 136]) && self.layout.transport == Transport::Icmpv6 && self.nd_option(*kind).is_some()
        };
        let first = [1, 2].into_iter().filter(here).min_by_key(|kind| self.nd_option(*kind));
        first.unwrap_or_default()
    }

    /// As the switch does: writes reserved bits and type together, the type always to the first option, and computes the
    /// checksum.
    fn set_nd_extensions(&mut self, place: Place, value: u128) {
        let kind = u128::from(self.nd_options_type());
        if let Some(options) = self.place(Field::NdOptionsType) {
            self.put_uint(options.offset, options.bytes, kind);
        }
        self.put_uint(place.offset, place.bytes, value);
        self.sum_transport();
    }

    /// The checksums that cover a field: the network's and the transport's.
    fn checksums(&self, field: Field) -> [Option<usize>; 2] {
        let Layout { net, l3, .. } = self.layout;
        let network = (net == Net::V4).then_some(l3 + 10);
        match field {
            Field::Ipv4Src | Field::Ipv4Dst => [network, self.transport_checksum()],
            Field::IpDscp | Field::IpEcn | Field::IpTtl => [network, None],
            Field::Ipv6Src | Field::Ipv6Dst if self.layout.unsummed => [None, None],
            Field::Ipv6Src | Field::Ipv6Dst => [None, self.transport_checksum()],
            f if f >= Field::Icmpv4Type => [None, self.transport_checksum().or(self.icmp_checksum())],
            _ => [None, None],
        }
    }

    /// The checksum of the transport if it covers the addresses.
    fn transport_checksum(&self) -> Option<usize> {
        let l4 = self.layout.l4?;
        match self.layout.transport {
            Transport::Tcp => Some(l4 + 16),
            Transport::Udp => Some(l4 + 6),
            Transport::Icmpv6 => Some(l4 + 2),
            _ => None,
        }
    }

    fn icmp_checksum(&self) -> Option<usize> {
        (self.layout.transport == Transport::Icmp).then_some(self.layout.l4? + 2)
    }

    fn put_checked(&mut self, place: Place, value: u128, checksums: [Option<usize>; 2]) {
        // Headers begin at even distances from their checksums, so words are counted from the first one.
        let base = checksums.iter().flatten().next().copied().unwrap_or(place.offset) & 1;
        let first = place.offset - (place.offset & 1 ^ base);
        let last = place.offset + place.bytes;
        let words: Vec<usize> = (first..last).step_by(2).collect();
        let before: Vec<u16> = words.iter().map(|word| u16_at(&self.bytes, *word).unwrap_or_default()).collect();
        self.put_uint(place.offset, place.bytes, value);
        for checksum in checksums.into_iter().flatten() {
            let Some(mut sum) = u16_at(&self.bytes, checksum) else { continue };
            let udp = self.layout.transport == Transport::Udp && self.transport_checksum() == Some(checksum);
            if udp && sum == 0 {
                continue;
            }
            for (word, old) in words.iter().zip(&before) {
                sum = checksum::replaced(sum, *old, u16_at(&self.bytes, *word).unwrap_or_default());
            }
            if udp && sum == 0 {
                sum = u16::MAX;
            }
            self.put_uint(checksum, 2, u128::from(sum));
        }
    }

    fn set_sctp(&mut self, place: Place, value: u128) {
        let Some(l4) = self.layout.l4 else { return };
        let had = self.uint(l4 + 8, 4);
        self.put_uint(l4 + 8, 4, 0);
        let right = self.segment().map_or(0, checksum::crc32c);
        self.put_uint(place.offset, place.bytes, value);
        let now = self.segment().map_or(0, checksum::crc32c);
        self.put_uint(l4 + 8, 4, had ^ u128::from(right) ^ u128::from(now));
    }

    fn uint(&self, offset: usize, bytes: usize) -> u128 {
        let bytes = self.bytes.get(offset..offset + bytes).unwrap_or_default();
        bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
    }

    fn put_uint(&mut self, offset: usize, bytes: usize, value: u128) {
        let value = value.to_be_bytes();
        let value = value.get(16 - bytes..).unwrap_or_default();
        if let Some(place) = self.bytes.get_mut(offset..offset + bytes) {
            place.copy_from_slice(value);
        }
    }
}

fn address_at(frame: &[u8], layout: &Layout, which: usize) -> Option<IpAddr> {
    match layout.net {
        Net::V4 => Some(Ipv4Addr::from(*frame.get(layout.l3 + 12 + which * 4..)?.first_chunk::<4>()?).into()),
        Net::V6 => Some(Ipv6Addr::from(*frame.get(layout.l3 + 8 + which * 16..)?.first_chunk::<16>()?).into()),
        Net::Arp | Net::Other => None,
    }
}

/// Checks that connection tracking makes, and rewrites of what an ICMP error quotes.
impl Packet {
    /// Whether the checksums of the IP header and of the transport hold (where the switch looks at them).
    pub(crate) fn checksums_hold(&self) -> bool {
        let Layout { net, l3, l4, end, transport, proto, .. } = self.layout;
        let Some(l4) = l4 else { return false };
        if net == Net::V4 && checksum::internet(self.bytes.get(l3..l4).unwrap_or_default(), 0) != 0 {
            return false;
        }
        let segment = self.bytes.get(l4..end).unwrap_or_default();
        let addresses = if net == Net::V4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
        let addresses = self.bytes.get(addresses).unwrap_or_default();
        let pseudo = checksum::pseudo_header(addresses, proto, segment.len());
        match transport {
            Transport::Tcp | Transport::Icmpv6 => checksum::internet(segment, pseudo) == 0,
            Transport::Udp if net == Net::V4 && u16_at(segment, 6) == Some(0) => true,
            Transport::Udp => checksum::internet(segment, pseudo) == 0,
            Transport::Icmp => checksum::internet(segment, 0) == 0,
            Transport::Sctp | Transport::None => true,
        }
    }

    /// Writes a field as if the packet were of another protocol: the checksum that is kept right is where that protocol
    /// has one, which may be in the middle of something else.
    pub(crate) fn set_as(&mut self, proto: u8, field: Field, value: u128) {
        let layout = self.layout;
        // Connection tracking does not look for such headers.
        self.layout = Layout { transport: Transport::of_proto(proto), unsummed: false, ..layout };
        self.set(field, value);
        self.layout = layout;
    }

    /// The packet that an ICMP error quotes.
    pub(crate) fn quoted(&self) -> Option<Layout> {
        let l4 = self.layout.l4?;
        Layout::quoted(&self.bytes, l4 + 8, self.layout.end, self.layout.net == Net::V6)
    }

    /// An address of the packet that an ICMP error quotes: 0 is the source, 1 the destination.
    pub(crate) fn quoted_address(&self, quoted: &Layout, which: usize) -> Option<IpAddr> {
        address_at(&self.bytes, quoted, which)
    }

    /// The first bytes of the transport that an ICMP error quotes.
    pub(crate) fn quoted_segment(&self, quoted: &Layout) -> &[u8] {
        quoted.l4.and_then(|l4| self.bytes.get(l4..self.layout.end)).unwrap_or_default()
    }

    /// Rewrites an address and the ports of the packet that an ICMP error quotes, then the error's checksum.
    pub(crate) fn rewrite_quoted(
        &mut self,
        quoted: &Layout,
        address: Option<(usize, IpAddr)>,
        ports: Option<(u16, u16)>,
    ) {
        let outer = self.layout;
        let Some(l4) = quoted.l4 else { return };
        let size = outer.end.saturating_sub(l4);
        let transport = Transport::of_proto(quoted.proto);
        let checksum = match transport {
            Transport::Tcp => (size >= 20).then_some(l4 + 16),
            Transport::Udp => (size >= 8).then_some(l4 + 6),
            Transport::Icmpv6 => (size >= 4).then_some(l4 + 2),
            Transport::None | Transport::Icmp | Transport::Sctp => None,
        };
        self.layout = Layout { transport, ..*quoted };
        if let Some((src, dst)) = ports {
            let checksums = [None, checksum];
            self.put_checked(at(l4, 2), u128::from(src), checksums);
            self.put_checked(at(l4 + 2, 2), u128::from(dst), checksums);
        }
        match address {
            Some((which, IpAddr::V4(new))) => {
                let place = at(quoted.l3 + 12 + which * 4, 4);
                self.put_checked(place, u128::from(u32::from(new)), [Some(quoted.l3 + 10), checksum]);
            }
            Some((which, IpAddr::V6(new))) => {
                self.put_checked(at(quoted.l3 + 8 + which * 16, 16), u128::from(new), [None, checksum]);
            }
            None => {}
        }
        self.layout = outer;
        self.sum_transport();
    }

    /// Writes the right checksum of the transport.
    fn sum_transport(&mut self) {
        let Layout { net, l3, end, proto, transport, .. } = self.layout;
        let Some(l4) = self.layout.l4 else { return };
        let Some(place) = self.transport_checksum().or(self.icmp_checksum()) else { return };
        self.put_uint(place, 2, 0);
        let segment = self.bytes.get(l4..end).unwrap_or_default();
        let addresses = if net == Net::V4 { l3 + 12..l3 + 20 } else { l3 + 8..l3 + 40 };
        let addresses = self.bytes.get(addresses).unwrap_or_default();
        let start = match transport {
            Transport::Icmp => 0,
            _ => checksum::pseudo_header(addresses, proto, segment.len()),
        };
        let sum = checksum::internet(segment, start);
        let sum = if sum == 0 && transport == Transport::Udp { u16::MAX } else { sum };
        self.put_uint(place, 2, u128::from(sum));
    }
}

#[cfg(test)]
mod tests;
