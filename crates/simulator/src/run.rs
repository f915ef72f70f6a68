//! The switch: what it knows, and a packet's run through it.
//!
//! As in Open vSwitch, a run is made of passes. A pass reads flows and makes a list of what is to be done; then that is
//! done. What needs the result of doing it (connection tracking, a hash) begins another pass. So a flow that a packet
//! teaches is seen by its next pass, not by this one, and when a limit is hit nothing of the pass is done.

mod execute;
mod translate;

use std::collections::BTreeSet;
use std::sync::Arc;

use openflow::flow::{Flow, FlowMod};
use openflow::group::{Group, GroupMod};
use openflow::port::Port;

use crate::conntrack::Conntrack;
use crate::fields::View;
use crate::groups::{Choice, Groups, Pick};
use crate::normal::Macs;
use crate::packet::Arrival;
use crate::tables::{Tables, Time};
use crate::trace::{Entry, Reason, Sent, Step, Trace, Verdict};
use execute::Datapath;

/// How often a pass may search a table.
pub(crate) const MAX_RESUBMITS: u32 = 4096;
/// How deep a pass may go back to tables that are not behind the current one.
pub(crate) const MAX_DEPTH: u32 = 64;
/// How many passes may be nested in the first one.
pub(crate) const MAX_RECIRCULATIONS: u8 = 6;

/// A switch.
#[derive(Clone, Debug, Default)]
pub struct Simulator {
    tables: Arc<Tables>,
    groups: Arc<Groups>,
    conntrack: Conntrack,
    macs: Macs,
    ports: Option<BTreeSet<Port>>,
    choice: Choice,
}

/// One of several ways that a packet may take.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The way.
    pub trace: Trace,
    /// The switch after it.
    pub after: Simulator,
}

/// What a run collects.
struct Run<'a> {
    switch: &'a mut Simulator,
    now: Time,
    steps: Vec<Step>,
    sent: Vec<Sent>,
    /// Why the packet did not leave, as far as is known.
    reason: Option<Reason>,
    picks: Vec<Pick>,
    /// Places among the candidates that select groups take, in this order, before the switch's own choice counts.
    script: &'a [usize],
    /// How many candidates each of the groups had.
    options: Vec<usize>,
}

impl Simulator {
    /// A switch with these flows and groups.
    pub fn new(flows: impl IntoIterator<Item = Flow>, groups: impl IntoIterator<Item = Group>) -> Self {
        let mut switch = Self::default();
        let tables = Arc::make_mut(&mut switch.tables);
        for flow in flows {
            tables.add(Time::ZERO, flow);
        }
        let all = Arc::make_mut(&mut switch.groups);
        for group in groups {
            all.add(group);
        }
        switch
    }

    /// With these ports and no others: output elsewhere fails, and NORMAL and FLOOD know where to go.
    #[must_use]
    pub fn with_ports(mut self, ports: impl IntoIterator<Item = Port>) -> Self {
        self.ports = Some(ports.into_iter().collect());
        self
    }

    /// With this choice of buckets.
    #[must_use]
    pub fn with_choice(mut self, choice: Choice) -> Self {
        self.choice = choice;
        self
    }

    /// The flows, those that were learned included.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The connections.
    pub fn conntrack(&self) -> &Conntrack {
        &self.conntrack
    }

    /// The connections, to flush some.
    pub fn conntrack_mut(&mut self) -> &mut Conntrack {
        &mut self.conntrack
    }

    /// Changes flows.
    pub fn flow_mod(&mut self, now: Time, flow_mod: &FlowMod) {
        Arc::make_mut(&mut self.tables).apply(now, flow_mod);
    }

    /// Changes groups; flows that use a group that goes, go too.
    pub fn group_mod(&mut self, group_mod: &GroupMod) {
        Arc::make_mut(&mut self.groups).apply(group_mod);
        if let GroupMod::Delete(id) = group_mod {
            Arc::make_mut(&mut self.tables).remove_users_of_group(*id);
        }
    }

    /// Says whether the link of a port is up.
    pub fn set_port(&mut self, port: Port, up: bool) {
        Arc::make_mut(&mut self.groups).set_port(port, up);
    }

    /// Runs a packet; `now` never goes back.
    pub fn run(&mut self, now: Time, arrival: &Arrival) -> Trace {
        self.run_script(now, arrival, &[]).0
    }

    /// Runs a packet on every way that select groups may send it, each on a switch of its own.
    pub fn explore(&self, now: Time, arrival: &Arrival) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let mut scripts = vec![Vec::new()];
        while let Some(script) = scripts.pop() {
            let mut after = self.clone();
            let (trace, options) = after.run_script(now, arrival, &script);
            // This run took the first candidate wherever the script ended; the others are yet to be run.
            for (at, count) in options.iter().enumerate().skip(script.len()).rev() {
                let mut prefix = script.clone();
                prefix.resize(at, 0);
                scripts.extend((1..*count).rev().map(|pick| [&prefix[..], &[pick]].concat()));
            }
            outcomes.push(Outcome { trace, after });
        }
        outcomes
    }

    fn run_script(&mut self, now: Time, arrival: &Arrival, script: &[usize]) -> (Trace, Vec<usize>) {
        if self.tables.has_timeouts() {
            Arc::make_mut(&mut self.tables).expire(now);
        }
        let mut run = Run {
            switch: self,
            now,
            steps: Vec::new(),
            sent: Vec::new(),
            reason: None,
            picks: Vec::new(),
            script,
            options: Vec::new(),
        };
        let view = View::of(arrival);
        let datapath = Datapath::of(&view.packet);
        run.pass(view, datapath, 0, Entry::Start, false, 0);
        let Run { steps, sent, reason, picks, options, .. } = run;
        let verdict =
            if sent.is_empty() { Verdict::Dropped(reason.unwrap_or(Reason::NoOutput)) } else { Verdict::Sent(sent) };
        (Trace { arrival: arrival.clone(), steps, verdict, picks }, options)
    }
}

#[cfg(test)]
mod tests;
