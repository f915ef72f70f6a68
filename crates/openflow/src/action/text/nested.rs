//! ct, nat, clone and learn in ovs-ofctl's notation.

use std::fmt;
use std::net::IpAddr;

use super::super::{Action, Ct, Learn, LearnSource, LearnSpec, Nat, NatSide, Subfield, Zone};
use super::{arrow, parse_actions_at, write_list};
use crate::field::{Field, parse_masked, write_masked};
use crate::flow::DEFAULT_PRIORITY;
use crate::port::Port;
use crate::text::{Item, Parsed, Value, items, number, wrong};
use crate::wire::low_u32;

const ALG_FTP: u16 = 21;
const ALG_TFTP: u16 = 69;

pub(super) fn parse_ct(item: Item<'_>, depth: usize) -> Parsed<Ct> {
    let mut ct = Ct::default();
    let inside = match item.value {
        Value::Paren(inside) => inside,
        Value::None => "",
        Value::Text(_) => return wrong(item.whole, "needs its options in parentheses"),
    };
    for item in items(inside) {
        let item = item?;
        match item.key {
            "commit" => ct.commit = true,
            "force" => ct.force = true,
            "table" => ct.table = Some(item.int::<u8>()?).filter(|t| *t != 0xff),
            "zone" => {
                let text = item.text()?;
                ct.zone = match number(text) {
                    Some(_) => Zone::Number(item.int()?),
                    None => {
                        let src: Subfield = text.parse()?;
                        if src.bits() != 16 {
                            return wrong(item.whole, "a zone has 16 bits");
                        }
                        Zone::Field(src)
                    }
                };
            }
            "nat" => ct.nat = Some(parse_nat(item)?),
            "exec" => {
                let (actions, goto) = parse_actions_at(item.text()?, depth + 1)?;
                if goto.is_some() {
                    return wrong(item.whole, "goto_table cannot stand inside exec");
                }
                ct.exec = actions;
            }
            "alg" => {
                ct.alg = match item.text()? {
                    "ftp" => ALG_FTP,
                    "tftp" => ALG_TFTP,
                    _ => item.int()?,
                }
            }
            _ => return wrong(item.whole, "is not an option of ct()"),
        }
    }
    if ct.nat.is_none() && ct.exec.first().is_some_and(Action::is_nat) {
        return wrong(item.whole, "an unknown action at its start is a nat");
    }
    Ok(ct)
}

pub(super) fn parse_clone(item: Item<'_>, depth: usize) -> Parsed<Vec<Action>> {
    let Value::Paren(inside) = item.value else { return wrong(item.whole, "needs its actions in parentheses") };
    match parse_actions_at(inside, depth + 1)? {
        (actions, None) => Ok(actions),
        (_, Some(_)) => wrong(item.whole, "goto_table cannot stand inside clone"),
    }
}

fn parse_nat(item: Item<'_>) -> Parsed<Nat> {
    let mut nat = Nat::default();
    let inside = match item.value {
        Value::None => return Ok(nat),
        Value::Paren(inside) => inside,
        Value::Text(_) => return wrong(item.whole, "needs its options in parentheses"),
    };
    for item in items(inside) {
        let item = item?;
        match item.key {
            "src" | "dst" => {
                nat.side = Some(if item.key == "src" { NatSide::Src } else { NatSide::Dst });
                if let Value::Text(range) = item.value {
                    parse_range(&mut nat, item, range)?;
                }
            }
            "persistent" => nat.persistent = true,
            "hash" => nat.hash = true,
            "random" => nat.random = true,
            _ => return wrong(item.whole, "is not an option of nat()"),
        }
    }
    if nat.side.is_none() && nat != Nat::default() {
        return wrong(item.whole, "needs src or dst beside the rest");
    }
    Ok(nat)
}

/// `address[-address][:port[-port]]`, IPv6 addresses in brackets where a port follows.
fn parse_range(nat: &mut Nat, item: Item<'_>, range: &str) -> Parsed<()> {
    let (addresses, ports) = if range.starts_with('[') {
        match range.rsplit_once("]:") {
            Some((addresses, ports)) => (addresses, Some(ports)),
            None => (range, None),
        }
    } else if range.matches(':').count() == 1 {
        range.split_once(':').map_or((range, None), |(a, p)| (a, Some(p)))
    } else {
        (range, None)
    };
    let address = |text: &str| match text.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => Ok(address),
        Err(_) => wrong(text, "is not an address"),
    };
    if !addresses.is_empty() {
        let (first, last) = addresses.split_once('-').map_or((addresses, None), |(a, b)| (a, Some(b)));
        nat.address = Some(address(first)?);
        nat.last_address = last.map(address).transpose()?.filter(|l| Some(*l) != nat.address);
        if let (Some(a), Some(b)) = (nat.address, nat.last_address)
            && (a.is_ipv4() != b.is_ipv4() || a > b)
        {
            return wrong(item.whole, "needs a range of addresses of one kind that goes up");
        }
    }
    if let Some(ports) = ports {
        let (first, last) = ports.split_once('-').map_or((ports, None), |(a, b)| (a, Some(b)));
        let port = |text: &str| match text.parse::<u16>() {
            Ok(port @ 1..) => Ok(port),
            _ => wrong(item.whole, "needs ports from 1 to 65535"),
        };
        nat.port = Some(port(first)?);
        nat.last_port = last.map(port).transpose()?.filter(|l| Some(*l) != nat.port);
        if nat.last_port.is_some() && nat.last_port < nat.port {
            return wrong(item.whole, "needs a range of ports that goes up");
        }
    }
    Ok(())
}

impl fmt::Display for Ct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.commit {
            parts.push("commit".to_owned());
        }
        if self.force {
            parts.push("force".to_owned());
        }
        if let Some(table) = self.table {
            parts.push(format!("table={table}"));
        }
        match self.zone {
            Zone::Number(0) => {}
            Zone::Number(zone) => parts.push(format!("zone={zone}")),
            Zone::Field(src) => parts.push(format!("zone={src}")),
        }
        if let Some(nat) = &self.nat {
            parts.push(nat.to_string());
        }
        if !self.exec.is_empty() {
            let mut exec = String::from("exec(");
            write_list(&mut exec, &self.exec)?;
            parts.push(exec + ")");
        }
        match self.alg {
            0 => {}
            ALG_FTP => parts.push("alg=ftp".to_owned()),
            ALG_TFTP => parts.push("alg=tftp".to_owned()),
            alg => parts.push(format!("alg={alg}")),
        }
        write!(f, "ct({})", parts.join(","))
    }
}

impl fmt::Display for Nat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nat")?;
        let Some(side) = self.side else { return Ok(()) };
        f.write_str(if side == NatSide::Src { "(src" } else { "(dst" })?;
        if self.address.is_some() || self.port.is_some() {
            f.write_str("=")?;
        }
        let write_address = |f: &mut fmt::Formatter<'_>, address: IpAddr| match address {
            IpAddr::V6(a) if self.port.is_some() => write!(f, "[{a}]"),
            a => write!(f, "{a}"),
        };
        if let Some(address) = self.address {
            write_address(f, address)?;
        }
        if let Some(address) = self.last_address {
            f.write_str("-")?;
            write_address(f, address)?;
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if let Some(port) = self.last_port {
            write!(f, "-{port}")?;
        }
        for (on, word) in [(self.persistent, ",persistent"), (self.hash, ",hash"), (self.random, ",random")] {
            if on {
                f.write_str(word)?;
            }
        }
        f.write_str(")")
    }
}

pub(super) fn parse_learn(item: Item<'_>) -> Parsed<Learn> {
    let mut learn = Learn::default();
    for item in items(item.text()?) {
        let item = item?;
        match item.key {
            "table" => learn.table = item.int()?,
            "priority" => learn.priority = item.int()?,
            "idle_timeout" => learn.idle_timeout = item.int()?,
            "hard_timeout" => learn.hard_timeout = item.int()?,
            "fin_idle_timeout" => learn.fin_idle_timeout = item.int()?,
            "fin_hard_timeout" => learn.fin_hard_timeout = item.int()?,
            "cookie" => learn.cookie = item.int()?,
            "send_flow_rem" => learn.send_flow_rem = true,
            "delete_learned" => learn.delete_learned = true,
            "limit" => learn.limit = item.int()?,
            "output" => learn.specs.push(LearnSpec::Output(item.text()?.parse()?)),
            "load" => {
                let (src, dst) = arrow(item)?;
                let dst: Subfield = dst.parse()?;
                let src = learn_source(item, src, dst, number(src))?;
                learn.specs.push(LearnSpec::Load { dst, src });
            }
            name => {
                let Ok(dst) = name.parse::<Subfield>() else {
                    return wrong(item.whole, "is not an option of learn()");
                };
                let src = match item.value {
                    Value::Text(text) => {
                        let value = match parse_masked(dst.field(), text) {
                            Ok((port, _)) if dst == Subfield::whole(Field::InPort) => {
                                Some(u128::from(Port(low_u32(port)).to_of10()))
                            }
                            Ok((value, mask)) if dst.is_whole() && mask == dst.field().full_mask() => Some(value),
                            _ => number(text),
                        };
                        learn_source(item, text, dst, value)?
                    }
                    _ => LearnSource::Field(dst),
                };
                learn.specs.push(LearnSpec::Match { dst, src });
            }
        }
    }
    Ok(learn)
}

/// A number, if it is one, or else a field of the same width.
fn learn_source(item: Item<'_>, text: &str, dst: Subfield, value: Option<u128>) -> Parsed<LearnSource> {
    if let Some(value) = value {
        return if value <= dst.mask() >> dst.offset() {
            Ok(LearnSource::Value(value))
        } else {
            wrong(item.whole, format!("needs a number of at most {} bits", dst.bits()))
        };
    }
    let src: Subfield = text.parse()?;
    if src.bits() == dst.bits() {
        Ok(LearnSource::Field(src))
    } else {
        wrong(item.whole, format!("copies {} bits to {}", src.bits(), dst.bits()))
    }
}

impl fmt::Display for Learn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "learn(table={}", self.table)?;
        for (name, seconds) in [
            ("idle_timeout", self.idle_timeout),
            ("hard_timeout", self.hard_timeout),
            ("fin_idle_timeout", self.fin_idle_timeout),
            ("fin_hard_timeout", self.fin_hard_timeout),
        ] {
            if seconds != 0 {
                write!(f, ",{name}={seconds}")?;
            }
        }
        if self.priority != DEFAULT_PRIORITY {
            write!(f, ",priority={}", self.priority)?;
        }
        if self.send_flow_rem {
            f.write_str(",send_flow_rem")?;
        }
        if self.delete_learned {
            f.write_str(",delete_learned")?;
        }
        if self.cookie != 0 {
            write!(f, ",cookie={:#x}", self.cookie)?;
        }
        if self.limit != 0 {
            write!(f, ",limit={}", self.limit)?;
        }
        for spec in &self.specs {
            write!(f, ",{spec}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for LearnSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LearnSpec::Output(src) => write!(f, "output:{src}"),
            LearnSpec::Load { dst, src: LearnSource::Field(src) } => write!(f, "load:{src}->{dst}"),
            LearnSpec::Load { dst, src: LearnSource::Value(0) } => write!(f, "load:0->{dst}"),
            LearnSpec::Load { dst, src: LearnSource::Value(value) } => write!(f, "load:{value:#x}->{dst}"),
            LearnSpec::Match { dst, src: LearnSource::Field(src) } if src == dst => write!(f, "{dst}"),
            LearnSpec::Match { dst, src: LearnSource::Field(src) } => write!(f, "{dst}={src}"),
            LearnSpec::Match { dst, src: LearnSource::Value(value) }
                if dst.is_whole() && dst.field() != Field::InPort =>
            {
                write!(f, "{}=", dst.field().name())?;
                write_masked(f, dst.field(), value, dst.field().full_mask())
            }
            LearnSpec::Match { dst, src: LearnSource::Value(value) } => write!(f, "{dst}={value:#x}"),
        }
    }
}
