//! What a host would make of a frame: nothing here relies on the code that composes frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Mac, kind, proto};

/// A frame that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Who it says it is from.
    pub from: Mac,
    /// Who it is for.
    pub to: Mac,
    /// How many VLAN tags it has.
    pub tags: usize,
    /// What is in it.
    pub network: Network,
}

/// What is in a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Network {
    /// A packet, or a part of one.
    Ip(Ip),
    /// A question or an answer of ARP.
    Arp(Arp),
    /// Something else, of this type, or too short.
    Other(u16),
}

/// A question or an answer of ARP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arp {
    /// 1 asks, 2 answers.
    pub operation: u16,
    /// The MAC and address of the sender.
    pub sender: (Mac, Ipv4Addr),
    /// The MAC and address in question.
    pub target: (Mac, Ipv4Addr),
}

/// An IP packet, or a part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ip {
    /// Who it says it is from.
    pub src: IpAddr,
    /// Who it is for.
    pub dst: IpAddr,
    /// What is behind the header and all extension headers.
    pub proto: u8,
    /// Where a part that is not the first begins in the whole; 0 for the first and for a whole packet.
    pub offset: u16,
    /// Whether it is a part of a packet.
    pub is_part: bool,
    /// Header and data of the protocol, or a later part of them.
    pub body: Vec<u8>,
}

impl Ip {
    /// Ports of TCP, UDP and SCTP, where this packet has them.
    pub fn ports(&self) -> Option<(u16, u16)> {
        let has = self.offset == 0 && matches!(self.proto, proto::TCP | proto::UDP | proto::SCTP);
        has.then_some(())?;
        Some((u16_at(&self.body, 0)?, u16_at(&self.body, 2)?))
    }

    /// The type of an ICMP or ICMPv6 message.
    pub fn icmp_type(&self) -> Option<u8> {
        let has = self.offset == 0 && matches!(self.proto, proto::ICMP | proto::ICMPV6);
        self.body.first().copied().filter(|_| has)
    }

    /// The packet that an ICMP error quotes, as far as it does.
    pub fn quoted(&self) -> Option<Ip> {
        let is_error = match (self.proto, self.icmp_type()?) {
            (proto::ICMP, kind) => matches!(kind, 3 | 4 | 5 | 11 | 12),
            (_, kind) => kind < 128,
        };
        read_ip(self.body.get(8..).filter(|_| is_error)?, self.dst.is_ipv6())
    }
}

impl Frame {
    /// Reads a frame; nothing if it is shorter than its header.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (to, from) = (*bytes.first_chunk::<6>()?, *bytes.get(6..)?.first_chunk::<6>()?);
        let (mut at, mut tags) = (12, 0);
        while matches!(u16_at(bytes, at)?, kind::VLAN | kind::QINQ) {
            at += 4;
            tags += 1;
        }
        let (number, body) = (u16_at(bytes, at)?, bytes.get(at + 2..)?);
        let network = match number {
            kind::ARP => read_arp(body).map(Network::Arp),
            // By the frame's type, whatever version the packet says it is of.
            kind::IPV4 | kind::IPV6 => read_ip(body, number == kind::IPV6).map(Network::Ip),
            _ => None,
        };
        Some(Self { from, to, tags, network: network.unwrap_or(Network::Other(number)) })
    }
}

fn read_arp(body: &[u8]) -> Option<Arp> {
    let end = |at: usize| -> Option<(Mac, Ipv4Addr)> {
        let mac = *body.get(at..)?.first_chunk::<6>()?;
        Some((mac, Ipv4Addr::from(*body.get(at + 6..)?.first_chunk::<4>()?)))
    };
    Some(Arp { operation: u16_at(body, 6)?, sender: end(8)?, target: end(18)? })
}

fn read_ip(packet: &[u8], is_v6: bool) -> Option<Ip> {
    match is_v6 {
        false => {
            let header = usize::from(packet.first()? & 0xf) * 4;
            let address = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?).into());
            let end = usize::from(u16_at(packet, 2)?).clamp(header, packet.len().max(header));
            let body = packet.get(header..end.min(packet.len()))?.to_vec();
            let (offset, more) = ((u16_at(packet, 6)? & 0x1fff) * 8, packet.get(6)? & 0x20 != 0);
            let is_part = more || offset > 0;
            Some(Ip { src: address(12)?, dst: address(16)?, proto: *packet.get(9)?, offset, is_part, body })
        }
        true => {
            let address = |at: usize| Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?).into());
            let (mut next, mut at, mut offset, mut is_part) = (*packet.get(6)?, 40, 0, false);
            // What is behind the header of a later part is data, whatever it looks like.
            while matches!(next, 0 | 43 | 44 | 51 | 60) && offset == 0 {
                let Some(header) = packet.get(at..at + 8) else { break };
                if next == 44 {
                    offset = u16_at(header, 2)? & 0xfff8;
                    is_part |= u16_at(header, 2)? & 0xfff9 != 0;
                }
                at += match (next, usize::from(header[1])) {
                    (44, _) => 8,
                    (51, words) => 8 + words * 4,
                    (_, more) => 8 + more * 8,
                };
                next = header[0];
            }
            let body = packet.get(at..).unwrap_or_default().to_vec();
            Some(Ip { src: address(8)?, dst: address(24)?, proto: next, offset, is_part, body })
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk::<2>()?))
}
