//! What is in an IP packet, with right checksums.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{Mac, checksum, length16, proto, pseudo_header};

/// The payload of an IP packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    /// The protocol number in the IP header.
    pub proto: u8,
    /// The protocol's header, and its data.
    pub bytes: Vec<u8>,
}

/// A TCP segment with these flags.
pub fn tcp(src: SocketAddr, dst: SocketAddr, flags: u8, (seq, ack): (u32, u32), data: &[u8]) -> Body {
    let mut bytes = [src.port(), dst.port()].map(u16::to_be_bytes).concat();
    bytes.extend([seq, ack].map(u32::to_be_bytes).concat());
    bytes.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend(data);
    summed(src.ip(), dst.ip(), proto::TCP, bytes, 16)
}

/// A UDP datagram with this data.
pub fn udp(src: SocketAddr, dst: SocketAddr, data: &[u8]) -> Body {
    let mut bytes = [src.port(), dst.port()].map(u16::to_be_bytes).concat();
    bytes.extend(length16(8 + data.len()));
    bytes.extend([0, 0]);
    bytes.extend(data);
    summed(src.ip(), dst.ip(), proto::UDP, bytes, 6)
}

/// An SCTP packet that opens an association, with the data behind.
pub fn sctp(src: SocketAddr, dst: SocketAddr, data: &[u8]) -> Body {
    let mut bytes = [src.port(), dst.port(), 0, 0, 0, 0].map(u16::to_be_bytes).concat();
    bytes.extend([1, 0]);
    bytes.extend(length16(20 + data.len()));
    bytes.extend([0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
    bytes.extend(data);
    let sum = crc32c(&bytes).to_le_bytes();
    bytes[8..12].copy_from_slice(&sum);
    Body { proto: proto::SCTP, bytes }
}

/// An ICMP or ICMPv6 message: type, code, and all after the checksum.
pub fn icmp(src: IpAddr, dst: IpAddr, kind: u8, code: u8, rest: &[u8]) -> Body {
    let bytes = [&[kind, code, 0, 0], rest].concat();
    let number = if src.is_ipv6() { proto::ICMPV6 } else { proto::ICMP };
    summed(src, dst, number, bytes, 2)
}

/// An echo request with this data.
pub fn echo(src: IpAddr, dst: IpAddr, id: u16, data: &[u8]) -> Body {
    let rest = [&id.to_be_bytes()[..], &[0, 1], data].concat();
    icmp(src, dst, if src.is_ipv6() { 128 } else { 8 }, 0, &rest)
}

/// An error about a packet, of which it has a copy.
pub fn icmp_error(src: IpAddr, dst: IpAddr, kind: u8, code: u8, quoted: &[u8]) -> Body {
    icmp(src, dst, kind, code, &[&[0; 4], quoted].concat())
}

/// A neighbour's message, 135 asks and 136 answers, with the option that has a MAC.
pub fn neighbour(src: Ipv6Addr, dst: Ipv6Addr, kind: u8, target: Ipv6Addr, link: Mac) -> Body {
    // An answer overrides what is known.
    let flags = if kind == 136 { 0x20 } else { 0 };
    let mut rest = vec![flags, 0, 0, 0];
    rest.extend(target.octets());
    rest.extend([if kind == 136 { 2 } else { 1 }, 1]);
    rest.extend(link);
    icmp(src.into(), dst.into(), kind, 0, &rest)
}

/// The checksum of SCTP (RFC 9260, appendix A), bit by bit.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let by_bit = |crc: u32, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), by_bit))
}

fn summed(src: IpAddr, dst: IpAddr, number: u8, mut bytes: Vec<u8>, at: usize) -> Body {
    let pseudo = if number == proto::ICMP { Vec::new() } else { pseudo_header(src, dst, number, bytes.len()) };
    let sum = checksum(&[&pseudo, &bytes]);
    // In UDP a sum of zero means that there is none.
    let sum = if number == proto::UDP && sum == 0 { u16::MAX } else { sum };
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Body { proto: number, bytes }
}
