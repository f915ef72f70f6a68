//! The actions that hold others: ct with its NAT, and learn.

use std::net::IpAddr;

use super::decode::decode_actions_at;
use super::encode::{nx, put_actions, put_nx};
use super::{Action, Ct, Learn, LearnSource, LearnSpec, Nat, NatSide, Subfield, Zone};
use crate::field::Field;
use crate::wire::{DecodeError, Decoded, Put, Reader};

const COMMIT: u16 = 1;
const FORCE: u16 = 2;
const NO_TABLE: u8 = 0xff;

const NAT_SRC: u16 = 1;
const NAT_DST: u16 = 2;
const NAT_PERSISTENT: u16 = 4;
const NAT_HASH: u16 = 8;
const NAT_RANDOM: u16 = 16;

const RANGE_IPV4_MIN: u16 = 1;
const RANGE_IPV4_MAX: u16 = 2;
const RANGE_IPV6_MIN: u16 = 4;
const RANGE_IPV6_MAX: u16 = 8;
const RANGE_PORT_MIN: u16 = 16;
const RANGE_PORT_MAX: u16 = 32;

const SEND_FLOW_REM: u16 = 1;
const DELETE_LEARNED: u16 = 2;

/// Bits of a learn spec's header, above the 11 that hold the number of bits.
const SPEC_SRC_VALUE: u16 = 1 << 13;
const SPEC_DST_MATCH: u16 = 0 << 11;
const SPEC_DST_LOAD: u16 = 1 << 11;
const SPEC_DST_OUTPUT: u16 = 2 << 11;
const SPEC_DST: u16 = 3 << 11;
const SPEC_BITS: u16 = (1 << 11) - 1;

impl Ct {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_nx(out, nx::CT, |out| {
            out.put_u16(if self.commit { COMMIT } else { 0 } | if self.force { FORCE } else { 0 });
            match self.zone {
                Zone::Number(zone) => {
                    out.put_u32(0);
                    out.put_u16(zone);
                }
                Zone::Field(src) => {
                    src.field().put_subfield_header(out);
                    out.put_u16(src.packed());
                }
            }
            out.put_u8(self.table.unwrap_or(NO_TABLE));
            out.put_zeros(3);
            out.put_u16(self.alg);
            if let Some(nat) = &self.nat {
                nat.encode(out);
            }
            put_actions(out, &self.exec);
        });
    }

    /// Decodes the bytes after the subtype; `None` if they hold a value that this crate cannot represent.
    pub(super) fn decode(body: &mut Reader<'_>, depth: usize) -> Decoded<Option<Ct>> {
        let flags = body.u16("ct flags")?;
        let mut zone_src = body.sub(4, "ct zone")?;
        let zone_is_number = { zone_src }.u32("ct zone")? == 0;
        let zone_field = if zone_is_number { None } else { Field::read_subfield_header(&mut zone_src)? };
        let zone_value = body.u16("ct zone")?;
        let table = body.u8("ct table")?;
        body.skip(3, "ct padding")?;
        let alg = body.u16("ct alg")?;
        let (nat, exec) = decode_ct_actions(body, depth)?;
        let zone = match (zone_is_number, zone_field.and_then(|f| Subfield::from_packed(f, zone_value))) {
            (true, _) => Zone::Number(zone_value),
            (false, Some(src)) => Zone::Field(src),
            (false, None) => return Ok(None),
        };
        if flags & !(COMMIT | FORCE) != 0 {
            return Ok(None);
        }
        Ok(Some(Ct {
            commit: flags & COMMIT != 0,
            force: flags & FORCE != 0,
            zone,
            table: (table != NO_TABLE).then_some(table),
            nat,
            exec,
            alg,
        }))
    }
}

/// A `nat` first, if there is one, then the actions to execute.
fn decode_ct_actions(body: &mut Reader<'_>, depth: usize) -> Decoded<(Option<Nat>, Vec<Action>)> {
    let mut ahead = *body;
    let nat = decode_nat(&mut ahead)?;
    if nat.is_some() {
        *body = ahead;
    }
    Ok((nat, decode_actions_at(body, depth + 1)?))
}

/// The next action, if it is a `nat` that this crate has a value for.
fn decode_nat(reader: &mut Reader<'_>) -> Decoded<Option<Nat>> {
    let Ok([0xff, 0xff, hi, lo, 0, 0, 0x23, 0x20, 0, 36]) = reader.array::<10>("action header") else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([hi, lo]));
    match length.checked_sub(10) {
        Some(rest) if length.is_multiple_of(8) => Nat::decode(&mut reader.sub(rest, "nat action")?),
        _ => Err(DecodeError::BadLength { what: "nat action", length }),
    }
}

impl Action {
    /// Whether its bytes are a `nat`, which has a place of its own in a [`Ct`], or a broken one.
    pub(super) fn is_nat(&self) -> bool {
        matches!(self, Action::Unknown(bytes) if decode_nat(&mut Reader::new(bytes)) != Ok(None))
    }
}

impl Nat {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = match self.side {
            None => 0,
            Some(NatSide::Src) => NAT_SRC,
            Some(NatSide::Dst) => NAT_DST,
        };
        for (on, flag) in [(self.persistent, NAT_PERSISTENT), (self.hash, NAT_HASH), (self.random, NAT_RANDOM)] {
            flags |= if on { flag } else { 0 };
        }
        let mut present = 0;
        let mut values = Vec::new();
        for (address, v4, v6) in
            [(self.address, RANGE_IPV4_MIN, RANGE_IPV6_MIN), (self.last_address, RANGE_IPV4_MAX, RANGE_IPV6_MAX)]
        {
            match address {
                Some(IpAddr::V4(a)) => {
                    present |= v4;
                    values.put(&a.octets());
                }
                Some(IpAddr::V6(a)) => {
                    present |= v6;
                    values.put(&a.octets());
                }
                None => {}
            }
        }
        for (port, bit) in [(self.port, RANGE_PORT_MIN), (self.last_port, RANGE_PORT_MAX)] {
            if let Some(port) = port {
                present |= bit;
                values.put_u16(port);
            }
        }
        put_nx(out, nx::NAT, |out| {
            out.put_zeros(2);
            out.put_u16(flags);
            out.put_u16(present);
            out.put(&values);
        });
    }

    fn decode(body: &mut Reader<'_>) -> Decoded<Option<Nat>> {
        body.skip(2, "nat padding")?;
        let flags = body.u16("nat flags")?;
        let present = body.u16("nat range")?;
        let mut address = |v4: u16, v6: u16| -> Decoded<Option<IpAddr>> {
            let v4 = if present & v4 != 0 { Some(IpAddr::from(body.array::<4>("nat address")?)) } else { None };
            let v6 = if present & v6 != 0 { Some(IpAddr::from(body.array::<16>("nat address")?)) } else { None };
            Ok(v4.or(v6))
        };
        let first = address(RANGE_IPV4_MIN, RANGE_IPV6_MIN)?;
        let last = address(RANGE_IPV4_MAX, RANGE_IPV6_MAX)?;
        let mut port = |bit: u16| if present & bit != 0 { body.u16("nat port").map(Some) } else { Ok(None) };
        let (first_port, last_port) = (port(RANGE_PORT_MIN)?, port(RANGE_PORT_MAX)?);
        let side = match flags & (NAT_SRC | NAT_DST) {
            0 => None,
            NAT_SRC => Some(NatSide::Src),
            NAT_DST => Some(NatSide::Dst),
            _ => return Ok(None),
        };
        let mixed =
            present & (RANGE_IPV4_MIN | RANGE_IPV4_MAX) != 0 && present & (RANGE_IPV6_MIN | RANGE_IPV6_MAX) != 0;
        let loose = side.is_none() && present != 0;
        let open = (last.is_some() && first.is_none()) || (last_port.is_some() && first_port.is_none());
        if mixed || loose || open || flags >= NAT_RANDOM << 1 || present >= RANGE_PORT_MAX << 1 {
            return Ok(None);
        }
        Ok(Some(Nat {
            side,
            address: first,
            last_address: last.filter(|l| Some(*l) != first),
            port: first_port,
            last_port: last_port.filter(|l| Some(*l) != first_port),
            // Without a side the switch does not look at them.
            persistent: side.is_some() && flags & NAT_PERSISTENT != 0,
            hash: side.is_some() && flags & NAT_HASH != 0,
            random: side.is_some() && flags & NAT_RANDOM != 0,
        }))
    }
}

impl Learn {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        // The second form of the action is the first with a limit.
        let subtype = if self.limit == 0 { nx::LEARN } else { nx::LEARN2 };
        put_nx(out, subtype, |out| {
            out.put_u16(self.idle_timeout);
            out.put_u16(self.hard_timeout);
            out.put_u16(self.priority);
            out.put_u64(self.cookie);
            let flags = if self.send_flow_rem { SEND_FLOW_REM } else { 0 };
            out.put_u16(flags | if self.delete_learned { DELETE_LEARNED } else { 0 });
            out.put_u8(self.table);
            out.put_zeros(1);
            out.put_u16(self.fin_idle_timeout);
            out.put_u16(self.fin_hard_timeout);
            if self.limit != 0 {
                out.put_u32(self.limit);
                out.put_zeros(4);
            }
            for spec in &self.specs {
                spec.encode(out);
            }
        });
    }

    /// Decodes the bytes after the subtype; `None` if they hold a value that this crate cannot represent.
    pub(super) fn decode(body: &mut Reader<'_>, second_form: bool) -> Decoded<Option<Learn>> {
        let idle_timeout = body.u16("learn idle timeout")?;
        let hard_timeout = body.u16("learn hard timeout")?;
        let priority = body.u16("learn priority")?;
        let cookie = body.u64("learn cookie")?;
        let flags = body.u16("learn flags")?;
        let table = body.u8("learn table")?;
        body.skip(1, "learn padding")?;
        let fin_idle_timeout = body.u16("learn fin idle timeout")?;
        let fin_hard_timeout = body.u16("learn fin hard timeout")?;
        let mut limit = 0;
        if second_form {
            limit = body.u32("learn limit")?;
            body.skip(4, "learn result")?;
        }
        let mut specs = Vec::new();
        while body.left() >= 2 {
            let header = body.u16("learn spec")?;
            if header == 0 {
                break;
            }
            match LearnSpec::decode(header, body)? {
                Some(spec) => specs.push(spec),
                None => return Ok(None),
            }
        }
        // Without a limit it would be written in the first form.
        if flags & !(SEND_FLOW_REM | DELETE_LEARNED) != 0 || second_form != (limit != 0) {
            return Ok(None);
        }
        Ok(Some(Learn {
            table,
            priority,
            idle_timeout,
            hard_timeout,
            fin_idle_timeout,
            fin_hard_timeout,
            cookie,
            send_flow_rem: flags & SEND_FLOW_REM != 0,
            delete_learned: flags & DELETE_LEARNED != 0,
            limit,
            specs,
        }))
    }
}

impl LearnSpec {
    fn encode(self, out: &mut Vec<u8>) {
        let (kind, src, dst) = match self {
            LearnSpec::Match { dst, src } => (SPEC_DST_MATCH, src, Some(dst)),
            LearnSpec::Load { dst, src } => (SPEC_DST_LOAD, src, Some(dst)),
            LearnSpec::Output(src) => (SPEC_DST_OUTPUT, LearnSource::Field(src), None),
        };
        match (src, dst) {
            (LearnSource::Field(src), _) => {
                out.put_u16(kind | u16::from(src.bits()));
                src.field().put_subfield_header(out);
                out.put_u16(u16::from(src.offset()));
            }
            (LearnSource::Value(value), Some(dst)) => {
                out.put_u16(kind | SPEC_SRC_VALUE | u16::from(dst.bits()));
                out.put_uint(value, value_bytes(u16::from(dst.bits())));
            }
            (LearnSource::Value(_), None) => {}
        }
        if let Some(dst) = dst {
            dst.field().put_subfield_header(out);
            out.put_u16(u16::from(dst.offset()));
        }
    }

    fn decode(header: u16, body: &mut Reader<'_>) -> Decoded<Option<LearnSpec>> {
        let bits = header & SPEC_BITS;
        if u32::from(bits) > u128::BITS {
            // There are such fields, but none that this crate knows.
            return Ok(None);
        }
        let src = if header & SPEC_SRC_VALUE != 0 {
            Some(LearnSource::Value(body.uint(value_bytes(bits), "learn value")?))
        } else {
            read_subfield(body, bits)?.map(LearnSource::Field)
        };
        let kind = header & SPEC_DST;
        let dst = if kind == SPEC_DST_OUTPUT { None } else { read_subfield(body, bits)? };
        if let (Some(LearnSource::Value(value)), Some(dst)) = (src, dst)
            && value > dst.mask() >> dst.offset()
        {
            return Ok(None);
        }
        Ok(match (kind, src, dst) {
            (SPEC_DST_MATCH, Some(src), Some(dst)) => Some(LearnSpec::Match { dst, src }),
            (SPEC_DST_LOAD, Some(src), Some(dst)) => Some(LearnSpec::Load { dst, src }),
            (SPEC_DST_OUTPUT, Some(LearnSource::Field(src)), None) => Some(LearnSpec::Output(src)),
            _ => None,
        })
    }
}

/// A value is sent in whole 16-bit words.
fn value_bytes(bits: u16) -> usize {
    usize::from(bits.div_ceil(16)) * 2
}

fn read_subfield(body: &mut Reader<'_>, bits: u16) -> Decoded<Option<Subfield>> {
    let field = Field::read_subfield_header(body)?;
    let offset = body.u16("learn offset")?;
    Ok(field.and_then(|f| Subfield::from_parts(f, offset, bits)))
}
