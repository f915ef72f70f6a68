//! The answer to a packet that nobody takes: what a host says of a port on which nobody listens.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ETHERNET: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const TTL: u8 = 64;
/// As much of the packet as an error may repeat: the whole then fits everywhere.
const LONGEST_V4: usize = 576 - 28;
const LONGEST_V6: usize = 1280 - 48;
/// Flags of TCP.
mod flag {
    pub(super) const FIN: u8 = 0x01;
    pub(super) const SYN: u8 = 0x02;
    pub(super) const RST: u8 = 0x04;
    pub(super) const ACK: u8 = 0x10;
}

/// The frame that refuses another one, for the port it came in by: a reset for TCP, an ICMP error for everything else.
/// Nothing for what must not be answered, or is no packet at all.
pub fn refusal(frame: &[u8]) -> Option<Vec<u8>> {
    let packet = Packet::read(frame)?;
    let (protocol, payload) = match packet.protocol {
        TCP => (TCP, reset(&packet)?),
        _ => unreachable(&packet),
    };
    let mut answer = Vec::with_capacity(ETHERNET + 40 + payload.len());
    // Back to whoever sent it, from whom it was sent to.
    answer.extend(frame.get(6..12)?);
    answer.extend(frame.get(..6)?);
    answer.extend(frame.get(12..14)?);
    answer.extend(header(&packet, protocol, payload.len())?);
    answer.extend(payload);
    Some(answer)
}

struct Packet<'a> {
    src: IpAddr,
    dst: IpAddr,
    protocol: u8,
    /// From the IP header on.
    ip: &'a [u8],
    /// What follows it.
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    fn read(frame: &'a [u8]) -> Option<Self> {
        let ip = frame.get(ETHERNET..)?;
        match u16::from_be_bytes(bytes(frame, 12)?) {
            IPV4 => {
                let header = usize::from(*ip.first()? & 0xf) * 4;
                let length = usize::from(u16::from_be_bytes(bytes(ip, 2)?));
                let src = IpAddr::from(Ipv4Addr::from(bytes::<4>(ip, 12)?));
                let dst = IpAddr::from(Ipv4Addr::from(bytes::<4>(ip, 16)?));
                // Without what fills a short frame up.
                let ip = ip.get(..length)?;
                Some(Self { src, dst, protocol: *ip.get(9)?, ip, payload: ip.get(header.max(20)..)? })
            }
            IPV6 => {
                let length = 40 + usize::from(u16::from_be_bytes(bytes(ip, 4)?));
                let src = IpAddr::from(Ipv6Addr::from(bytes::<16>(ip, 8)?));
                let dst = IpAddr::from(Ipv6Addr::from(bytes::<16>(ip, 24)?));
                let ip = ip.get(..length)?;
                Some(Self { src, dst, protocol: *ip.get(6)?, ip, payload: ip.get(40..)? })
            }
            _ => None,
        }
    }
}

fn bytes<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..at + N)?.try_into().ok()
}

/// The IP header of the answer.
fn header(packet: &Packet<'_>, protocol: u8, length: usize) -> Option<Vec<u8>> {
    let mut header = Vec::with_capacity(40);
    match (packet.dst, packet.src) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            header.extend([0x45, 0]);
            header.extend(u16::try_from(20 + length).ok()?.to_be_bytes());
            // It need not be put together again, so no number tells it from others.
            header.extend([0, 0, 0x40, 0, TTL, protocol, 0, 0]);
            header.extend(from.octets());
            header.extend(to.octets());
            let sum = checksum(&[&header]);
            header.get_mut(10..12)?.copy_from_slice(&sum);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            header.extend([0x60, 0, 0, 0]);
            header.extend(u16::try_from(length).ok()?.to_be_bytes());
            header.extend([protocol, TTL]);
            header.extend(from.octets());
            header.extend(to.octets());
        }
        _ => return None,
    }
    Some(header)
}

/// As RFC 9293 has it for a connection that does not exist (3.10.7.1).
fn reset(packet: &Packet<'_>) -> Option<Vec<u8>> {
    let tcp = packet.payload;
    let flags = *tcp.get(13)?;
    if flags & flag::RST != 0 {
        return None;
    }
    let (seq, ack) = (u32::from_be_bytes(bytes(tcp, 4)?), u32::from_be_bytes(bytes(tcp, 8)?));
    let data = tcp.len().checked_sub(usize::from(tcp.get(12)? >> 4) * 4)?;
    let (seq, ack, flags) = if flags & flag::ACK != 0 {
        (ack, 0, flag::RST)
    } else {
        let counted = (flags & flag::SYN != 0, flags & flag::FIN != 0);
        let next = u32::try_from(data).ok()? + u32::from(counted.0) + u32::from(counted.1);
        (0, seq.wrapping_add(next), flag::RST | flag::ACK)
    };
    let mut answer = Vec::with_capacity(20);
    answer.extend(tcp.get(2..4)?);
    answer.extend(tcp.get(..2)?);
    answer.extend(seq.to_be_bytes());
    answer.extend(ack.to_be_bytes());
    answer.extend([5 << 4, flags, 0, 0, 0, 0, 0, 0]);
    let sum = checksum(&[&pseudo_header(packet, TCP, answer.len()), &answer]);
    answer.get_mut(16..18)?.copy_from_slice(&sum);
    Some(answer)
}

/// Port unreachable, with the beginning of the packet that it is about.
fn unreachable(packet: &Packet<'_>) -> (u8, Vec<u8>) {
    let (protocol, kind, code, longest) =
        if packet.src.is_ipv4() { (ICMP, 3, 3, LONGEST_V4) } else { (ICMPV6, 1, 4, LONGEST_V6) };
    let mut answer = vec![kind, code, 0, 0, 0, 0, 0, 0];
    answer.extend(packet.ip.iter().take(longest));
    let sum = match protocol {
        ICMP => checksum(&[&answer]),
        _ => checksum(&[&pseudo_header(packet, ICMPV6, answer.len()), &answer]),
    };
    if let Some(place) = answer.get_mut(2..4) {
        place.copy_from_slice(&sum);
    }
    (protocol, answer)
}

/// What checksums cover beside what follows the IP header.
fn pseudo_header(packet: &Packet<'_>, protocol: u8, length: usize) -> Vec<u8> {
    let mut header = Vec::with_capacity(40);
    for address in [packet.dst, packet.src] {
        match address {
            IpAddr::V4(ip) => header.extend(ip.octets()),
            IpAddr::V6(ip) => header.extend(ip.octets()),
        }
    }
    header.extend(u32::try_from(length).unwrap_or_default().to_be_bytes());
    header.extend(u32::from(protocol).to_be_bytes());
    header
}

/// The checksum of parts that are of even length, but for the last.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let word = |pair: &[u8]| u32::from_be_bytes([0, 0, *pair.first().unwrap_or(&0), *pair.get(1).unwrap_or(&0)]);
    let mut sum: u32 = words.map(word).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    (!u16::try_from(sum).unwrap_or_default()).to_be_bytes()
}

#[cfg(test)]
mod tests;
