//! Rejection of packets to a Service without endpoints: the answer of a host to a packet for a closed port.

mod fairness;

pub use fairness::{NotNow, Refusals};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ETHERNET: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const TTL: u8 = 64;
/// Maximum length of the packet quoted in an ICMP error, so that the error fits into the minimum MTU.
const LONGEST_V4: usize = 576 - 28;
const LONGEST_V6: usize = 1280 - 48;
/// Flags in the TCP header.
mod flag {
    pub(super) const FIN: u8 = 0x01;
    pub(super) const SYN: u8 = 0x02;
    pub(super) const RST: u8 = 0x04;
    pub(super) const ACK: u8 = 0x10;
}

/// The frame that rejects another one, to be sent to the port that it came in by: a TCP reset, or an ICMP error for other
/// protocols. `None` for packets that must not be answered, and for malformed ones.
pub fn refusal(frame: &[u8]) -> Option<Vec<u8>> {
    let packet = Packet::read(frame)?;
    let (protocol, payload) = match packet.protocol {
        TCP => (TCP, reset(&packet)?),
        _ => unreachable(&packet),
    };
    let mut answer = Vec::with_capacity(ETHERNET + 40 + payload.len());
    // MAC addresses swapped.
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
    /// The packet from the IP header on.
    ip: &'a [u8],
    /// The bytes after the IP header.
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
                // Without Ethernet padding.
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
            // Never fragmented, so the identification field does not matter.
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

/// The reset that RFC 9293 (3.10.7.1) prescribes for a connection that does not exist.
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

/// Port unreachable, with the beginning of the rejected packet.
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

/// The pseudo header for checksums.
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

/// The Internet checksum of parts of even length, except for the last.
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
