//! Readable traces: one line per step.

use std::fmt;

use openflow::field::write_masked;
use openflow::flow::Flow;

use super::{Did, Entry, Sent, Step, Trace, Verdict};
use crate::conntrack::CtState;

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &|_| None)
    }
}

impl Trace {
    /// The trace with the owner of each flow, as returned by `owner`.
    pub fn explain(&self, owner: impl Fn(&Flow) -> Option<String>) -> impl fmt::Display {
        struct Explained<'a, O>(&'a Trace, O);
        impl<O: Fn(&Flow) -> Option<String>> fmt::Display for Explained<'_, O> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.write(f, &self.1)
            }
        }
        Explained(self, owner)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, owner: &dyn Fn(&Flow) -> Option<String>) -> fmt::Result {
        writeln!(f, "in_port {}: {}", self.arrival.in_port, self.arrival.packet)?;
        for step in &self.steps {
            step.write(f, owner)?;
        }
        write!(f, "{}", self.verdict)
    }
}

impl Step {
    fn write(&self, f: &mut fmt::Formatter<'_>, owner: &dyn Fn(&Flow) -> Option<String>) -> fmt::Result {
        if let Entry::Tracked(ct) = &self.entry {
            write!(f, "-- tracked in zone {}: {}", ct.zone, StateNames(ct.state))?;
            if ct.mark != 0 {
                write!(f, " mark {:#x}", ct.mark)?;
            }
            if ct.label != 0 {
                write!(f, " label {:#x}", ct.label)?;
            }
            writeln!(f)?;
        }
        write!(f, "{:depth$}{:>3}", "", self.table, depth = self.depth.min(40))?;
        match &self.flow {
            Some(flow) => {
                write!(f, " {:>5} {}", flow.priority, flow.matches)?;
                if let Some(owner) = owner(flow) {
                    write!(f, " [{owner}]")?;
                } else if flow.cookie != 0 {
                    write!(f, " [{:#x}]", flow.cookie)?;
                }
            }
            None => f.write_str(" no flow")?,
        }
        if let Some(id) = self.conjunction {
            write!(f, " (conjunction {id})")?;
        }
        if self.tie {
            f.write_str(" (not the only one of its priority)")?;
        }
        for (i, did) in self.did.iter().enumerate() {
            write!(f, "{}{did}", if i == 0 { ": " } else { ", " })?;
        }
        writeln!(f)
    }
}

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Did::Set(field, value) => {
                write!(f, "{}=", field.name())?;
                write_masked(f, *field, *value, field.full_mask())
            }
            Did::Output(ports) => {
                let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
                write!(f, "output {}", ports.join(" "))
            }
            Did::Controller => f.write_str("to the controller"),
            Did::Bucket(pick) => write!(f, "group {} bucket {}", pick.group, pick.bucket),
            Did::Ct { zone, commit, nat, table } => {
                write!(f, "ct zone {zone}")?;
                for (on, what) in [(*commit, " commit"), (*nat, " nat")] {
                    f.write_str(if on { what } else { "" })?;
                }
                table.map_or(Ok(()), |table| write!(f, " -> {table}"))
            }
            Did::Learned(flow) => write!(f, "learned ({flow})"),
            Did::Failed(reason) => write!(f, "{reason}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Dropped(reason) => writeln!(f, "=> dropped: {reason}"),
            Verdict::Sent(sent) => sent.iter().try_for_each(|sent| writeln!(f, "=> {sent}")),
        }
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sent::Output { port, packet, tunnel } => {
                write!(f, "port {port}: {packet}")?;
                if tunnel.dst != 0 {
                    write!(f, " through the tunnel to {}", std::net::Ipv4Addr::from(tunnel.dst))?;
                } else if tunnel.ipv6_dst != 0 {
                    write!(f, " through the tunnel to {}", std::net::Ipv6Addr::from(tunnel.ipv6_dst))?;
                }
                Ok(())
            }
            Sent::Controller { packet, .. } => write!(f, "controller: {packet}"),
        }
    }
}

struct StateNames(CtState);

impl fmt::Display for StateNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
        let set = names.iter().enumerate().filter(|(bit, _)| self.0.bits() >> bit & 1 == 1);
        set.map(|(_, name)| name).try_for_each(|name| write!(f, "+{name}"))
    }
}

/// Two texts in two columns; `|` marks the lines that differ.
pub fn side_by_side(left: &str, right: &str) -> String {
    let width = left.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let (mut left, mut right) = (left.lines(), right.lines());
    let mut out = String::new();
    loop {
        let (a, b) = (left.next(), right.next());
        if a.is_none() && b.is_none() {
            return out;
        }
        let mark = if a == b { ' ' } else { '|' };
        let line = format!("{:<width$} {mark} {}", a.unwrap_or_default(), b.unwrap_or_default());
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_columns_show_where_they_differ() {
        assert_eq!(side_by_side("a\nbb\n", "a\nc\nd"), "a    a\nbb | c\n   | d\n");
    }
}
