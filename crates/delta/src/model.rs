//! A switch in memory, with the semantics of Open vSwitch as far as they matter here; and what flows should become.

use std::collections::{BTreeMap, BTreeSet};

use openflow::action::Action;
use openflow::bundle::Bundled;
use openflow::flow::{Flow, FlowCommand, FlowMod};
use openflow::group::{Group, GroupMod};
use openflow::header::kind;
use openflow::matching::Match;
use openflow::meter::{Band, Meter, MeterMod};
use openflow::port::Port;
use openflow::wire::Reader;

use crate::target::{Target, targets};
use crate::{Failure, Patch, Rejected, State};

pub(crate) type Key = (u8, u16, Match);
pub(crate) type Owner = u32;

/// An output to this port, a bucket with this weight, a rate of this much: the model refuses it.
pub(crate) const POISON: u16 = 666;

/// A message as it went over the wire.
pub(crate) type Sent = (u8, Vec<u8>);

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Switch {
    pub(crate) flows: BTreeMap<Key, Flow>,
    pub(crate) groups: BTreeMap<u32, Group>,
    pub(crate) meters: BTreeMap<u32, Meter>,
    /// How many flows went because their group or meter did.
    pub(crate) cascaded: usize,
}

pub(crate) fn key(flow: &Flow) -> Key {
    (flow.table, flow.priority, flow.matches.clone())
}

pub(crate) fn messages(state: &State<Owner>, patch: &Patch, stage: std::ops::Range<usize>) -> Vec<Sent> {
    let encode = |message: crate::Message<'_>| {
        let mut body = Vec::new();
        message.put_body(&mut body);
        (message.kind(), body)
    };
    state.messages(patch, stage).map(encode).collect()
}

impl Switch {
    fn has(&self, target: Target) -> bool {
        match target {
            Target::Group(id) => self.groups.contains_key(&id),
            Target::Meter(id) => self.meters.contains_key(&id),
        }
    }

    fn has_all(&self, actions: &[Action]) -> bool {
        targets(actions).all(|target| self.has(target))
    }

    fn cascade(&mut self, target: Target) {
        let before = self.flows.len();
        self.flows.retain(|_, flow| !targets(&flow.actions).any(|t| t == target));
        self.cascaded += before - self.flows.len();
    }

    pub(crate) fn send(&mut self, (kind, body): &Sent) -> Result<(), String> {
        let reader = &mut Reader::new(body);
        match *kind {
            kind::FLOW_MOD => self.flow_mod(FlowMod::decode(reader).unwrap()),
            kind::GROUP_MOD => self.group_mod(GroupMod::decode(reader).unwrap()),
            kind::METER_MOD => self.meter_mod(MeterMod::decode(reader).unwrap()),
            other => panic!("message of type {other}"),
        }
    }

    fn flow_mod(&mut self, FlowMod { command, flow, .. }: FlowMod) -> Result<(), String> {
        match command {
            FlowCommand::Add if flow.actions.contains(&Action::Output(Port(POISON.into()))) => {
                return Err("poison".into());
            }
            FlowCommand::Add if !self.has_all(&flow.actions) => panic!("{flow} points at nothing"),
            FlowCommand::Add => drop(self.flows.insert(key(&flow), flow)),
            FlowCommand::DeleteStrict => drop(self.flows.remove(&key(&flow))),
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    fn group_mod(&mut self, message: GroupMod) -> Result<(), String> {
        match message {
            GroupMod::AddOrModify(group) => {
                if group.buckets.iter().any(|bucket| bucket.weight == Some(POISON)) {
                    return Err("poison".into());
                }
                assert!(group.buckets.iter().all(|b| self.has_all(&b.actions)), "{group} points at nothing");
                self.groups.insert(group.id, group);
            }
            GroupMod::Delete(id) => {
                self.groups.remove(&id);
                for group in self.groups.values() {
                    let actions: Vec<_> = group.buckets.iter().flat_map(|b| b.actions.clone()).collect();
                    assert!(self.has_all(&actions), "{group} points at nothing");
                }
                self.cascade(Target::Group(id));
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    fn meter_mod(&mut self, message: MeterMod) -> Result<(), String> {
        let poison = |meter: &Meter| meter.bands.contains(&Band::Drop { rate: POISON.into(), burst: 1 });
        match message {
            MeterMod::Add(meter) | MeterMod::Modify(meter) if poison(&meter) => return Err("poison".into()),
            MeterMod::Add(meter) => {
                let id = meter.id.0;
                assert!(self.meters.insert(id, meter).is_none(), "meter {id} is there already");
            }
            MeterMod::Modify(meter) => {
                let id = meter.id.0;
                assert!(self.meters.insert(id, meter).is_some(), "meter {id} is not there");
            }
            MeterMod::Delete(id) => {
                self.meters.remove(&id.0);
                self.cascade(Target::Meter(id.0));
            }
        }
        Ok(())
    }

    /// Carries a patch out, as far as it goes.
    pub(crate) fn carry_out(&mut self, state: &State<Owner>, patch: &Patch) -> Result<(), Failure> {
        self.stage(state, patch, patch.before())?;
        let mut after = self.clone();
        for (index, message) in patch.bundle().zip(messages(state, patch, patch.bundle())) {
            let rejected = |reason| Failure::Rejected(vec![Rejected { index, reason }]);
            after.send(&message).map_err(rejected)?;
        }
        *self = after;
        self.stage(state, patch, patch.after())
    }

    fn stage(&mut self, state: &State<Owner>, patch: &Patch, stage: std::ops::Range<usize>) -> Result<(), Failure> {
        let mut rejected = Vec::new();
        for (index, message) in stage.clone().zip(messages(state, patch, stage)) {
            if let Err(reason) = self.send(&message) {
                rejected.push(Rejected { index, reason });
            }
        }
        if rejected.is_empty() { Ok(()) } else { Err(Failure::Rejected(rejected)) }
    }

    /// Tells the state all that the switch holds.
    pub(crate) fn resync(&self, state: &mut State<Owner>) {
        state.begin_resync();
        for flow in self.flows.values() {
            state.observe_flow(flow);
        }
        for group in self.groups.values() {
            state.observe_group(group.clone());
        }
        for meter in self.meters.values() {
            state.observe_meter(meter.clone());
        }
        state.end_resync();
    }

    /// Sends patches until there is nothing more to send; says how many messages it took.
    pub(crate) fn converge(&mut self, state: &mut State<Owner>) -> usize {
        let mut count = 0;
        for _ in 0..50 {
            let Some(patch) = state.patch() else { return count };
            count += patch.len();
            match self.carry_out(state, &patch) {
                Ok(()) => state.committed(patch),
                Err(failure) => state.failed(patch, failure),
            }
        }
        panic!("there is always more to send");
    }
}

/// What everyone wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) flows: BTreeMap<Owner, Vec<Flow>>,
    pub(crate) groups: BTreeMap<Owner, Vec<Group>>,
    pub(crate) meters: BTreeMap<Owner, Vec<Meter>>,
}

impl Wanted {
    /// Fills a fresh state.
    pub(crate) fn tell(&self, state: &mut State<Owner>) {
        for owner in self.owners() {
            self.tell_of(state, owner);
        }
    }

    pub(crate) fn tell_of(&self, state: &mut State<Owner>, owner: Owner) {
        state.set_meters(&owner, self.meters.get(&owner).cloned().unwrap_or_default());
        state.set_groups(&owner, self.groups.get(&owner).cloned().unwrap_or_default());
        state.set_flows(&owner, self.flows.get(&owner).cloned().unwrap_or_default());
    }

    pub(crate) fn owners(&self) -> BTreeSet<Owner> {
        self.flows.keys().chain(self.groups.keys()).chain(self.meters.keys()).copied().collect()
    }

    /// What the switch should hold in the end, computed in the most plain way.
    pub(crate) fn outcome(&self) -> Switch {
        let mut parts: BTreeMap<Key, Vec<Flow>> = BTreeMap::new();
        for flow in self.flows.values().flatten() {
            parts.entry(key(flow)).or_default().push(flow.clone());
        }
        let mut switch = Switch::default();
        for (key, parts) in parts {
            let pure = |flow: &Flow| {
                !flow.actions.is_empty() && flow.actions.iter().all(|a| matches!(a, Action::Conjunction { .. }))
            };
            let mut flow = parts[0].clone();
            if pure(&flow) {
                let agreeing = parts.iter().filter(|f| pure(f) && f.idle_timeout == flow.idle_timeout);
                flow.actions = agreeing.flat_map(|f| f.actions.clone()).collect();
                flow.actions.sort_by_key(|action| match *action {
                    Action::Conjunction { id, clause, of } => (id, clause, of),
                    _ => unreachable!(),
                });
                flow.actions.dedup();
            }
            switch.flows.insert(key, flow);
        }
        for group in self.groups.values().flatten() {
            switch.groups.entry(group.id).or_insert_with(|| group.clone());
        }
        for meter in self.meters.values().flatten() {
            switch.meters.entry(meter.id.0).or_insert_with(|| meter.clone());
        }
        switch.without_what_cannot_be()
    }

    /// Keys that someone wants, whether or not they can be had.
    pub(crate) fn keys(&self) -> BTreeSet<Key> {
        self.flows.values().flatten().map(key).collect()
    }
}

impl Switch {
    /// Leaves out what the switch refuses, and what points at something that is missing.
    fn without_what_cannot_be(mut self) -> Self {
        self.meters.retain(|_, meter| !meter.bands.contains(&Band::Drop { rate: POISON.into(), burst: 1 }));
        self.groups.retain(|_, group| group.buckets.iter().all(|bucket| bucket.weight != Some(POISON)));
        loop {
            let all = self.clone();
            self.groups.retain(|_, group| group.buckets.iter().all(|bucket| all.has_all(&bucket.actions)));
            if self.groups.len() == all.groups.len() {
                break;
            }
        }
        let all = self.clone();
        self.flows.retain(|_, flow| all.has_all(&flow.actions));
        self.flows.retain(|_, flow| !flow.actions.contains(&Action::Output(Port(POISON.into()))));
        self
    }
}
