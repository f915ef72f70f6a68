//! Actions in ovs-ofctl's notation.

mod nested;

use std::fmt;
use std::str::FromStr;

use super::decode::MAX_DEPTH;
use super::{Action, Controller, Reason, Subfield};
use crate::field::{Field, parse_masked, write_masked};
use crate::port::Port;
use crate::text::{Item, ParseError, Parsed, Value, dotted_hex, items, number, parse_dotted_hex, wrong};
use crate::wire::low_u8;

/// Writes a list of actions, `drop` for an empty one.
pub(crate) fn write_actions(f: &mut impl fmt::Write, actions: &[Action]) -> fmt::Result {
    if actions.is_empty() {
        return f.write_str("drop");
    }
    write_list(f, actions)
}

fn write_list(f: &mut impl fmt::Write, actions: &[Action]) -> fmt::Result {
    for (i, action) in actions.iter().enumerate() {
        write!(f, "{}{action}", if i > 0 { "," } else { "" })?;
    }
    Ok(())
}

/// Reads a list of actions, and the table that a `goto_table` at its end names.
pub(crate) fn parse_actions(text: &str) -> Parsed<(Vec<Action>, Option<u8>)> {
    parse_actions_at(text, 0)
}

fn parse_actions_at(text: &str, depth: usize) -> Parsed<(Vec<Action>, Option<u8>)> {
    if depth > MAX_DEPTH {
        return wrong(text, format!("actions nested more than {MAX_DEPTH} deep"));
    }
    let mut actions = Vec::new();
    let mut goto = None;
    let mut dropped = false;
    for item in items(text) {
        let item = item?;
        if let Some(table) = goto {
            return wrong(item.whole, format!("nothing can follow goto_table:{table}"));
        }
        if dropped {
            return wrong(item.whole, "nothing can stand beside drop");
        }
        match item.key {
            "drop" => {
                if !actions.is_empty() {
                    return wrong(text, "nothing can stand beside drop");
                }
                dropped = true;
            }
            "goto_table" => goto = Some(item.int()?),
            _ => actions.push(parse_action(item, depth)?),
        }
    }
    Ok((actions, goto))
}

impl FromStr for Action {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut all = items(text);
        match (all.next(), all.next()) {
            (Some(item), None) => parse_action(item?, 0),
            _ => wrong(text, "needs to be one action"),
        }
    }
}

fn parse_action(item: Item<'_>, depth: usize) -> Parsed<Action> {
    match item.key {
        "output" => {
            let text = item.text()?;
            if text.starts_with(|c: char| c.is_ascii_digit()) || text.parse::<Port>().is_ok() {
                return parse_output(text);
            }
            let src: Subfield = text.parse()?;
            if src.is_packable() {
                Ok(Action::output_field(src))
            } else {
                wrong(text, "a port has no more than 64 bits")
            }
        }
        "group" => Ok(Action::Group(item.int()?)),
        "set_field" | "load" | "mod_dl_src" | "mod_dl_dst" | "mod_nw_src" | "mod_nw_dst" => parse_set(item),
        "move" => {
            let (src, dst) = arrow(item)?;
            let (src, dst): (Subfield, Subfield) = (src.parse()?, dst.parse()?);
            if src.bits() != dst.bits() {
                return wrong(item.whole, format!("copies {} bits to {}", src.bits(), dst.bits()));
            }
            Ok(Action::Move { src, dst })
        }
        "resubmit" => parse_resubmit(item),
        "ct" => nested::parse_ct(item, depth).map(|ct| Action::Ct(Box::new(ct))),
        "clone" => nested::parse_clone(item, depth).map(Action::Clone),
        "learn" => nested::parse_learn(item).map(|learn| Action::Learn(Box::new(learn))),
        "conjunction" => parse_conjunction(item),
        "dec_ttl" if item.value == Value::None => Ok(Action::DecTtl),
        "meter" => Ok(Action::Meter(item.int()?)),
        "note" => Ok(Action::note(parse_dotted_hex(item.text()?)?)),
        "controller" | "CONTROLLER" => parse_controller(item).map(|c| Action::Controller(Box::new(c))),
        "unknown_action" => parse_unknown(item),
        key if item.value == Value::None && key.parse::<Port>().is_ok() => parse_output(key),
        _ => wrong(item.whole, "is not an action this program knows"),
    }
}

fn parse_output(text: &str) -> Parsed<Action> {
    match text.parse::<Port>()? {
        Port::CONTROLLER => Ok(Action::Controller(Box::default())),
        Port::ANY => wrong(text, "is not a port that packets can be sent to"),
        port => Ok(Action::Output(port)),
    }
}

/// Both sides of `a->b`.
fn arrow<'a>(item: Item<'a>) -> Parsed<(&'a str, &'a str)> {
    match item.text()?.split_once("->") {
        Some(sides) => Ok(sides),
        None => wrong(item.whole, "needs source->destination"),
    }
}

fn parse_set(item: Item<'_>) -> Parsed<Action> {
    let field = match item.key {
        "mod_dl_src" => Field::EthSrc,
        "mod_dl_dst" => Field::EthDst,
        "mod_nw_src" => Field::Ipv4Src,
        "mod_nw_dst" => Field::Ipv4Dst,
        "load" => {
            let (value, dst) = arrow(item)?;
            let dst: Subfield = dst.parse()?;
            if !dst.is_loadable() {
                return wrong(item.whole, "a port can only be written as a whole");
            }
            return match number(value) {
                Some(value) if value <= dst.mask() >> dst.offset() => Ok(Action::load(dst, value)),
                _ => wrong(item.whole, format!("needs a number of at most {} bits", dst.bits())),
            };
        }
        _ => {
            let (value, name) = arrow(item)?;
            let (Some(field), None) = (Field::by_name(name), name.find('[')) else {
                return wrong(name, "is not a field that can be set");
            };
            let (value, mask) = parse_masked(field, value)?;
            return if mask == 0 {
                wrong(item.whole, "sets no bit")
            } else {
                Ok(Action::SetField { field, value, mask })
            };
        }
    };
    let (value, mask) = parse_masked(field, item.text()?)?;
    Ok(Action::SetField { field, value, mask })
}

fn parse_resubmit(item: Item<'_>) -> Parsed<Action> {
    let (port, table) = match item.value {
        Value::Paren(inside) => inside.split_once(',').unwrap_or((inside, "")),
        Value::Text(port) => (port, ""),
        Value::None => ("", ""),
    };
    let in_port = match port.trim() {
        "" | "in_port" => None,
        port => Some(port.parse::<Port>()?),
    };
    let table = match table.trim() {
        "" => None,
        table => match number(table) {
            Some(n @ 0..=254) => Some(low_u8(n)),
            _ => return wrong(item.whole, "needs a table from 0 to 254"),
        },
    };
    if in_port.is_none() && table.is_none() {
        return wrong(item.whole, "needs a port or a table");
    }
    Ok(Action::Resubmit { in_port: in_port.filter(|p| *p != Port::IN_PORT), table })
}

fn parse_conjunction(item: Item<'_>) -> Parsed<Action> {
    let parts = item.text()?.split_once(',').and_then(|(id, clause)| {
        let (clause, of) = clause.trim().split_once('/')?;
        Some((u32::try_from(number(id.trim())?).ok()?, clause.parse().ok()?, of.parse().ok()?))
    });
    match parts {
        Some((id, clause @ 1.., of @ 2..=64)) if clause <= of => Ok(Action::Conjunction { id, clause, of }),
        _ => wrong(item.whole, "needs (id, clause/clauses) with 2 to 64 clauses, as in conjunction(7,1/2)"),
    }
}

fn parse_controller(item: Item<'_>) -> Parsed<Controller> {
    let mut controller = Controller::default();
    let inside = match item.value {
        Value::None => return Ok(controller),
        Value::Text(_) => {
            controller.max_len = item.int()?;
            return Ok(controller);
        }
        Value::Paren(inside) => inside,
    };
    for item in items(inside) {
        let item = item?;
        match item.key {
            "max_len" => controller.max_len = item.int()?,
            "id" => controller.id = item.int()?,
            "userdata" => controller.userdata = parse_dotted_hex(item.text()?)?,
            "pause" => controller.pause = true,
            "meter_id" => controller.meter = Some(item.int()?),
            "reason" => {
                let word = item.text()?;
                controller.reason = match Reason::NAMES.iter().find(|(_, _, name)| *name == word) {
                    Some((reason, _, _)) => *reason,
                    None => Reason::from_code(item.int()?),
                };
            }
            _ => return wrong(item.whole, "is not an option of controller()"),
        }
    }
    Ok(controller)
}

fn parse_unknown(item: Item<'_>) -> Parsed<Action> {
    let bytes = parse_dotted_hex(item.text()?)?;
    match super::decode_actions(&mut crate::wire::Reader::new(&bytes)).as_deref() {
        Ok([action @ Action::Unknown(_)]) => Ok(action.clone()),
        _ => wrong(item.whole, "is not an action that is unknown"),
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Output(port) => match port.name() {
                Some(name) => f.write_str(name),
                None => write!(f, "output:{port}"),
            },
            Action::OutputField { src, .. } => write!(f, "output:{src}"),
            Action::Controller(controller) => write!(f, "{controller}"),
            Action::Group(id) => write!(f, "group:{id}"),
            Action::SetField { field, value, mask } => {
                f.write_str("set_field:")?;
                write_masked(f, *field, *value, *mask)?;
                write!(f, "->{}", field.name())
            }
            Action::Move { src, dst } => write!(f, "move:{src}->{dst}"),
            Action::Resubmit { in_port, table: None } => write!(f, "resubmit:{}", in_port.unwrap_or(Port::IN_PORT)),
            Action::Resubmit { in_port, table: Some(table) } => {
                f.write_str("resubmit(")?;
                if let Some(port) = in_port {
                    write!(f, "{port}")?;
                }
                write!(f, ",{table})")
            }
            Action::Ct(ct) => write!(f, "{ct}"),
            Action::Clone(actions) => {
                f.write_str("clone(")?;
                write_list(f, actions)?;
                f.write_str(")")
            }
            Action::Learn(learn) => write!(f, "{learn}"),
            Action::Conjunction { id, clause, of } => write!(f, "conjunction({id},{clause}/{of})"),
            Action::DecTtl => f.write_str("dec_ttl"),
            Action::Meter(id) => write!(f, "meter:{id}"),
            Action::Note(bytes) => write!(f, "note:{}", dotted_hex(bytes)),
            Action::Unknown(bytes) => write!(f, "unknown_action:{}", dotted_hex(bytes)),
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_plain() {
            return write!(f, "CONTROLLER:{}", self.max_len);
        }
        let mut parts = Vec::new();
        if self.reason != Reason::Action {
            let name = Reason::NAMES.iter().find(|(r, _, _)| *r == self.reason).map(|(_, _, name)| (*name).to_owned());
            parts.push(format!("reason={}", name.unwrap_or_else(|| self.reason.code().to_string())));
        }
        if self.max_len != u16::MAX {
            parts.push(format!("max_len={}", self.max_len));
        }
        if self.id != 0 {
            parts.push(format!("id={}", self.id));
        }
        if !self.userdata.is_empty() {
            parts.push(format!("userdata={}", dotted_hex(&self.userdata)));
        }
        if self.pause {
            parts.push("pause".to_owned());
        }
        if let Some(meter) = self.meter {
            parts.push(format!("meter_id={meter}"));
        }
        write!(f, "controller({})", parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_print_as_ovs_ofctl_prints_them() {
        for text in [
            "drop",
            "output:5",
            "IN_PORT,NORMAL,LOCAL",
            "output:NXM_NX_REG1[]",
            "CONTROLLER:128",
            "controller(reason=no_match,max_len=128,id=3,userdata=01.02.03,pause,meter_id=5)",
            "set_field:0x10000/0x70000->reg4,resubmit(,41)",
            "set_field:aa:bb:cc:dd:ee:ff->eth_src,set_field:192.168.77.102->tun_dst,dec_ttl",
            "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]",
            "resubmit(3,5),resubmit:3",
            "ct(table=31,zone=65520,nat)",
            "clone(ct(zone=65520),output:3)",
            "clone()",
            "ct(commit,table=45,zone=65520,nat(dst=10.10.0.3:8080),exec(set_field:0x21->ct_mark))",
            "ct(commit,force,zone=NXM_NX_REG0[0..15],nat(src=10.0.0.1-10.0.0.5:100-200,persistent,random))",
            "ct(commit,table=3,zone=5,nat(dst=[fe80::1]:80))",
            "ct(commit,exec(set_field:0x80000000000000000000000000000000/0x80000000000000000000000000000000->ct_label))",
            "learn(table=40,hard_timeout=300,priority=200,delete_learned,cookie=0x204000000010,eth_type=0x800,nw_proto=6,\
             NXM_OF_TCP_DST[],NXM_OF_IP_SRC[]=NXM_OF_IP_DST[],load:NXM_NX_REG3[]->NXM_NX_REG3[],\
             load:0x2->NXM_NX_REG4[16..18],output:NXM_OF_IN_PORT[])",
            "learn(table=40,hard_timeout=300,cookie=0x9,limit=1024,eth_type=0x800,NXM_OF_IP_SRC[])",
            "conjunction(7,1/2),conjunction(9,2/3)",
            "meter:4,group:7",
            "note:01.02.00.00.00.00",
            "set_field:5/0xf->nw_ttl,set_field:LOCAL->in_port",
        ] {
            let (actions, goto) = parse_actions(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            let mut printed = String::new();
            write_actions(&mut printed, &actions).unwrap();
            assert_eq!((printed.as_str(), goto), (text, None));

            let mut bytes = Vec::new();
            crate::action::put_actions(&mut bytes, &actions);
            let decoded = crate::action::decode_actions(&mut crate::wire::Reader::new(&bytes)).unwrap();
            assert_eq!(decoded, actions, "{text}");
        }
    }

    #[test]
    fn other_spellings_mean_the_same() {
        for (a, b) in [
            ("load:0x1->NXM_NX_REG0[19]", "set_field:0x80000/0x80000->reg0"),
            ("mod_dl_dst:aa:bb:cc:dd:ee:ff", "set_field:aa:bb:cc:dd:ee:ff->eth_dst"),
            ("controller", "CONTROLLER:65535"),
            ("controller(max_len=65535)", "output:controller"),
            ("3", "output:3"),
            ("load:0xfff8->NXM_OF_IN_PORT[]", "set_field:IN_PORT->in_port"),
            ("learn(in_port=LOCAL)", "learn(NXM_OF_IN_PORT[]=0xfffe)"),
            ("resubmit(in_port,5)", "resubmit(,5)"),
            ("ct(nat,zone=65520,table=31)", "ct(table=31,zone=65520,nat)"),
        ] {
            assert_eq!(parse_actions(a).unwrap(), parse_actions(b).unwrap(), "{a}");
        }
    }

    #[test]
    fn wrong_actions_say_what_is_wrong() {
        for (text, problem) in [
            ("load:0x8->NXM_NX_REG4[16..18]", "`load:0x8->NXM_NX_REG4[16..18]`: needs a number of at most 3 bits"),
            ("load:1->NXM_NX_REG0[25..32]", "`NXM_NX_REG0[25..32]`: reg0 has bits 0 to 31"),
            (
                "move:NXM_NX_REG0[]->NXM_NX_REG1[0..15]",
                "`move:NXM_NX_REG0[]->NXM_NX_REG1[0..15]`: copies 32 bits to 16",
            ),
            ("drop,output:1", "`output:1`: nothing can stand beside drop"),
            ("goto_table:3,output:1", "`output:1`: nothing can follow goto_table:3"),
            ("resubmit()", "`resubmit()`: needs a port or a table"),
            ("output:65533", "`65533`: is neither a port number up to 65279 nor the name of a reserved port"),
            ("load:1->NXM_OF_IN_PORT[0..3]", "`load:1->NXM_OF_IN_PORT[0..3]`: a port can only be written as a whole"),
            ("output:NXM_NX_XXREG0[]", "`NXM_NX_XXREG0[]`: a port has no more than 64 bits"),
            ("ct(nat(persistent))", "`nat(persistent)`: needs src or dst beside the rest"),
            ("explode", "`explode`: is not an action this program knows"),
            ("ct(colour=1)", "`colour=1`: is not an option of ct()"),
            ("clone", "`clone`: needs its actions in parentheses"),
            ("clone(goto_table:3)", "`clone(goto_table:3)`: goto_table cannot stand inside clone"),
        ] {
            assert_eq!(parse_actions(text).unwrap_err().to_string(), problem);
        }
        let deep = "ct(exec(".repeat(1000) + &"))".repeat(1000);
        assert!(parse_actions(&deep).unwrap_err().to_string().ends_with("actions nested more than 8 deep"));
    }
}
