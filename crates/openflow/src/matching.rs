//! Matches of flows (`struct ofp_match`).

mod text;

pub(crate) use text::MatchParser;

use std::fmt;

use crate::field::{Field, Requires, Tlv};
use crate::wire::{DecodeError, Decoded, Put, Reader};

/// Ethernet types that the table of fields refers to.
pub mod eth_type {
    /// Internet Protocol version 4 (RFC 791).
    pub const IPV4: u16 = 0x0800;
    /// Address Resolution Protocol (RFC 826).
    pub const ARP: u16 = 0x0806;
    /// Reverse ARP (RFC 903).
    pub const RARP: u16 = 0x8035;
    /// Internet Protocol version 6 (RFC 8200).
    pub const IPV6: u16 = 0x86dd;
}

/// IP protocols that the table of fields refers to.
pub mod ip_proto {
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: u8 = 1;
    /// Transmission Control Protocol (RFC 9293).
    pub const TCP: u8 = 6;
    /// User Datagram Protocol (RFC 768).
    pub const UDP: u8 = 17;
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// Stream Control Transmission Protocol.
    pub const SCTP: u8 = 132;
}

/// A set of conditions on a packet, all of which must hold.
///
/// It is kept as the bytes it has on the wire, in canonical form: ordered by field, no field twice, no value bit outside
/// its mask, no mask that is full or empty, wide registers split into 32-bit ones, and fields that are not in the table at
/// the end. Equal matches are therefore equal bytes, sending one is a copy, and a small one takes few bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Match {
    tlvs: Vec<u8>,
}

impl Match {
    /// The match that every packet meets.
    pub const fn any() -> Self {
        Self { tlvs: Vec::new() }
    }

    /// Matches all IPv4 packets.
    pub fn ip() -> Self {
        Self::any().with(Field::EthType, eth_type::IPV4)
    }

    /// Matches all IPv6 packets.
    pub fn ipv6() -> Self {
        Self::any().with(Field::EthType, eth_type::IPV6)
    }

    /// Matches all ARP packets.
    pub fn arp() -> Self {
        Self::any().with(Field::EthType, eth_type::ARP)
    }

    /// And the field has this value.
    #[must_use]
    pub fn with(mut self, field: Field, value: impl Into<u128>) -> Self {
        self.set(field, value.into(), field.full_mask());
        self
    }

    /// And the bits of the field that are set in the mask have the value's.
    #[must_use]
    pub fn with_masked(mut self, field: Field, value: impl Into<u128>, mask: impl Into<u128>) -> Self {
        self.set(field, value.into(), mask.into());
        self
    }

    /// Replaces the condition on a field; an empty mask removes it. Excess bits are cut off.
    pub fn set(&mut self, field: Field, value: u128, mask: u128) {
        if field.registers().is_some() {
            for (register, value, part) in field.split(value, mask).filter(|(_, _, part)| *part != 0 || mask == 0) {
                self.set(register, value, part);
            }
            return;
        }
        let mask = mask & field.full_mask();
        let (start, end) = self.find(field);
        let mut tlv = Vec::new();
        if mask != 0 {
            field.put_tlv(&mut tlv, value & mask, mask);
        }
        if start == self.tlvs.len() {
            self.tlvs.extend_from_slice(&tlv);
        } else {
            self.tlvs.splice(start..end, tlv);
        }
    }

    /// Value and mask of the condition on a field.
    pub fn get(&self, field: Field) -> Option<(u128, u128)> {
        self.fields().find(|(f, _, _)| *f == field).map(|(_, value, mask)| (value, mask))
    }

    /// The value of a field that is matched as a whole.
    pub fn exact(&self, field: Field) -> Option<u128> {
        self.get(field).filter(|(_, mask)| *mask == field.full_mask()).map(|(value, _)| value)
    }

    /// The known conditions as (field, value, mask), in wire order.
    pub fn fields(&self) -> impl Iterator<Item = (Field, u128, u128)> + '_ {
        self.tlvs().filter_map(|tlv| match tlv {
            Tlv::Known { field, value, mask } => Some((field, value, mask)),
            Tlv::Unknown(_) => None,
        })
    }

    /// The conditions on fields that are not in the table, as their bytes.
    pub fn unknown(&self) -> impl Iterator<Item = &[u8]> + '_ {
        self.tlvs().filter_map(|tlv| match tlv {
            Tlv::Unknown(bytes) => Some(bytes),
            Tlv::Known { .. } => None,
        })
    }

    /// Whether every packet meets it.
    pub fn is_any(&self) -> bool {
        self.tlvs.is_empty()
    }

    /// The first field whose prerequisite is missing; the switch rejects such a match.
    pub fn missing_requirement(&self) -> Option<(Field, Requires)> {
        self.fields().map(|(field, _, _)| (field, field.spec().requires)).find(|(_, r)| !self.meets(*r))
    }

    fn meets(&self, requires: Requires) -> bool {
        let eth = self.exact(Field::EthType);
        let v4 = eth == Some(u128::from(eth_type::IPV4));
        let v6 = eth == Some(u128::from(eth_type::IPV6));
        let proto = |p: u8| self.exact(Field::IpProto) == Some(u128::from(p));
        // Only the first fragment of a packet has a transport header.
        let whole = self.get(Field::IpFrag).is_none_or(|(value, _)| value & 2 == 0);
        let proto = |p: u8| whole && proto(p);
        let icmpv6 = |types: &[u128]| {
            v6 && proto(ip_proto::ICMPV6)
                && self.exact(Field::Icmpv6Type).is_some_and(|t| types.contains(&t))
                && self.exact(Field::Icmpv6Code).is_none_or(|code| code == 0)
        };
        // The original tuple is only there for packets that belong to a connection: one of +new, +est, +rel, +rpl, +snat,
        // +dnat says so, or +trk-inv.
        let tracked = || {
            self.get(Field::CtState).is_some_and(|(value, mask)| {
                value & 0b1100_1111 != 0 || (value & 0x20 != 0 && mask & 0x10 != 0 && value & 0x10 == 0)
            })
        };
        match requires {
            Requires::Nothing => true,
            Requires::Ip => v4 || v6,
            Requires::Ipv4 => v4,
            Requires::Ipv6 => v6,
            Requires::Arp => [eth_type::ARP, eth_type::RARP].iter().any(|t| eth == Some(u128::from(*t))),
            Requires::Tcp => (v4 || v6) && proto(ip_proto::TCP),
            Requires::Udp => (v4 || v6) && proto(ip_proto::UDP),
            Requires::Sctp => (v4 || v6) && proto(ip_proto::SCTP),
            Requires::Icmpv4 => v4 && proto(ip_proto::ICMP),
            Requires::Icmpv6 => v6 && proto(ip_proto::ICMPV6),
            Requires::Nd => icmpv6(&[135, 136]),
            Requires::NdSolicit => icmpv6(&[135]),
            Requires::NdAdvert => icmpv6(&[136]),
            Requires::Vlan => self.get(Field::VlanVid).is_some_and(|(value, _)| value & 0x1000 != 0),
            Requires::CtIp => (v4 || v6) && tracked(),
            Requires::CtIpv4 => v4 && tracked(),
            Requires::CtIpv6 => v6 && tracked(),
            Requires::CtPorts => (v4 || v6) && tracked() && self.get(Field::CtNwProto).is_some(),
        }
    }

    /// The bare TLVs, without header or padding.
    pub(crate) fn as_tlvs(&self) -> &[u8] {
        &self.tlvs
    }

    /// Decodes OXM TLVs without the match header.
    pub(crate) fn from_tlvs(mut reader: Reader<'_>) -> Decoded<Self> {
        let mut matches = Match::any();
        while !reader.is_empty() {
            match Tlv::read(&mut reader)? {
                Tlv::Known { field, value, mask } => {
                    if mask != 0 && mask != field.full_mask() && !field.spec().maskable {
                        return Err(DecodeError::BadValue {
                            what: "mask of a field that takes none",
                            value: field as u64,
                        });
                    }
                    if field.split(value, mask).any(|(f, _, part)| part != 0 && matches.get(f).is_some()) {
                        return Err(DecodeError::BadValue { what: "field given twice", value: field as u64 });
                    }
                    matches.set(field, value, mask);
                }
                // Known fields are inserted before it, so unknown ones stay at the end in the order of arrival.
                Tlv::Unknown(bytes) => matches.tlvs.extend_from_slice(bytes),
            }
        }
        Ok(matches)
    }

    /// Writes the match as messages carry it: type, length, TLVs, padding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(1);
        out.put_u16(0);
        out.put(&self.tlvs);
        out.patch_len(start + 2, start);
        out.pad8_since(start);
    }

    /// Reads a match as messages carry it.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let kind = reader.u16("match type")?;
        if kind != 1 {
            return Err(DecodeError::BadValue { what: "match type", value: u64::from(kind) });
        }
        let length = usize::from(reader.u16("match length")?);
        let Some(tlvs) = length.checked_sub(4) else {
            return Err(DecodeError::BadLength { what: "match", length });
        };
        let matches = Self::from_tlvs(reader.sub(tlvs, "match fields")?)?;
        reader.skip((8 - length % 8) % 8, "match padding")?;
        Ok(matches)
    }

    fn tlvs(&self) -> impl Iterator<Item = Tlv<'_>> + '_ {
        let mut reader = Reader::new(&self.tlvs);
        // Stored bytes were written by `put_tlv` or read by `Tlv::read`, so they can be read.
        std::iter::from_fn(move || if reader.is_empty() { None } else { Tlv::read(&mut reader).ok() })
    }

    /// Where the field's TLV is, or (an empty range) where it belongs.
    fn find(&self, field: Field) -> (usize, usize) {
        let mut reader = Reader::new(&self.tlvs);
        loop {
            let start = reader.offset();
            match (!reader.is_empty()).then(|| Tlv::read(&mut reader)) {
                Some(Ok(Tlv::Known { field: f, .. })) if f < field => {}
                Some(Ok(Tlv::Known { field: f, .. })) if f == field => return (start, reader.offset()),
                _ => return (start, start),
            }
        }
    }
}

impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Match({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::hex;

    #[test]
    fn the_order_in_which_conditions_are_added_does_not_matter() {
        let a = Match::any().with(Field::Ipv4Src, 1u32).with(Field::EthType, 0x800u16).with_masked(
            Field::Reg4,
            0xffu32,
            0xfu32,
        );
        let b = Match::any()
            .with_masked(Field::Reg4, 0xfu32, 0xfu32)
            .with(Field::EthType, 0x800u16)
            .with(Field::Ipv4Src, 1u32);
        assert_eq!(a, b);
        assert_eq!(a.get(Field::Reg4), Some((0xf, 0xf)));
    }

    #[test]
    fn wide_registers_are_narrow_ones() {
        let wide = Match::any().with_masked(Field::Xxreg3, 0x1_0000_0002u128, 0xf_0000_000fu128);
        let narrow = Match::any().with_masked(Field::Reg14, 1u32, 0xfu32).with_masked(Field::Reg15, 2u32, 0xfu32);
        assert_eq!(wide, narrow);
    }

    #[test]
    fn an_empty_mask_removes_the_condition() {
        let mut m = Match::ip().with(Field::Ipv4Dst, 7u32);
        m.set(Field::Ipv4Dst, 7, 0);
        assert_eq!(m, Match::ip());
    }

    #[test]
    fn a_field_without_what_it_requires_is_found() {
        assert_eq!(Match::ip().with(Field::TcpDst, 80u16).missing_requirement(), Some((Field::TcpDst, Requires::Tcp)));
        assert_eq!(Match::ip().with(Field::Ipv4Dst, 80u32).missing_requirement(), None);
    }

    #[test]
    fn bytes_that_no_switch_sends_are_not_taken_for_something_else() {
        let read = |tlvs: &str| Match::from_tlvs(Reader::new(&hex(tlvs)));
        let error = |tlvs: &str| read(tlvs).unwrap_err().to_string();
        assert_eq!(
            error("00010004.00000001.80010008.0000000000000005"),
            "field given twice: value 0x22 is not allowed"
        );
        assert_eq!(error("80000b04.0800ff00"), "mask of a field that takes none: value 0x0 is not allowed");
        // A VLAN of 16 bits.
        assert_eq!(read("80000c02.f005").unwrap().to_string(), "unknown=80.00.0c.02.f0.05");
    }

    #[test]
    fn unknown_fields_keep_their_bytes_and_stay_at_the_end() {
        let unknown = [0xff, 0xff, 0x02, 0x05, 0, 0, 0x23, 0x20, 9];
        let mut tlvs = unknown.to_vec();
        tlvs.extend_from_slice(Match::ip().as_tlvs());
        let m = Match::from_tlvs(Reader::new(&tlvs)).unwrap();
        assert_eq!(m.unknown().collect::<Vec<_>>(), [&unknown[..]]);
        assert_eq!(m.exact(Field::EthType), Some(0x800));
        assert!(m.as_tlvs().ends_with(&unknown));
    }
}
