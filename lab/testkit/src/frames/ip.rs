//! IP packets, whole and in parts.

use std::net::IpAddr;

use super::segment::Body;
use super::{checksum, length16, octets};

const HOPS: u8 = 64;
/// The extension header of a part of an IPv6 packet.
const FRAGMENT: u8 = 44;

/// A packet with these ends, of the family of the source.
pub fn ip(src: IpAddr, dst: IpAddr, body: &Body) -> Vec<u8> {
    ip_with(src, dst, HOPS, body)
}

/// A packet with this time to live.
pub fn ip_with(src: IpAddr, dst: IpAddr, ttl: u8, Body { proto, bytes }: &Body) -> Vec<u8> {
    let mut packet = if src.is_ipv6() {
        let [high, low] = length16(bytes.len());
        vec![0x60, 0, 0, 0, high, low, *proto, ttl]
    } else {
        let [high, low] = length16(20 + bytes.len());
        vec![0x45, 0, high, low, 0, 7, 0, 0, ttl, *proto, 0, 0]
    };
    packet.extend(octets(src));
    packet.extend(octets(dst));
    packet.extend(bytes);
    summed(packet)
}

/// The IPv4 packet with these options, which are padded; the same packet if it is no IPv4 packet.
pub fn with_options(packet: &[u8], options: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4).min(40), 0);
    let Some((header, body)) = packet.split_at_checked(20).filter(|_| packet[0] == 0x45) else {
        return packet.to_vec();
    };
    let mut packet = [header, &options, body].concat();
    packet[0] = 0x45 + u8::try_from(options.len() / 4).unwrap_or_default();
    let length = length16(packet.len());
    packet[2..4].copy_from_slice(&length);
    summed(packet)
}

/// The IPv6 packet with extension headers of these types (0 hop by hop, 43 routing, 44 fragment, 60 destination), the
/// outermost first; the same packet if it is no IPv6 packet. A fragment header says that the packet is whole.
pub fn extended(packet: &[u8], kinds: &[u8]) -> Vec<u8> {
    let Some((header, body)) = packet.split_at_checked(40).filter(|_| packet[0] >> 4 == 6) else {
        return packet.to_vec();
    };
    let mut packet = header.to_vec();
    let nexts = kinds.iter().skip(1).copied().chain([header[6]]);
    for (kind, next) in kinds.iter().zip(nexts) {
        // Eight bytes: the next header, a length or nothing, and padding or what is zero in a fragment header.
        let padding: [u8; 6] = if *kind == FRAGMENT { [0, 0, 0, 0, 0, 1] } else { [1, 4, 0, 0, 0, 0] };
        packet.extend([next, 0]);
        packet.extend(padding);
    }
    packet.extend(body);
    packet[6] = kinds.first().copied().unwrap_or(header[6]);
    let length = length16(packet.len() - 40);
    packet[4..6].copy_from_slice(&length);
    packet
}

/// The packet in parts, of which each but the last has `size` bytes of it, rounded down to a multiple of 8.
pub fn fragments(packet: &[u8], size: usize, id: u16) -> Vec<Vec<u8>> {
    let (is_v6, length) = match packet.first() {
        Some(first) if first >> 4 == 6 => (true, 40),
        first => (false, first.map_or(0, |first| usize::from(first & 0xf) * 4)),
    };
    let Some((header, body)) = packet.split_at_checked(length) else { return vec![packet.to_vec()] };
    let size = (size / 8 * 8).max(8);
    let parts = body.len().div_ceil(size);
    let part = |(n, bytes): (usize, &[u8])| {
        let (offset, more) = (u16::try_from(n * size).unwrap_or(u16::MAX), u16::from(n + 1 < parts));
        let mut part = header.to_vec();
        if is_v6 {
            part.extend([header[6], 0]);
            part.extend((offset | more).to_be_bytes());
            part.extend(u32::from(id).to_be_bytes());
            part[6] = FRAGMENT;
            let length = length16(8 + bytes.len());
            part[4..6].copy_from_slice(&length);
        } else {
            let length = length16(header.len() + bytes.len());
            part[2..4].copy_from_slice(&length);
            part[4..6].copy_from_slice(&id.to_be_bytes());
            part[6..8].copy_from_slice(&((offset / 8) | (more << 13)).to_be_bytes());
        }
        part.extend(bytes);
        summed(part)
    };
    body.chunks(size).enumerate().map(part).collect()
}

/// With the right checksum in the header of an IPv4 packet.
fn summed(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        let header = usize::from(packet[0] & 0xf) * 4;
        packet[10..12].fill(0);
        let sum = checksum(&[&packet[..header]]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}
