//! Connections as the datapath tracks them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::fields::{inner, key_value, number, split};

/// A connection that the datapath tracks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConntrackEntry {
    /// Transport protocol of the connection.
    pub protocol: ConntrackProtocol,
    /// Addresses and ports of the first packet.
    pub original: ConntrackTuple,
    /// Addresses and ports of a reply, after NAT.
    pub reply: ConntrackTuple,
    /// The connection tracking zone (`ct_zone`).
    pub zone: u16,
    /// The connection mark (`ct_mark`).
    pub mark: u32,
    /// The connection label (`ct_label`).
    pub label: u128,
    /// State of a TCP or SCTP connection, such as `ESTABLISHED`.
    pub state: Option<String>,
    /// Other fields of the dump, as text.
    pub other: BTreeMap<String, String>,
}

/// One direction of a connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ConntrackTuple {
    /// Source address of the packets.
    pub src: IpAddr,
    /// Destination address of the packets.
    pub dst: IpAddr,
    /// Ports, or the fields of ICMP.
    pub layer4: Layer4,
    /// Other fields of the dump, as text.
    pub other: BTreeMap<String, String>,
}

/// The fields that distinguish connections between the same two addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Layer4 {
    /// Ports of TCP, UDP and SCTP.
    Ports {
        /// Source port of the packets.
        src: u16,
        /// Destination port of the packets.
        dst: u16,
    },
    /// Fields of ICMP and ICMPv6 messages.
    Icmp {
        /// The identifier of an echo.
        id: u16,
        /// Type of the message.
        kind: u8,
        /// Code of the message.
        code: u8,
    },
    /// Protocols without such fields.
    None,
}

/// The protocol of a connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ConntrackProtocol {
    /// IP protocol number 6.
    Tcp,
    /// IP protocol number 17.
    Udp,
    /// IP protocol number 132.
    Sctp,
    /// IP protocol number 1.
    Icmp,
    /// IP protocol number 58.
    Icmpv6,
    /// Any other protocol, by the name or number that the switch prints.
    Other(String),
}

/// The connections to forget; an absent field matches all. Printed in the syntax of `dpctl/flush-conntrack`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConntrackMatch {
    /// Source address of the first packet.
    pub src: Option<IpAddr>,
    /// Destination address of the first packet.
    pub dst: Option<IpAddr>,
    /// IP protocol number, such as 6 for TCP.
    pub protocol: Option<u8>,
    /// Port of the sender.
    pub src_port: Option<u16>,
    /// Port of the receiver.
    pub dst_port: Option<u16>,
    /// Identifier of an ICMP echo.
    pub icmp_id: Option<u16>,
    /// Type of an ICMP message.
    pub icmp_type: Option<u8>,
    /// Code of an ICMP message.
    pub icmp_code: Option<u8>,
}

impl ConntrackEntry {
    /// Reads a line of `dpctl/dump-conntrack`; `None` if a part that is known cannot be read or one is missing.
    pub fn parse(line: &str) -> Option<Self> {
        let mut parts = split(line.trim_end())?.into_iter();
        let protocol = ConntrackProtocol::named(parts.next()?);
        let (mut original, mut reply, mut state) = (None, None, None);
        let (mut zone, mut mark, mut label) = (0, 0, 0);
        let mut other = BTreeMap::new();
        for (key, value) in parts.map(key_value) {
            match key {
                "orig" => original = Some(ConntrackTuple::parse(inner(value)?)?),
                "reply" => reply = Some(ConntrackTuple::parse(inner(value)?)?),
                "zone" => zone = value.parse().ok()?,
                "mark" => mark = number(value)?.try_into().ok()?,
                "labels" => label = number(value)?,
                "protoinfo" => {
                    for (key, value) in split(inner(value)?)?.into_iter().map(key_value) {
                        match key {
                            "state" => state = Some(value.to_owned()),
                            _ => drop(other.insert(format!("protoinfo.{key}"), value.to_owned())),
                        }
                    }
                }
                _ => drop(other.insert(key.to_owned(), value.to_owned())),
            }
        }
        Some(Self { protocol, original: original?, reply: reply?, zone, mark, label, state, other })
    }
}

impl ConntrackEntry {
    /// Whether it can be forgotten by what matches it: ovs-vswitchd 3.1 aborts in userspace when it forgets one of ICMPv6 like that.
    /// Such a connection goes with all of its zone, or ends by itself.
    pub fn is_flushable(&self) -> bool {
        self.protocol != ConntrackProtocol::Icmpv6
    }

    /// What matches this connection and, for TCP, UDP and ICMP, no other one of its zone.
    pub fn exactly(&self) -> ConntrackMatch {
        let ConntrackTuple { src, dst, layer4, .. } = &self.original;
        let mut exactly = ConntrackMatch {
            src: Some(*src),
            dst: Some(*dst),
            protocol: self.protocol.number(),
            ..ConntrackMatch::default()
        };
        match *layer4 {
            Layer4::Ports { src, dst } => (exactly.src_port, exactly.dst_port) = (Some(src), Some(dst)),
            Layer4::Icmp { id, kind, code } => {
                (exactly.icmp_id, exactly.icmp_type, exactly.icmp_code) = (Some(id), Some(kind), Some(code));
            }
            Layer4::None => {}
        }
        exactly
    }
}

impl ConntrackTuple {
    fn parse(text: &str) -> Option<Self> {
        let mut fields: BTreeMap<_, _> = split(text)?.into_iter().map(key_value).collect();
        let (src, dst) = (fields.remove("src")?.parse().ok()?, fields.remove("dst")?.parse().ok()?);
        let layer4 = if fields.contains_key("sport") {
            Layer4::Ports { src: take(&mut fields, "sport")?, dst: take(&mut fields, "dport")? }
        } else if fields.contains_key("type") {
            let (id, kind) = (take(&mut fields, "id")?, take(&mut fields, "type")?);
            Layer4::Icmp { id, kind, code: take(&mut fields, "code")? }
        } else {
            Layer4::None
        };
        let other = fields.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Some(Self { src, dst, layer4, other })
    }
}

impl ConntrackProtocol {
    fn named(name: &str) -> Self {
        match name {
            "tcp" => Self::Tcp,
            "udp" => Self::Udp,
            "sctp" => Self::Sctp,
            "icmp" => Self::Icmp,
            "icmpv6" => Self::Icmpv6,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Its number in an IP header, where it is known.
    pub fn number(&self) -> Option<u8> {
        match self {
            Self::Tcp => Some(6),
            Self::Udp => Some(17),
            Self::Sctp => Some(132),
            Self::Icmp => Some(1),
            Self::Icmpv6 => Some(58),
            Self::Other(name) => match name.as_str() {
                "igmp" => Some(2),
                "dccp" => Some(33),
                "udplite" => Some(136),
                number => number.parse().ok(),
            },
        }
    }
}

impl fmt::Display for ConntrackMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = |v4: &str, v6: &str, ip: Option<IpAddr>| {
            ip.map(|ip| format!("{}={ip}", if ip.is_ipv4() { v4 } else { v6 }))
        };
        let field = |key: &str, value: Option<u16>| value.map(|value| format!("{key}={value}"));
        let fields = [
            address("ct_nw_src", "ct_ipv6_src", self.src),
            address("ct_nw_dst", "ct_ipv6_dst", self.dst),
            field("ct_nw_proto", self.protocol.map(Into::into)),
            field("ct_tp_src", self.src_port),
            field("ct_tp_dst", self.dst_port),
            field("icmp_id", self.icmp_id),
            field("icmp_type", self.icmp_type.map(Into::into)),
            field("icmp_code", self.icmp_code.map(Into::into)),
        ];
        f.write_str(&fields.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

fn take<T: std::str::FromStr>(fields: &mut BTreeMap<&str, &str>, key: &str) -> Option<T> {
    fields.remove(key)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "tcp,orig=(src=10.0.0.1,dst=10.96.0.1,sport=1000,dport=80),reply=(src=10.0.0.2,dst=10.0.0.1,\
        sport=8080,dport=1000),id=7,zone=5,status=SEEN_REPLY|CONFIRMED,timeout=29,mark=7,labels=0x10000000000000001,\
        protoinfo=(state=ESTABLISHED,wscale_orig=7)";

    #[test]
    fn a_connection_is_read_with_what_is_not_known() {
        let entry = ConntrackEntry::parse(TCP).unwrap();
        assert_eq!(entry.protocol, ConntrackProtocol::Tcp);
        assert_eq!(entry.original.dst.to_string(), "10.96.0.1");
        assert_eq!(entry.reply.layer4, Layer4::Ports { src: 8080, dst: 1000 });
        assert_eq!((entry.zone, entry.mark, entry.label), (5, 7, (1 << 64) + 1));
        assert_eq!(entry.state.as_deref(), Some("ESTABLISHED"));
        let other: Vec<_> = entry.other.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let known =
            [("id", "7"), ("protoinfo.wscale_orig", "7"), ("status", "SEEN_REPLY|CONFIRMED"), ("timeout", "29")];
        assert_eq!(other, known);
    }

    #[test]
    fn the_zone_that_is_not_named_is_zero() {
        let line = "icmpv6,orig=(src=fd00::1,dst=fd00::2,id=3,type=128,code=0),reply=(src=fd00::2,dst=fd00::1,id=3,type=129,code=0)";
        let entry = ConntrackEntry::parse(line).unwrap();
        assert_eq!((entry.zone, entry.protocol), (0, ConntrackProtocol::Icmpv6));
        assert_eq!(entry.original.layer4, Layer4::Icmp { id: 3, kind: 128, code: 0 });
        let gre =
            ConntrackEntry::parse("47,orig=(src=1.1.1.1,dst=2.2.2.2,key=9),reply=(src=2.2.2.2,dst=1.1.1.1)").unwrap();
        assert_eq!((gre.protocol, gre.original.layer4), (ConntrackProtocol::Other("47".into()), Layer4::None));
        assert_eq!(gre.original.other.get("key").map(String::as_str), Some("9"));
    }

    #[test]
    fn a_line_that_is_cut_anywhere_is_never_misread_as_the_whole() {
        let whole = ConntrackEntry::parse(TCP);
        for end in 0..TCP.len() {
            assert_ne!(ConntrackEntry::parse(&TCP[..end]), whole, "{end}");
        }
        assert_eq!(ConntrackEntry::parse("tcp,orig=(src=x,dst=y),reply=(src=x,dst=y)"), None);
        assert_eq!(ConntrackEntry::parse(&TCP.replace("zone=5", "zone=70000")), None);
    }

    #[test]
    fn a_match_names_only_what_is_given() {
        let v4 = ConntrackMatch {
            src: Some("10.0.0.1".parse().unwrap()),
            protocol: Some(6),
            dst_port: Some(80),
            ..ConntrackMatch::default()
        };
        assert_eq!(v4.to_string(), "ct_nw_src=10.0.0.1,ct_nw_proto=6,ct_tp_dst=80");
        let v6 =
            ConntrackMatch { dst: Some("fd00::1".parse().unwrap()), icmp_type: Some(128), ..ConntrackMatch::default() };
        assert_eq!(v6.to_string(), "ct_ipv6_dst=fd00::1,icmp_type=128");
        assert_eq!(ConntrackMatch::default().to_string(), "");
    }
}
