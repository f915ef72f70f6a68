//! Matches in ovs-ofctl's notation.

use std::fmt;
use std::str::FromStr;

use super::{Match, eth_type, ip_proto};
use crate::field::{Field, Format, parse_masked, write_masked};
use crate::text::{Item, ParseError, Parsed, Value, dotted_hex, items, parse_dotted_hex, wrong};
use crate::wire::low_u8;

/// Words for an Ethernet type and, where it is one, the IP protocol.
const KEYWORDS: &[(&str, u16, Option<u8>)] = &[
    ("icmp", eth_type::IPV4, Some(ip_proto::ICMP)),
    ("tcp", eth_type::IPV4, Some(ip_proto::TCP)),
    ("udp", eth_type::IPV4, Some(ip_proto::UDP)),
    ("sctp", eth_type::IPV4, Some(ip_proto::SCTP)),
    ("ip", eth_type::IPV4, None),
    ("ip4", eth_type::IPV4, None),
    ("icmp6", eth_type::IPV6, Some(ip_proto::ICMPV6)),
    ("tcp6", eth_type::IPV6, Some(ip_proto::TCP)),
    ("udp6", eth_type::IPV6, Some(ip_proto::UDP)),
    ("sctp6", eth_type::IPV6, Some(ip_proto::SCTP)),
    ("ipv6", eth_type::IPV6, None),
    ("ip6", eth_type::IPV6, None),
    ("arp", eth_type::ARP, None),
    ("rarp", eth_type::RARP, None),
    ("mpls", 0x8847, None),
    ("mplsm", 0x8848, None),
];

const VLAN_PRESENT: u128 = 0x1000;
const VLAN_FULL: u128 = 0x1fff;

/// Field name as matches print it, where it differs from the one in the table.
fn match_name(field: Field) -> &'static str {
    match field {
        Field::EthType => "dl_type",
        Field::EthSrc => "dl_src",
        Field::EthDst => "dl_dst",
        Field::Ipv4Src => "nw_src",
        Field::Ipv4Dst => "nw_dst",
        Field::IpFrag => "nw_frag",
        Field::VlanPcp => "dl_vlan_pcp",
        Field::Icmpv6Type => "icmp_type",
        Field::Icmpv6Code => "icmp_code",
        Field::TcpSrc | Field::UdpSrc | Field::SctpSrc => "tp_src",
        Field::TcpDst | Field::UdpDst | Field::SctpDst => "tp_dst",
        _ => field.name(),
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Commas { f, first: true };
        let eth = self.exact(Field::EthType);
        let proto = self.exact(Field::IpProto);
        let keyword = KEYWORDS
            .iter()
            .find(|(_, e, p)| eth == Some(u128::from(*e)) && (p.is_none() || proto == p.map(u128::from)));
        // ovs-ofctl prints these three not where they stand on the wire, but before the field named beside each.
        let mut late = [
            (Field::Reg0, keyword.map(|(word, _, _)| (*word).to_owned())),
            (Field::Ipv4Src, eth.filter(|_| keyword.is_none()).map(|e| format!("dl_type=0x{e:04x}"))),
            (
                Field::ArpOp,
                proto
                    .filter(|_| keyword.is_none_or(|k| k.2.is_none()))
                    .map(|p| format!("{}={p}", self.name_of(Field::IpProto))),
            ),
        ];
        for (field, value, mask) in self.fields() {
            for (before, text) in &mut late {
                if field >= *before
                    && let Some(text) = text.take()
                {
                    out.put(&text)?;
                }
            }
            if !matches!(field, Field::EthType | Field::IpProto) {
                self.write_field(&mut out, field, value, mask)?;
            }
        }
        for (_, text) in late {
            if let Some(text) = text {
                out.put(&text)?;
            }
        }
        for tlv in self.unknown() {
            out.put(&format!("unknown={}", dotted_hex(tlv)))?;
        }
        Ok(())
    }
}

struct Commas<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    first: bool,
}

impl Commas<'_, '_> {
    fn put(&mut self, text: &str) -> fmt::Result {
        if !std::mem::take(&mut self.first) {
            self.f.write_str(",")?;
        }
        self.f.write_str(text)
    }
}

impl Match {
    /// The name to print a field by. One that stands for several fields is used only where the match determines which.
    fn name_of(&self, field: Field) -> &'static str {
        let shared = matches!(
            match_name(field),
            "nw_src" | "nw_dst" | "nw_proto" | "tp_src" | "tp_dst" | "icmp_type" | "icmp_code" | "dl_vlan_pcp"
        );
        if shared && !self.meets(field.spec().requires) { field.spec().nxm_name } else { match_name(field) }
    }

    fn write_field(&self, out: &mut Commas<'_, '_>, field: Field, value: u128, mask: u128) -> fmt::Result {
        let exact = mask == field.full_mask();
        match field {
            Field::Ipv6Label if exact => out.put(&format!("ipv6_label=0x{value:05x}")),
            Field::Ipv6Label => out.put(&format!("ipv6_label=0x{value:05x}/0x{mask:05x}")),
            _ if !exact && field.spec().format == Format::Decimal && field != Field::VlanVid => {
                out.put(&format!("{}={value:#x}/{mask:#x}", self.name_of(field)))
            }
            Field::IpDscp => out.put(&format!("nw_tos={}", value << 2)),
            Field::CtZone => out.put(&format!("ct_zone={value}")),
            Field::VlanVid if exact && value & VLAN_PRESENT != 0 => {
                out.put(&format!("dl_vlan={}", value & !VLAN_PRESENT))
            }
            Field::VlanVid if (value, mask) == (VLAN_PRESENT, VLAN_PRESENT) && self.get(Field::VlanPcp).is_some() => {
                Ok(())
            }
            Field::VlanVid => out.put(&format!("vlan_tci=0x{value:04x}/0x{mask:04x}")),
            _ => {
                let mut text = format!("{}=", self.name_of(field));
                write_masked(&mut text, field, value, mask)?;
                out.put(&text)
            }
        }
    }
}

/// Collects the items of a match; the meaning of a name may depend on later items.
#[derive(Default)]
pub(crate) struct MatchParser<'a> {
    matches: Match,
    ambiguous: Vec<Item<'a>>,
}

impl<'a> MatchParser<'a> {
    /// Takes an item if it belongs to a match.
    pub(crate) fn take(&mut self, item: Item<'a>) -> Parsed<bool> {
        if let Some((_, eth, proto)) = KEYWORDS.iter().find(|(word, _, _)| *word == item.key) {
            if item.value != Value::None {
                return wrong(item.whole, "takes no value");
            }
            self.set(item, Field::EthType, u128::from(*eth), Field::EthType.full_mask())?;
            if let Some(proto) = proto {
                self.set(item, Field::IpProto, u128::from(*proto), Field::IpProto.full_mask())?;
            }
            return Ok(true);
        }
        match item.key {
            "tp_src" | "tp_dst" | "icmp_type" | "icmp_code" | "nw_src" | "nw_dst" | "nw_proto" => {
                self.ambiguous.push(item);
            }
            "nw_tos" => {
                let tos = item.number(255)?;
                if tos & 3 != 0 {
                    return wrong(item.whole, "the two lowest bits of nw_tos are nw_ecn");
                }
                self.set(item, Field::IpDscp, u128::from(tos >> 2), Field::IpDscp.full_mask())?;
            }
            "dl_vlan" => match item.number(0xffff)? {
                0xffff => self.set(item, Field::VlanVid, 0, VLAN_FULL)?,
                vid @ 0..=0xfff => self.set(item, Field::VlanVid, VLAN_PRESENT | u128::from(vid), VLAN_FULL)?,
                _ => return wrong(item.whole, "needs a VLAN from 0 to 4095"),
            },
            "dl_vlan_pcp" | "vlan_pcp" => {
                if self.matches.get(Field::VlanVid).is_none() {
                    self.matches.set(Field::VlanVid, VLAN_PRESENT, VLAN_PRESENT);
                }
                self.set(item, Field::VlanPcp, u128::from(item.number(7)?), Field::VlanPcp.full_mask())?;
            }
            "vlan_tci" => self.vlan_tci(item)?,
            "unknown" => self.matches.tlvs.extend_from_slice(&self.unknown(item)?),
            key => match Field::by_name(key).filter(|f| f.spec().nxm_name != key) {
                Some(field) => self.parse(item, field)?,
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    /// The match, once all items are in.
    pub(crate) fn finish(mut self) -> Parsed<Match> {
        for item in std::mem::take(&mut self.ambiguous) {
            let eth = self.matches.exact(Field::EthType);
            let arp = eth == Some(u128::from(eth_type::ARP)) || eth == Some(u128::from(eth_type::RARP));
            let proto = self.matches.exact(Field::IpProto).map(low_u8);
            let field = match (item.key, arp, proto) {
                ("nw_src", true, _) => Field::ArpSpa,
                ("nw_dst", true, _) => Field::ArpTpa,
                ("nw_proto", true, _) => Field::ArpOp,
                ("nw_src", false, _) => Field::Ipv4Src,
                ("nw_dst", false, _) => Field::Ipv4Dst,
                ("nw_proto", false, _) => Field::IpProto,
                ("tp_src", false, Some(ip_proto::TCP)) => Field::TcpSrc,
                ("tp_dst", false, Some(ip_proto::TCP)) => Field::TcpDst,
                ("tp_src", false, Some(ip_proto::UDP)) => Field::UdpSrc,
                ("tp_dst", false, Some(ip_proto::UDP)) => Field::UdpDst,
                ("tp_src", false, Some(ip_proto::SCTP)) => Field::SctpSrc,
                ("tp_dst", false, Some(ip_proto::SCTP)) => Field::SctpDst,
                ("icmp_type", false, Some(ip_proto::ICMP)) => Field::Icmpv4Type,
                ("icmp_code", false, Some(ip_proto::ICMP)) => Field::Icmpv4Code,
                ("icmp_type", false, Some(ip_proto::ICMPV6)) => Field::Icmpv6Type,
                ("icmp_code", false, Some(ip_proto::ICMPV6)) => Field::Icmpv6Code,
                _ => return wrong(item.whole, "needs the protocol beside it, for example tcp or icmp6"),
            };
            self.parse(item, field)?;
        }
        if let Some((field, requires)) = self.matches.missing_requirement() {
            return wrong(match_name(field), format!("needs {requires:?} to be matched beside it"));
        }
        Ok(self.matches)
    }

    fn parse(&mut self, item: Item<'a>, field: Field) -> Parsed<()> {
        let text = item.text()?;
        let (value, mask) = parse_masked(field, text)?;
        if mask != field.full_mask() && !field.spec().maskable {
            return wrong(text, format!("{} can only be matched as a whole", field.name()));
        }
        self.set(item, field, value, mask)
    }

    fn set(&mut self, item: Item<'a>, field: Field, value: u128, mask: u128) -> Parsed<()> {
        for (field, value, mask) in field.split(value, mask).filter(|(_, _, mask)| *mask != 0) {
            match self.matches.get(field) {
                // So far, the match only required a tag.
                Some((VLAN_PRESENT, VLAN_PRESENT)) if field == Field::VlanVid => {}
                Some(old) if old != (value, mask) => {
                    return wrong(item.whole, format!("gives {} a second value", field.name()));
                }
                _ => {}
            }
            self.matches.set(field, value, mask);
        }
        Ok(())
    }

    fn vlan_tci(&mut self, item: Item<'a>) -> Parsed<()> {
        let text = item.text()?;
        let parsed = match text.split_once('/') {
            Some((value, mask)) => (crate::text::number(value), crate::text::number(mask)),
            None => (crate::text::number(text), Some(0xffff)),
        };
        let (Some(value @ 0..=0xffff), Some(mask @ 0..=0xffff)) = parsed else {
            return wrong(item.whole, "needs a number up to 0xffff");
        };
        let (vid, pcp) = (mask & VLAN_FULL, mask >> 13);
        self.set(item, Field::VlanVid, value & vid, vid)?;
        match pcp {
            0 => Ok(()),
            // An untagged frame has no priority.
            7 if value & VLAN_PRESENT == 0 => Ok(()),
            7 => self.set(item, Field::VlanPcp, value >> 13, 7),
            _ => wrong(item.whole, "the priority can only be matched as a whole"),
        }
    }

    fn unknown(&self, item: Item<'a>) -> Parsed<Vec<u8>> {
        let bytes = parse_dotted_hex(item.text()?)?;
        match Match::from_tlvs(crate::wire::Reader::new(&bytes)) {
            Ok(m) if m.fields().next().is_none() => Ok(bytes),
            _ => wrong(item.whole, "is not a field that is unknown"),
        }
    }
}

impl FromStr for Match {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut parser = MatchParser::default();
        for item in items(text) {
            let item = item?;
            if !parser.take(item)? {
                return wrong(item.whole, "is not a field that can be matched");
            }
        }
        parser.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_print_as_ovs_ofctl_prints_them() {
        for text in [
            "",
            "ip",
            "ct_state=-new+est,ip",
            "ct_state=+rpl+trk,ct_mark=0x20,ip",
            "tcp,reg4=0x30000/0x70000,nw_dst=10.96.0.30,tp_dst=80",
            "arp,in_port=3,arp_spa=10.10.0.2,arp_op=1,arp_sha=0a:00:0a:0a:01:01",
            "ct_label=0x1/0xffffffff,ip",
            "icmp6,ipv6_src=fe80::/64,icmp_type=135,icmp_code=0,nd_target=fe80::1,nd_sll=00:00:00:00:00:01",
            "pkt_mark=0x1/0x1",
            "conj_id=7,ip",
            "udp,dl_vlan=5,tp_src=0x10/0xfff0",
            "in_port=LOCAL,dl_type=0x1234",
            "ip,dl_src=0a:00:00:00:00:01,nw_src=10.0.0.0/8,nw_proto=47,nw_tos=16",
            "tcp,nw_frag=not_later,tcp_flags=+syn-ack",
        ] {
            let parsed: Match = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn other_spellings_mean_the_same() {
        for (a, b) in [
            ("eth_type=0x800,ip_proto=6,tcp_dst=80", "tcp,tp_dst=80"),
            ("tp_dst=80,tcp", "tcp,tp_dst=80"),
            ("ip,nw_src=1.2.3.4/255.255.0.0", "ip,nw_src=1.2.0.0/16"),
            ("arp,nw_src=1.2.3.4", "arp,arp_spa=1.2.3.4"),
            ("ct_state=0x21/0x21", "ct_state=+new+trk"),
            ("xreg2=0x3000000000000/0x7000000000000", "reg4=0x30000/0x70000"),
            ("vlan_tci=0", "dl_vlan=0xffff"),
        ] {
            assert_eq!(a.parse::<Match>().unwrap(), b.parse::<Match>().unwrap(), "{a} {b}");
        }
    }

    #[test]
    fn a_name_that_fields_share_is_not_printed_where_it_means_another_one() {
        let arp = Match::arp().with(Field::Ipv4Src, 1u32).with(Field::IpProto, 6u8);
        assert_eq!(arp.to_string(), "arp,NXM_OF_IP_SRC=0.0.0.1,NXM_OF_IP_PROTO=6");
        let tcp = Match::ip().with(Field::IpProto, 6u8).with(Field::UdpDst, 53u16);
        assert_eq!(tcp.to_string(), "tcp,NXM_OF_UDP_DST=53");
    }

    #[test]
    fn wrong_matches_say_what_is_wrong() {
        for (text, problem) in [
            ("tp_dst=80", "`tp_dst=80`: needs the protocol beside it, for example tcp or icmp6"),
            ("nw_src=10.0.0.1", "`nw_src`: needs Ipv4 to be matched beside it"),
            ("ip,nw_src=10.0.0.300", "`10.0.0.300`: needs an IPv4 address such as 10.0.0.0/8"),
            ("tcp,udp", "`udp`: gives nw_proto a second value"),
            ("reg0=0x100000000", "`0x100000000`: does not fit the 32 bits of reg0"),
            ("conj_id=1/3", "`1/3`: conj_id can only be matched as a whole"),
            ("xreg0=1,reg1=2", "`reg1=2`: gives reg1 a second value"),
            ("colour=red", "`colour=red`: is not a field that can be matched"),
            ("ct_state=+old", "`old`: is none of new, est, rel, rpl, inv, trk, snat, dnat"),
        ] {
            assert_eq!(text.parse::<Match>().unwrap_err().to_string(), problem);
        }
    }
}
