//! Packets in the syntax of ovs-ofctl and ofproto/trace, and in a readable form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use openflow::field::Field;
use openflow::matching::{Match, eth_type, ip_proto};
use openflow::port::Port;
use openflow::text::ParseError;
use thiserror::Error;

use super::{Net, Packet, Segment, TcpSegment, Transport};
use crate::fields::Tunnel;

/// A packet on arrival at the switch, with its input port and metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Input port of the packet.
    pub in_port: Port,
    /// The frame with its headers.
    pub packet: Packet,
    /// Metadata of the removed tunnel header.
    pub tunnel: Tunnel,
    /// `pkt_mark`, set by the host.
    pub pkt_mark: u32,
}

/// Why a text does not describe a packet.
#[derive(Debug, Error)]
pub enum ArrivalError {
    /// It is not in the syntax of a match.
    #[error("{0}")]
    Syntax(#[from] ParseError),
    /// A field that a packet has no header for, or that only the switch sets.
    #[error("`{0}` cannot be given for a packet")]
    Field(&'static str),
    /// A packet has values, not masks.
    #[error("`{0}` needs a whole value, not a mask")]
    Masked(&'static str),
    /// A field of another protocol.
    #[error("`{field}` is no field of {what}")]
    WrongProtocol {
        /// Name of the field.
        field: &'static str,
        /// The protocol of the packet.
        what: &'static str,
    },
}

impl Arrival {
    /// A packet on arrival at a port, without other metadata.
    pub fn new(in_port: Port, packet: Packet) -> Self {
        Self { in_port, packet, tunnel: Tunnel::default(), pkt_mark: 0 }
    }
}

/// `in_port=3,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1000,tp_dst=80,tcp_flags=+syn`; omitted fields are zero, the
/// TTL is 64.
impl FromStr for Arrival {
    type Err = ArrivalError;

    fn from_str(text: &str) -> Result<Self, ArrivalError> {
        Self::from_match(&plain_flags(text).parse()?)
    }
}

/// `tcp_flags=syn|ack` and `tcp_flags=syn` are written `+syn+ack` in a match.
fn plain_flags(text: &str) -> String {
    let item = |item: &str| match item.trim().strip_prefix("tcp_flags=") {
        Some(flags) if flags.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            format!("tcp_flags=+{}", flags.replace('|', "+"))
        }
        _ => item.to_owned(),
    };
    text.split(',').map(item).collect::<Vec<_>>().join(",")
}

impl Arrival {
    /// The packet that has all the values of a match.
    pub fn from_match(matches: &Match) -> Result<Self, ArrivalError> {
        let value = |field| matches.get(field).map(|(value, _)| value);
        let small = |field| u16::try_from(value(field).unwrap_or_default()).unwrap_or_default();
        let byte = |field| value(field).map(|value| u8::try_from(value).unwrap_or_default());
        let kind = small(Field::EthType);
        let v4 =
            |field| IpAddr::from(Ipv4Addr::from(u32::try_from(value(field).unwrap_or_default()).unwrap_or_default()));
        let v6 = |field| IpAddr::from(Ipv6Addr::from(value(field).unwrap_or_default()));
        let proto = byte(Field::IpProto).unwrap_or_default();
        let ports = |src, dst| (small(src), small(dst));
        let segment = match proto {
            ip_proto::TCP => {
                let (src, dst) = ports(Field::TcpSrc, Field::TcpDst);
                Segment::Tcp(TcpSegment { src, dst, flags: small(Field::TcpFlags), ..TcpSegment::default() })
            }
            ip_proto::UDP => {
                let (src, dst) = ports(Field::UdpSrc, Field::UdpDst);
                Segment::Udp { src, dst, payload: Vec::new() }
            }
            ip_proto::SCTP => {
                let (src, dst) = ports(Field::SctpSrc, Field::SctpDst);
                Segment::Sctp { src, dst }
            }
            ip_proto::ICMP if kind == eth_type::IPV4 => Segment::Icmp {
                kind: byte(Field::Icmpv4Type).unwrap_or(8),
                code: byte(Field::Icmpv4Code).unwrap_or_default(),
                rest: vec![0; 4],
            },
            ip_proto::ICMPV6 if kind == eth_type::IPV6 => {
                let kind = byte(Field::Icmpv6Type).unwrap_or(128);
                let option: &[u8] = match kind {
                    135 if value(Field::NdSll).is_some() => &[1, 1, 0, 0, 0, 0, 0, 0],
                    136 if value(Field::NdTll).is_some() => &[2, 1, 0, 0, 0, 0, 0, 0],
                    _ => &[],
                };
                let rest = if matches!(kind, 135 | 136) { [&[0; 20], option].concat() } else { vec![0; 4] };
                Segment::Icmp { kind, code: byte(Field::Icmpv6Code).unwrap_or_default(), rest }
            }
            proto => Segment::Other { proto, payload: Vec::new() },
        };
        let zero = [0; 6];
        let ttl = byte(Field::IpTtl).unwrap_or(64);
        let mut packet = match kind {
            eth_type::IPV4 => Packet::ip(zero, zero, v4(Field::Ipv4Src), v4(Field::Ipv4Dst), ttl, &segment),
            eth_type::IPV6 => Packet::ip(zero, zero, v6(Field::Ipv6Src), v6(Field::Ipv6Dst), ttl, &segment),
            eth_type::ARP => Packet::arp(zero, zero, 0, (zero, [0; 4]), (zero, [0; 4])),
            kind => Packet::ethernet(zero, zero, kind, &[]),
        };
        if value(Field::VlanVid).is_some_and(|vid| vid & 0x1000 != 0) {
            packet = packet.tagged(0, 0);
        }
        let mut arrival = Arrival::new(Port(0), packet);
        for (field, value, mask) in matches.fields() {
            arrival.set(field, value, mask)?;
        }
        Ok(arrival)
    }

    fn set(&mut self, field: Field, value: u128, mask: u128) -> Result<(), ArrivalError> {
        // Flags are given one by one, and those that are not named are not set.
        if mask != field.full_mask() && !matches!(field, Field::TcpFlags | Field::VlanVid) {
            return Err(ArrivalError::Masked(field.name()));
        }
        match field {
            Field::InPort => self.in_port = Port(u32::try_from(value).unwrap_or_default()),
            Field::PktMark => self.pkt_mark = u32::try_from(value).unwrap_or_default(),
            f if (Field::TunId..=Field::TunFlags).contains(&f) => self.tunnel.set(f, value),
            Field::EthType | Field::IpProto => {}
            f if f < Field::VlanVid => return Err(ArrivalError::Field(f.name())),
            f => {
                self.packet.set(f, value);
                if self.packet.get(f) != value {
                    return Err(ArrivalError::WrongProtocol { field: f.name(), what: self.packet.protocol() });
                }
            }
        }
        Ok(())
    }
}

const FLAGS: [&str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];

impl Packet {
    /// The name of its innermost protocol.
    pub fn protocol(&self) -> &'static str {
        match (self.layout.transport, self.layout.net) {
            (Transport::Tcp, Net::V6) => "tcp6",
            (Transport::Udp, Net::V6) => "udp6",
            (Transport::Sctp, Net::V6) => "sctp6",
            (Transport::Tcp, _) => "tcp",
            (Transport::Udp, _) => "udp",
            (Transport::Sctp, _) => "sctp",
            (Transport::Icmp, _) => "icmp",
            (Transport::Icmpv6, _) => "icmp6",
            (Transport::None, Net::V4) => "ip",
            (Transport::None, Net::V6) => "ipv6",
            (Transport::None, Net::Arp) => "arp",
            (Transport::None, Net::Other) => "ethernet",
        }
    }
}

/// `tcp 10.0.0.1:1000 > 10.0.0.2:80 syn ttl 64 (0a:00:00:00:00:01 > 0a:00:00:00:00:02)`
impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.protocol())?;
        let ip = |field| Ipv4Addr::from(u32::try_from(self.get(field)).unwrap_or_default());
        match (self.src(), self.dst(), self.ports()) {
            (Some(src), Some(dst), Some((from, to))) => {
                let (src, dst) = (std::net::SocketAddr::new(src, from), std::net::SocketAddr::new(dst, to));
                write!(f, " {src} > {dst}")?;
            }
            (Some(src), Some(dst), None) => write!(f, " {src} > {dst}")?,
            _ if self.layout.net == Net::Arp => match self.get(Field::ArpOp) {
                1 => write!(f, " who-has {} tell {}", ip(Field::ArpTpa), ip(Field::ArpSpa))?,
                2 => write!(f, " {} is-at {}", ip(Field::ArpSpa), Mac(self.get(Field::ArpSha)))?,
                op => write!(f, " op {op}")?,
            },
            _ => write!(f, " type {:#06x}", self.layout.eth_type)?,
        }
        match self.layout.transport {
            Transport::Tcp => {
                let flags = self.get(Field::TcpFlags);
                let names = FLAGS.iter().enumerate().filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, name)| *name);
                write!(f, " {}", names.collect::<Vec<_>>().join("+"))?;
            }
            Transport::Icmp => write!(f, " {}/{}", self.get(Field::Icmpv4Type), self.get(Field::Icmpv4Code))?,
            Transport::Icmpv6 => write!(f, " {}/{}", self.get(Field::Icmpv6Type), self.get(Field::Icmpv6Code))?,
            _ => {}
        }
        if self.src().is_some() {
            write!(f, " ttl {}", self.get(Field::IpTtl))?;
        }
        if self.layout.vlan.is_some() {
            write!(f, " vlan {}", self.get(Field::VlanVid) & 0xfff)?;
        }
        write!(f, " ({} > {})", Mac(self.get(Field::EthSrc)), Mac(self.get(Field::EthDst)))
    }
}

struct Mac(u128);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.to_be_bytes();
        let bytes = bytes.last_chunk::<6>().unwrap_or(&[0; 6]);
        f.write_str(&bytes.map(|byte| format!("{byte:02x}")).join(":"))
    }
}
