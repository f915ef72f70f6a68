//! The switch: its state, and the run of a packet through it.
//!
//! As in Open vSwitch, a run is made of passes. A pass translates flows to a list of datapath actions, which are then
//! executed. An action whose result is needed (connection tracking, a hash) begins another pass. So a learned flow applies
//! to the next pass of the packet, not to this one, and when a limit is hit no action of the pass is executed.

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

/// Maximum number of table lookups in a pass.
pub(crate) const MAX_RESUBMITS: u32 = 4096;
/// Maximum depth of resubmits to the same or an earlier table.
pub(crate) const MAX_DEPTH: u32 = 64;
/// Maximum number of recirculations.
pub(crate) const MAX_RECIRCULATIONS: u8 = 6;

/// A simulated switch: flows, groups, ports and connections.
#[derive(Clone, Debug, Default)]
pub struct Simulator {
    tables: Arc<Tables>,
    groups: Arc<Groups>,
    conntrack: Conntrack,
    macs: Macs,
    ports: Option<BTreeSet<Port>>,
    choice: Choice,
}

/// One of the possible results for a packet, depending on the buckets of select groups.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The path of the packet.
    pub trace: Trace,
    /// The switch after the packet.
    pub after: Simulator,
}

/// What a run collects.
struct Run<'a> {
    switch: &'a mut Simulator,
    now: Time,
    steps: Vec<Step>,
    sent: Vec<Sent>,
    /// Why the packet was dropped, as far as known.
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

    /// Limits the switch to these ports: output to others fails, and NORMAL and FLOOD use them.
    #[must_use]
    pub fn with_ports(mut self, ports: impl IntoIterator<Item = Port>) -> Self {
        self.ports = Some(ports.into_iter().collect());
        self
    }

    /// Sets which buckets select groups take.
    #[must_use]
    pub fn with_choice(mut self, choice: Choice) -> Self {
        self.choice = choice;
        self
    }

    /// The flows, including learned ones.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The state of connection tracking.
    pub fn conntrack(&self) -> &Conntrack {
        &self.conntrack
    }

    /// The state of connection tracking, to flush connections.
    pub fn conntrack_mut(&mut self) -> &mut Conntrack {
        &mut self.conntrack
    }

    /// Applies a flow-mod at time `now`.
    pub fn flow_mod(&mut self, now: Time, flow_mod: &FlowMod) {
        Arc::make_mut(&mut self.tables).apply(now, flow_mod);
    }

    /// Applies a group-mod; flows that use a deleted group are deleted too.
    pub fn group_mod(&mut self, group_mod: &GroupMod) {
        Arc::make_mut(&mut self.groups).apply(group_mod);
        if let GroupMod::Delete(id) = group_mod {
            Arc::make_mut(&mut self.tables).remove_users_of_group(*id);
        }
    }

    /// Sets whether the link of a port is up.
    pub fn set_port(&mut self, port: Port, up: bool) {
        Arc::make_mut(&mut self.groups).set_port(port, up);
    }

    /// Runs a packet; `now` must not decrease.
    pub fn run(&mut self, now: Time, arrival: &Arrival) -> Trace {
        self.run_script(now, arrival, &[]).0
    }

    /// Runs a packet once for every combination of buckets, each on a copy of the switch.
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
