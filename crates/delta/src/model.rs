//! A switch in memory, with the semantics of Open vSwitch that matter here, and the expected outcome of claims.

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
use crate::{Failure, Meters, Rejected, Stage};

pub(crate) type Key = (u8, u16, Match);
pub(crate) type Owner = u32;
pub(crate) type State = crate::State<Owner, Meters>;

/// The model rejects an output to this port, a bucket with this weight, and a meter with this rate.
pub(crate) const POISON: u16 = 666;

/// Type and body of a message on the wire.
pub(crate) type Sent = (u8, Vec<u8>);

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Switch {
    pub(crate) flows: BTreeMap<Key, Flow>,
    pub(crate) groups: BTreeMap<u32, Group>,
    pub(crate) meters: BTreeMap<u32, Meter>,
    /// The number of flows that were deleted together with their group or meter.
    pub(crate) cascaded: usize,
}

pub(crate) fn key(flow: &Flow) -> Key {
    (flow.table, flow.priority, flow.matches.clone())
}

pub(crate) fn len(stage: &Stage) -> usize {
    match stage {
        Stage::Meters(patch) => patch.len(),
        Stage::Bundle(patch) => patch.len(),
    }
}

pub(crate) fn messages(state: &State, stage: &Stage) -> Vec<Sent> {
    let encoded = |kind, encode: &dyn Fn(&mut Vec<u8>)| {
        let mut body = Vec::new();
        encode(&mut body);
        (kind, body)
    };
    match stage {
        Stage::Meters(patch) => {
            state.meter_mods(patch).map(|message| encoded(kind::METER_MOD, &|out| message.encode(out))).collect()
        }
        Stage::Bundle(patch) => {
            state.messages(patch).map(|message| encoded(message.kind(), &|out| message.put_body(out))).collect()
        }
    }
}

/// Reports the outcome of a stage.
pub(crate) fn conclude(state: &mut State, stage: Stage, result: Result<(), Failure>) {
    match (stage, result) {
        (Stage::Meters(patch), Ok(())) => state.meters_applied(patch),
        (Stage::Meters(patch), Err(failure)) => state.meters_failed(patch, failure),
        (Stage::Bundle(patch), Ok(())) => state.committed(patch),
        (Stage::Bundle(patch), Err(failure)) => state.failed(patch, failure),
    }
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
            FlowCommand::Add if !self.has_all(&flow.actions) => panic!("{flow} has no target"),
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
                assert!(group.buckets.iter().all(|b| self.has_all(&b.actions)), "{group} has no target");
                self.groups.insert(group.id, group);
            }
            GroupMod::Delete(id) => {
                self.groups.remove(&id);
                for group in self.groups.values() {
                    let actions: Vec<_> = group.buckets.iter().flat_map(|b| b.actions.clone()).collect();
                    assert!(self.has_all(&actions), "{group} has no target");
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
                assert!(self.meters.insert(id, meter).is_none(), "meter {id} exists already");
            }
            MeterMod::Modify(meter) => {
                let id = meter.id.0;
                assert!(self.meters.insert(id, meter).is_some(), "meter {id} does not exist");
            }
            MeterMod::Delete(id) => {
                self.meters.remove(&id.0);
                self.cascade(Target::Meter(id.0));
            }
        }
        Ok(())
    }

    /// Applies a stage: a bundle as a whole, meters one by one.
    pub(crate) fn apply(&mut self, state: &State, stage: &Stage) -> Result<(), Failure> {
        let mut after = self.clone();
        let mut rejected = Vec::new();
        for (index, message) in messages(state, stage).iter().enumerate() {
            if let Err(reason) = after.send(message) {
                rejected.push(Rejected { index, reason });
                if matches!(stage, Stage::Bundle(_)) {
                    return Err(Failure::Rejected(rejected));
                }
            }
        }
        *self = after;
        if rejected.is_empty() { Ok(()) } else { Err(Failure::Rejected(rejected)) }
    }

    /// Reports all objects of the switch to the state.
    pub(crate) fn resync(&self, state: &mut State) {
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

    /// Applies patches until none is left; returns the number of messages.
    pub(crate) fn converge(&mut self, state: &mut State) -> usize {
        let mut count = 0;
        for _ in 0..50 {
            let Some(stage) = state.patch() else { return count };
            count += len(&stage);
            let result = self.apply(state, &stage);
            conclude(state, stage, result);
        }
        panic!("50 patches, and still not converged");
    }
}

/// The claims of all owners.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllClaims {
    pub(crate) flows: BTreeMap<Owner, Vec<Flow>>,
    pub(crate) groups: BTreeMap<Owner, Vec<Group>>,
    pub(crate) meters: BTreeMap<Owner, Vec<Meter>>,
}

impl AllClaims {
    /// Sets the claims of all owners.
    pub(crate) fn set_all(&self, state: &mut State) {
        for owner in self.owners() {
            self.set(state, owner);
        }
    }

    pub(crate) fn set(&self, state: &mut State, owner: Owner) {
        state.set_meters(&owner, self.meters.get(&owner).cloned().unwrap_or_default());
        state.set_groups(&owner, self.groups.get(&owner).cloned().unwrap_or_default());
        state.set_flows(&owner, self.flows.get(&owner).cloned().unwrap_or_default());
    }

    pub(crate) fn owners(&self) -> BTreeSet<Owner> {
        self.flows.keys().chain(self.groups.keys()).chain(self.meters.keys()).copied().collect()
    }

    /// The objects that the switch should have in the end, computed in the plainest way.
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
        switch.without_impossible()
    }

    /// The keys of all claimed flows, whether or not these can be installed.
    pub(crate) fn keys(&self) -> BTreeSet<Key> {
        self.flows.values().flatten().map(key).collect()
    }
}

impl Switch {
    /// Leaves out objects that the switch rejects, and those with a missing target.
    fn without_impossible(mut self) -> Self {
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
