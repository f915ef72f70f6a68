//! Ethernet frames, composed layer by layer from inside out: valid ones, and ones that no honest host would send.
//!
//! Functions take the layer above as bytes and return the layer below as bytes, so layers can be stacked in any order: a TCP
//! segment in IPv6 behind extension headers, in Geneve, in UDP, in IPv4, in fragments, behind two VLAN tags.

mod ip;
mod read;
mod segment;
mod tunnel;

use std::net::{IpAddr, Ipv4Addr};

pub use ip::{extended, fragments, ip, ip_with, with_options};
pub use read::{Arp, Frame, Ip, Network};
pub use segment::{Body, crc32c, echo, icmp, icmp_error, neighbour, sctp, tcp, udp};
pub use tunnel::{esp, geneve, gre, ipip, stt, vxlan};

/// A MAC, in the order of the wire.
pub type Mac = [u8; 6];

/// All hosts on the wire.
pub const BROADCAST: Mac = [0xff; 6];

/// Types of frames (EtherType).
pub mod kind {
    /// The type of IPv4 packets.
    pub const IPV4: u16 = 0x0800;
    /// The type of ARP messages.
    pub const ARP: u16 = 0x0806;
    /// A VLAN tag (802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// An outer VLAN tag (802.1ad).
    pub const QINQ: u16 = 0x88a8;
    /// The type of IPv6 packets.
    pub const IPV6: u16 = 0x86dd;
}

/// Protocol numbers in IP headers.
pub mod proto {
    /// The protocol number of ICMP.
    pub const ICMP: u8 = 1;
    /// The protocol number of IPv4 in IP.
    pub const IPIP: u8 = 4;
    /// The protocol number of TCP.
    pub const TCP: u8 = 6;
    /// The protocol number of UDP.
    pub const UDP: u8 = 17;
    /// The protocol number of IPv6 in IP.
    pub const IPV6: u8 = 41;
    /// The protocol number of GRE.
    pub const GRE: u8 = 47;
    /// The protocol number of ESP.
    pub const ESP: u8 = 50;
    /// The protocol number of ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// The protocol number of SCTP.
    pub const SCTP: u8 = 132;
}

/// A frame of any type.
pub fn ethernet(from: Mac, to: Mac, kind: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = [to, from].concat();
    frame.extend(kind.to_be_bytes());
    frame.extend(body);
    frame
}

/// A frame with an IP packet, whose type follows from the packet's version.
pub fn ethernet_ip(from: Mac, to: Mac, packet: &[u8]) -> Vec<u8> {
    let is_v6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
    ethernet(from, to, if is_v6 { kind::IPV6 } else { kind::IPV4 }, packet)
}

/// The frame with VLAN tags, each a type and a VLAN, the outermost first.
pub fn tagged(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(frame.len().min(12));
    let tags = tags.iter().flat_map(|(kind, vlan)| [kind.to_be_bytes(), vlan.to_be_bytes()].concat());
    addresses.iter().copied().chain(tags).chain(rest.iter().copied()).collect()
}

/// An ARP message: 1 asks, 2 answers. The sender in the message need not be the one of the frame.
pub fn arp(from: Mac, to: Mac, operation: u16, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut body = vec![0, 1, 8, 0, 6, 4];
    body.extend(operation.to_be_bytes());
    for (mac, address) in [sender, target] {
        body.extend(mac);
        body.extend(address.octets());
    }
    let mut frame = ethernet(from, to, kind::ARP, &body);
    frame.resize(60, 0);
    frame
}

/// The Internet checksum of parts of even length (but for the last); 0 if it is already in there.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 = words.map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).unwrap_or_default()
}

/// What the checksum of a transport covers besides its own bytes.
pub fn pseudo_header(src: IpAddr, dst: IpAddr, proto: u8, length: usize) -> Vec<u8> {
    let mut header = [octets(src), octets(dst)].concat();
    header.extend([0, proto]);
    header.extend(length16(length));
    header
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}

fn length16(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests;
