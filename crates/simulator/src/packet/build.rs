//! Builds frames with correct lengths and checksums.

use std::net::IpAddr;

use openflow::field::Field;
use openflow::matching::{eth_type, ip_proto};

use super::{Net, Packet, Transport};

/// Payload of an IP packet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Segment {
    /// TCP with a header of 20 bytes.
    Tcp(TcpSegment),
    /// UDP with header and payload.
    Udp {
        /// Source port (host byte order).
        src: u16,
        /// Destination port (host byte order).
        dst: u16,
        /// The bytes after the header.
        payload: Vec<u8>,
    },
    /// SCTP, the common header only.
    Sctp {
        /// Source port (host byte order).
        src: u16,
        /// Destination port (host byte order).
        dst: u16,
    },
    /// ICMP or ICMPv6, depending on the addresses.
    Icmp {
        /// ICMP or ICMPv6 type.
        kind: u8,
        /// ICMP or ICMPv6 code.
        code: u8,
        /// The bytes after type, code and checksum, beginning with the identifier.
        rest: Vec<u8>,
    },
    /// Any other IP protocol.
    Other {
        /// Protocol number in the IP header.
        proto: u8,
        /// The bytes after the IP header.
        payload: Vec<u8>,
    },
}

/// A TCP segment without options.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TcpSegment {
    /// Source port (host byte order).
    pub src: u16,
    /// Destination port (host byte order).
    pub dst: u16,
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Acknowledgement number, if ACK is set.
    pub ack: u32,
    /// Flags: FIN is 1, SYN 2, RST 4, PSH 8, ACK 16.
    pub flags: u16,
    /// Receive window, before scaling.
    pub window: u16,
    /// The bytes after the header.
    pub payload: Vec<u8>,
}

impl Default for TcpSegment {
    fn default() -> Self {
        Self { src: 0, dst: 0, seq: 0, ack: 0, flags: 0, window: 8192, payload: Vec::new() }
    }
}

impl Packet {
    /// An Ethernet frame with any payload.
    pub fn ethernet(eth_src: [u8; 6], eth_dst: [u8; 6], eth_type: u16, payload: &[u8]) -> Packet {
        let kind = eth_type.to_be_bytes();
        Packet::from_bytes([&eth_dst[..], &eth_src, &kind, payload].concat())
    }

    /// An IP packet; two addresses of different families give one of the source's with destination zero.
    pub fn ip(eth_src: [u8; 6], eth_dst: [u8; 6], src: IpAddr, dst: IpAddr, ttl: u8, segment: &Segment) -> Packet {
        let v6 = src.is_ipv6();
        let (proto, body) = segment.encode(v6);
        let length = |extra: usize| u16::try_from(body.len() + extra).unwrap_or(u16::MAX).to_be_bytes();
        let (kind, header) = match src {
            IpAddr::V4(src) => {
                let dst = if let IpAddr::V4(dst) = dst { dst.octets() } else { [0; 4] };
                let start = [[0x45, 0], length(20), [0, 0], [0, 0], [ttl, proto], [0, 0]].concat();
                (eth_type::IPV4, [&start[..], &src.octets(), &dst].concat())
            }
            IpAddr::V6(src) => {
                let dst = if let IpAddr::V6(dst) = dst { dst.octets() } else { [0; 16] };
                let start = [[0x60, 0], [0, 0], length(0), [proto, ttl]].concat();
                (eth_type::IPV6, [&start[..], &src.octets(), &dst].concat())
            }
        };
        let mut packet = Packet::ethernet(eth_src, eth_dst, kind, &[header, body].concat());
        packet.sum_network();
        packet.sum_all();
        packet
    }

    /// An ARP packet for Ethernet and IPv4.
    pub fn arp(
        eth_src: [u8; 6],
        eth_dst: [u8; 6],
        op: u8,
        sender: ([u8; 6], [u8; 4]),
        target: ([u8; 6], [u8; 4]),
    ) -> Packet {
        let start = [0, 1, 8, 0, 6, 4, 0, op];
        let body = [&start[..], &sender.0, &sender.1, &target.0, &target.1].concat();
        Packet::ethernet(eth_src, eth_dst, eth_type::ARP, &body)
    }

    /// The ICMP error (of the packet's own IP version) that `from` sends back to the source of this packet. It quotes as
    /// much of the packet as fits a datagram of 576 bytes.
    pub fn icmp_error(&self, from: IpAddr, kind: u8, code: u8) -> Option<Packet> {
        let layout = self.layout();
        let quoted = self.bytes.get(layout.l3..layout.end.min(layout.l3 + 576 - 28))?;
        let rest = [&[0; 4], quoted].concat();
        let mac = |field| {
            let [_, _, mac @ ..] = u64::try_from(self.get(field)).unwrap_or_default().to_be_bytes();
            mac
        };
        let segment = Segment::Icmp { kind, code, rest };
        Some(Packet::ip(mac(Field::EthDst), mac(Field::EthSrc), from, self.src()?, 64, &segment))
    }

    /// The packet with a VLAN tag.
    #[must_use]
    pub fn tagged(&self, vid: u16, pcp: u8) -> Packet {
        let tci = (u16::from(pcp) << 13 | vid & 0xfff).to_be_bytes();
        let (macs, rest) = self.bytes.split_at(self.bytes.len().min(12));
        Packet::from_bytes([macs, &[0x81, 0], &tci, rest].concat())
    }

    /// The packet with zeros after it, up to `length` bytes, as Ethernet pads short frames.
    #[must_use]
    pub fn padded(&self, length: usize) -> Packet {
        let mut bytes = self.bytes.clone();
        bytes.resize(bytes.len().max(length), 0);
        Packet::from_bytes(bytes)
    }

    /// Computes and writes the checksum of an IPv4 header.
    pub(super) fn sum_network(&mut self) {
        let layout = self.layout;
        if layout.net == Net::V4 {
            self.put_uint(layout.l3 + 10, 2, 0);
            let header = self.bytes.get(layout.l3..layout.l4.unwrap_or(layout.l3)).unwrap_or_default();
            let sum = super::checksum::internet(header, 0);
            self.put_uint(layout.l3 + 10, 2, u128::from(sum));
        }
    }

    /// Computes and writes the checksum of the transport header, including SCTP.
    pub(super) fn sum_all(&mut self) {
        match (self.layout.transport, self.layout.l4) {
            (Transport::Sctp, Some(l4)) => {
                self.put_uint(l4 + 8, 4, 0);
                let crc = self.segment().map_or(0, super::checksum::crc32c);
                self.put_uint(l4 + 8, 4, u128::from(crc));
            }
            _ => self.sum_transport(),
        }
    }
}

impl Segment {
    fn encode(&self, v6: bool) -> (u8, Vec<u8>) {
        match self {
            Segment::Tcp(tcp) => (ip_proto::TCP, tcp.encode()),
            Segment::Udp { src, dst, payload } => {
                let length = u16::try_from(payload.len() + 8).unwrap_or(u16::MAX);
                let header = [*src, *dst, length, 0].map(u16::to_be_bytes).concat();
                (ip_proto::UDP, [&header, &payload[..]].concat())
            }
            Segment::Sctp { src, dst } => {
                let header = [*src, *dst, 0, 0, 0, 0].map(u16::to_be_bytes).concat();
                (ip_proto::SCTP, header)
            }
            Segment::Icmp { kind, code, rest } => {
                let proto = if v6 { ip_proto::ICMPV6 } else { ip_proto::ICMP };
                (proto, [&[*kind, *code, 0, 0], &rest[..]].concat())
            }
            Segment::Other { proto, payload } => (*proto, payload.clone()),
        }
    }
}

impl TcpSegment {
    fn encode(&self) -> Vec<u8> {
        let flags = 5 << 12 | self.flags & 0xfff;
        [
            &self.src.to_be_bytes()[..],
            &self.dst.to_be_bytes(),
            &self.seq.to_be_bytes(),
            &self.ack.to_be_bytes(),
            &flags.to_be_bytes(),
            &self.window.to_be_bytes(),
            &[0; 4],
            &self.payload,
        ]
        .concat()
    }
}
