//! Flows in the syntax of ovs-ofctl: output of `dump-flows`, input of `add-flows`.

use std::fmt;
use std::str::FromStr;

use super::{DEFAULT_PRIORITY, Flow, FlowFlags};
use crate::action::{parse_actions, write_actions};
use crate::matching::MatchParser;
use crate::text::{ParseError, Parsed, dotted_hex, items, parse_dotted_hex, wrong};

const FLAGS: &[(FlowFlags, &str)] = &[
    (FlowFlags::SEND_FLOW_REM, "send_flow_rem"),
    (FlowFlags::CHECK_OVERLAP, "check_overlap"),
    (FlowFlags::RESET_COUNTS, "reset_counts"),
    (FlowFlags::NO_PACKET_COUNTS, "no_packet_counts"),
    (FlowFlags::NO_BYTE_COUNTS, "no_byte_counts"),
];

/// Counters that `dump-flows` prints among the rest; they are not part of the flow.
const COUNTERS: &[&str] = &["duration", "n_packets", "n_bytes", "idle_age", "hard_age"];

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cookie != 0 {
            write!(f, "cookie={:#x}, ", self.cookie)?;
        }
        write!(f, "table={}, ", self.table)?;
        for (name, value) in
            [("idle_timeout", self.idle_timeout), ("hard_timeout", self.hard_timeout), ("importance", self.importance)]
        {
            if value != 0 {
                write!(f, "{name}={value}, ")?;
            }
        }
        for (flag, name) in FLAGS {
            if self.flags.contains(*flag) {
                write!(f, "{name}, ")?;
            }
        }
        if self.priority != DEFAULT_PRIORITY {
            write!(f, "priority={}{}", self.priority, if self.matches.is_any() { "" } else { "," })?;
        }
        write!(f, "{} actions=", self.matches)?;
        self.write_actions(f)
    }
}

impl Flow {
    /// Writes the text after `actions=`.
    fn write_actions(&self, f: &mut impl fmt::Write) -> fmt::Result {
        for instruction in &self.unknown {
            write!(f, "unknown_instruction:{},", dotted_hex(instruction))?;
        }
        if let Some(table) = self.goto_table {
            if !self.actions.is_empty() {
                write_actions(f, &self.actions)?;
                f.write_str(",")?;
            }
            return write!(f, "goto_table:{table}");
        }
        write_actions(f, &self.actions)
    }
}

impl FromStr for Flow {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut flow = Flow::default();
        let mut matches = MatchParser::default();
        let mut all = items(text);
        loop {
            let rest = all.rest().trim_start_matches(|c: char| c == ',' || c.is_ascii_whitespace());
            if let Some(actions) = rest.strip_prefix("actions=").or_else(|| rest.strip_prefix("action=")) {
                flow.parse_actions(actions)?;
                flow.matches = matches.finish()?;
                return Ok(flow);
            }
            let Some(item) = all.next() else {
                return wrong(text, "needs actions=... at the end");
            };
            let item = item?;
            match item.key {
                "table" => flow.table = item.int()?,
                "priority" => flow.priority = item.int()?,
                "cookie" => flow.cookie = item.int()?,
                "idle_timeout" => flow.idle_timeout = item.int()?,
                "hard_timeout" => flow.hard_timeout = item.int()?,
                "importance" => flow.importance = item.int()?,
                key if COUNTERS.contains(&key) => {}
                key => {
                    if let Some((flag, _)) = FLAGS.iter().find(|(_, name)| *name == key) {
                        flow.flags |= *flag;
                    } else if !matches.take(item)? {
                        return wrong(item.whole, "is neither a field nor a property of a flow");
                    }
                }
            }
        }
    }
}

impl Flow {
    fn parse_actions(&mut self, text: &str) -> Parsed<()> {
        let mut text = text;
        while let Some(rest) = text.strip_prefix("unknown_instruction:") {
            let (hex, rest) = rest.split_once(',').unwrap_or((rest, ""));
            let bytes = parse_dotted_hex(hex)?;
            let mut probe = Flow::default();
            match probe.read_instructions(&mut crate::wire::Reader::new(&bytes)) {
                Ok(()) if probe.unknown.as_slice() == [bytes] => self.unknown.append(&mut probe.unknown),
                _ => return wrong(hex, "is not an instruction that is unknown"),
            }
            text = rest;
        }
        (self.actions, self.goto_table) = parse_actions(text)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_print_and_parse_back() {
        for text in [
            "table=0, priority=0 actions=drop",
            "table=0,  actions=NORMAL",
            "cookie=0x1000000000000, table=20, priority=190,arp actions=NORMAL",
            "table=40, idle_timeout=5, hard_timeout=300, importance=7, send_flow_rem, priority=200,tcp actions=goto_table:41",
            "table=31, priority=0 actions=resubmit(,35),resubmit(,40),goto_table:41",
        ] {
            let flow: Flow = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(flow.to_string(), text);
        }
    }

    #[test]
    fn the_output_of_dump_flows_is_parsed() {
        let dumped =
            " cookie=0x5, duration=3.2s, table=1, n_packets=7, n_bytes=700, idle_age=2, priority=9,ip actions=drop";
        assert_eq!(dumped.parse::<Flow>().unwrap().to_string(), "cookie=0x5, table=1, priority=9,ip actions=drop");
    }

    #[test]
    fn wrong_flows_say_what_is_wrong() {
        for (text, problem) in [
            ("table=300 actions=drop", "`table=300`: needs a number from 0 to 255"),
            ("table=1,priority=5,ip", "`table=1,priority=5,ip`: needs actions=... at the end"),
            ("colour=1 actions=drop", "`colour=1`: is neither a field nor a property of a flow"),
        ] {
            assert_eq!(text.parse::<Flow>().unwrap_err().to_string(), problem);
        }
    }
}
