//! Field values in ovs-ofctl's notation.

use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Field, Format};
use crate::port::Port;
use crate::text::{Parsed, number, wrong};
use crate::wire::low_u32;

/// Names of the connection tracking states, lowest bit first.
pub const CT_STATE_FLAGS: &[&str] = &["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
const TCP_FLAGS: &[&str] = &["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];
const TUN_FLAGS: &[&str] = &["oam"];
/// Fragment words with the value and mask each stands for.
const FRAGS: &[(&str, u128, u128)] =
    &[("no", 0, 3), ("yes", 1, 1), ("first", 1, 3), ("later", 3, 3), ("not_later", 0, 2)];

/// Writes a field's value, and its mask where it is not the full one.
pub fn write_masked(f: &mut impl Write, field: Field, value: u128, mask: u128) -> fmt::Result {
    let full = field.full_mask();
    let exact = mask == full;
    match field.spec().format {
        Format::Decimal if exact => write!(f, "{value}"),
        Format::Decimal => write!(f, "{value}/{mask:#x}"),
        Format::Hex => write_hex(f, value, mask, exact),
        Format::Mac if exact => write_mac(f, value),
        Format::Mac => {
            write_mac(f, value)?;
            f.write_char('/')?;
            write_mac(f, mask)
        }
        Format::Ipv4 => {
            write!(f, "{}", ipv4(value))?;
            match prefix_len(mask, 32) {
                Some(32) => Ok(()),
                Some(len) => write!(f, "/{len}"),
                None => write!(f, "/{}", ipv4(mask)),
            }
        }
        Format::Ipv6 => {
            write!(f, "{}", Ipv6Addr::from(value))?;
            match prefix_len(mask, 128) {
                Some(128) => Ok(()),
                Some(len) => write!(f, "/{len}"),
                None => write!(f, "/{}", Ipv6Addr::from(mask)),
            }
        }
        Format::Port => write!(f, "{}", Port(low_u32(value))),
        Format::Frag => match FRAGS.iter().find(|(_, v, m)| *v == value && *m == mask) {
            Some((word, _, _)) => f.write_str(word),
            None => write_hex(f, value, mask, exact),
        },
        Format::CtState => write_flags(f, CT_STATE_FLAGS, value, mask, exact),
        Format::TcpFlags => write_flags(f, TCP_FLAGS, value, mask, exact),
        Format::TunFlags => write_flags(f, TUN_FLAGS, value, mask, false),
    }
}

/// Reads a field's value with an optional mask: the value (cut to the mask) and the mask. Whether a match may have that
/// mask is not looked at.
pub fn parse_masked(field: Field, text: &str) -> Parsed<(u128, u128)> {
    let full = field.full_mask();
    let (value, mask) = match field.spec().format {
        Format::CtState => parse_flags(CT_STATE_FLAGS, full, text)?,
        Format::TcpFlags => parse_flags(TCP_FLAGS, full, text)?,
        Format::TunFlags => parse_flags(TUN_FLAGS, full, text)?,
        Format::Frag => match FRAGS.iter().find(|(word, _, _)| *word == text) {
            Some((_, value, mask)) => (*value, *mask),
            None => slashed(field, text, number, "needs no, yes, first, later or not_later")?,
        },
        Format::Port => match text.parse::<Port>() {
            Ok(port) => (u128::from(port.0), full),
            Err(e) => return Err(e),
        },
        Format::Decimal | Format::Hex => slashed(field, text, number, "needs a number")?,
        Format::Mac => slashed(field, text, parse_mac, "needs a MAC such as 0a:00:00:00:00:01")?,
        Format::Ipv4 => prefixed(text, 32, |t| t.parse::<Ipv4Addr>().ok().map(|a| u128::from(u32::from(a))))
            .map_or_else(|| wrong(text, "needs an IPv4 address such as 10.0.0.0/8"), Ok)?,
        Format::Ipv6 => prefixed(text, 128, |t| t.parse::<Ipv6Addr>().ok().map(u128::from))
            .map_or_else(|| wrong(text, "needs an IPv6 address such as fe80::/64"), Ok)?,
    };
    if value & !full != 0 || mask & !full != 0 {
        return wrong(text, format!("does not fit the {} bits of {}", field.spec().bits, field.name()));
    }
    Ok((value & mask, mask))
}

fn ipv4(value: u128) -> Ipv4Addr {
    Ipv4Addr::from(low_u32(value))
}

/// The prefix length a mask stands for, if it is one.
fn prefix_len(mask: u128, width: u32) -> Option<u32> {
    let len = mask.count_ones();
    (mask == prefix_mask(len, width)).then_some(len)
}

fn prefix_mask(len: u32, width: u32) -> u128 {
    let full = u128::MAX >> (128 - width);
    if len == 0 { 0 } else { full << (width - len) & full }
}

fn write_hex(f: &mut impl Write, value: u128, mask: u128, exact: bool) -> fmt::Result {
    write_hex_number(f, value)?;
    if exact {
        return Ok(());
    }
    f.write_char('/')?;
    write_hex_number(f, mask)
}

/// Zero is written without its `0x`, as C's `%#x` does.
fn write_hex_number(f: &mut impl Write, value: u128) -> fmt::Result {
    if value == 0 { f.write_char('0') } else { write!(f, "{value:#x}") }
}

fn write_mac(f: &mut impl Write, value: u128) -> fmt::Result {
    for i in (0..6).rev() {
        write!(f, "{:02x}", value >> (i * 8) & 0xff)?;
        if i > 0 {
            f.write_char(':')?;
        }
    }
    Ok(())
}

fn parse_mac(text: &str) -> Option<u128> {
    let mut value = 0;
    let mut count = 0;
    for part in text.split(':') {
        if part.is_empty() || part.len() > 2 || part.starts_with('+') {
            return None;
        }
        value = value << 8 | u128::from(u8::from_str_radix(part, 16).ok()?);
        count += 1;
    }
    (count == 6).then_some(value)
}

fn write_flags(f: &mut impl Write, names: &[&str], value: u128, mask: u128, exact: bool) -> fmt::Result {
    if exact && value == 0 {
        return f.write_char('0');
    }
    let mut first = true;
    for (bit, name) in names.iter().enumerate() {
        let set = value >> bit & 1 == 1;
        if exact {
            if set {
                write!(f, "{}{name}", if first { "" } else { "|" })?;
                first = false;
            }
        } else if mask >> bit & 1 == 1 {
            write!(f, "{}{name}", if set { '+' } else { '-' })?;
        }
    }
    Ok(())
}

fn parse_flags(names: &[&str], full: u128, text: &str) -> Parsed<(u128, u128)> {
    if let Some((value, mask)) = text.split_once('/') {
        return match (number(value), number(mask)) {
            (Some(value), Some(mask)) => Ok((value, mask)),
            _ => wrong(text, "needs two numbers"),
        };
    }
    if let Some(value) = number(text) {
        return Ok((value, full));
    }
    let bit = |name: &str| match names.iter().position(|n| *n == name) {
        Some(bit) => Ok(1u128 << bit),
        None => wrong(name, format!("is none of {}", names.join(", "))),
    };
    if !text.starts_with(['+', '-']) {
        let value = text.split('|').try_fold(0, |acc, name| bit(name).map(|b| acc | b))?;
        return Ok((value, full));
    }
    let (mut value, mut mask, mut rest) = (0, 0, text);
    while let Some(sign) = rest.chars().next() {
        let tail = rest.get(1..).unwrap_or_default();
        let end = tail.find(['+', '-']).unwrap_or(tail.len());
        let (name, after) = tail.split_at(end);
        let bit = bit(name)?;
        if mask & bit != 0 {
            return wrong(text, format!("says {name} twice"));
        }
        mask |= bit;
        if sign == '+' {
            value |= bit;
        }
        rest = after;
    }
    Ok((value, mask))
}

/// `value` or `value/mask`, both in the field's own notation.
fn slashed(field: Field, text: &str, parse: impl Fn(&str) -> Option<u128>, problem: &str) -> Parsed<(u128, u128)> {
    let (value, mask) = match text.split_once('/') {
        Some((value, mask)) => (parse(value), parse(mask)),
        None => (parse(text), Some(field.full_mask())),
    };
    match (value, mask) {
        (Some(value), Some(mask)) => Ok((value, mask)),
        _ => wrong(text, format!("{problem} for {}", field.name())),
    }
}

/// `address`, `address/length` or `address/mask`.
fn prefixed(text: &str, width: u32, parse: impl Fn(&str) -> Option<u128>) -> Option<(u128, u128)> {
    let Some((address, mask)) = text.split_once('/') else {
        return Some((parse(text)?, prefix_mask(width, width)));
    };
    let mask = match mask.parse::<u32>() {
        Ok(len) if len <= width => prefix_mask(len, width),
        Ok(_) => return None,
        Err(_) => parse(mask)?,
    };
    Some((parse(address)?, mask))
}
