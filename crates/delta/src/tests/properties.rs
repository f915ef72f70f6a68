//! Properties of every sequence of events.

use std::collections::BTreeSet;

use openflow::action::Action;
use openflow::flow::Flow;
use openflow::group::{Bucket, Group, GroupType};
use openflow::matching::Match;
use openflow::meter::{Meter, MeterId};
use openflow::port::Port;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::Failure;
use crate::model::{AllClaims, Key, Owner, POISON, State, Switch, conclude, key, len, messages};

#[derive(Clone, Debug)]
enum Step {
    Flows(Owner, Vec<Flow>),
    Groups(Owner, Vec<Group>),
    Meters(Owner, Vec<Meter>),
    Remove(Owner),
    /// A patch is made, the steps happen, and the patch is applied.
    Patch(Vec<Step>),
    /// A patch is made, and the connection breaks before or after it is applied.
    Break(bool),
    /// A resync without a reason.
    Resync,
    /// Another program deletes all flows of a table; a resync follows.
    Meddle(u8),
    AllowSweep,
    Retry,
}

/// Whether steps are free of conflicts and of objects that the switch rejects.
#[derive(Clone, Copy, Debug)]
struct Harmless(bool);

fn flow(harmless: Harmless) -> impl Strategy<Value = Flow> {
    let clause = (0..4u32, 1..3u8).prop_map(|(id, clause)| Action::Conjunction { id, clause, of: 2 });
    let clauses = vec(clause, 1..3);
    // Without conflicts, the key determines the actions.
    let other = prop_oneof![
        3 => (1..4u32).prop_map(|id| vec![Action::Group(id)]),
        2 => (1..3u32).prop_map(|id| vec![Action::Meter(id)]),
        2 => (1..4u32).prop_map(|port| vec![Action::Output(Port(port))]),
        1 => Just(vec![Action::Output(Port(POISON.into()))]),
    ];
    (1..3u8, 0..3u8, any::<bool>(), clauses, other, prop::bool::weighted(0.1)).prop_map(
        move |(table, address, conjunctive, clauses, other, timeout)| {
            let matches = Match::ip().with(openflow::field::Field::Ipv4Dst, u32::from(address));
            let mut flow = Flow::at(table, 10).when(matches);
            flow.actions = match harmless {
                Harmless(true) if table == 1 => clauses,
                Harmless(true) => vec![Action::Group(u32::from(address) + 1)],
                Harmless(false) if conjunctive => clauses,
                Harmless(false) => other,
            };
            flow.idle_timeout = if timeout && !harmless.0 { 60 } else { 0 };
            flow
        },
    )
}

fn group(harmless: Harmless) -> impl Strategy<Value = Group> {
    let bucket = (prop_oneof![6 => 1..4u16, 1 => Just(POISON)], prop::option::weighted(0.3, 1..4u32));
    (1..4u32, vec(bucket, 0..3)).prop_map(move |(id, buckets)| {
        let bucket = |(weight, next): (u16, Option<u32>)| Bucket {
            weight: Some(if harmless.0 { 1 } else { weight }),
            // Upwards only: the switch rejects cycles.
            actions: next.filter(|next| *next > id).map(Action::Group).into_iter().collect(),
            ..Bucket::default()
        };
        let mut group = Group { id, kind: GroupType::Select, selection: None, buckets: vec![], unknown: vec![] };
        if !harmless.0 {
            group.buckets = buckets.into_iter().map(bucket).collect();
        }
        group
    })
}

fn meter(harmless: Harmless) -> impl Strategy<Value = Meter> {
    (1..3u32, prop_oneof![3 => 1..3u32, 1 => Just(POISON.into())])
        .prop_map(move |(id, rate)| Meter::drop_pktps(MeterId(id), if harmless.0 { 1 } else { rate }, 1))
}

fn owned(owner: Owner, flows: Vec<Flow>) -> Vec<Flow> {
    flows.into_iter().map(|flow| flow.cookie(owner.into())).collect()
}

fn claims(harmless: Harmless) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..4u32, vec(flow(harmless), 0..5)).prop_map(|(owner, flows)| Step::Flows(owner, owned(owner, flows))),
        3 => (1..4u32, vec(group(harmless), 0..4)).prop_map(|(owner, groups)| Step::Groups(owner, groups)),
        2 => (1..4u32, vec(meter(harmless), 0..3)).prop_map(|(owner, meters)| Step::Meters(owner, meters)),
        1 => (1..4u32).prop_map(Step::Remove),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => claims(Harmless(false)),
        6 => vec(claims(Harmless(false)), 0..3).prop_map(Step::Patch),
        2 => any::<bool>().prop_map(Step::Break),
        1 => Just(Step::Resync),
        1 => (1..3u8).prop_map(Step::Meddle),
        1 => Just(Step::AllowSweep),
        1 => Just(Step::Retry),
    ]
}

/// A state, a switch, the claims, and the keys that were ever claimed.
struct World {
    state: State,
    switch: Switch,
    claims: AllClaims,
    flow_keys: BTreeSet<Key>,
    group_ids: BTreeSet<u32>,
}

impl World {
    fn new(switch: Switch) -> Self {
        let mut state = State::with_meters(|_| false);
        switch.resync(&mut state);
        Self { state, switch, claims: AllClaims::default(), flow_keys: BTreeSet::new(), group_ids: BTreeSet::new() }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Flows(owner, flows) => {
                self.flow_keys.extend(flows.iter().map(key));
                self.claims.flows.insert(owner, flows.clone());
                self.state.set_flows(&owner, flows);
            }
            Step::Groups(owner, groups) => {
                self.group_ids.extend(groups.iter().map(|group| group.id));
                self.claims.groups.insert(owner, groups.clone());
                self.state.set_groups(&owner, groups);
            }
            Step::Meters(owner, meters) => {
                self.claims.meters.insert(owner, meters.clone());
                self.state.set_meters(&owner, meters);
            }
            Step::Remove(owner) => {
                self.claims.flows.remove(&owner);
                self.claims.groups.remove(&owner);
                self.claims.meters.remove(&owner);
                self.state.remove(&owner);
            }
            Step::Patch(meanwhile) => {
                let Some(patch) = self.state.patch() else { return };
                let before = messages(&self.state, &patch);
                assert_eq!(before.len(), len(&patch));
                for step in meanwhile {
                    self.step(step);
                }
                assert_eq!(messages(&self.state, &patch), before);
                let result = self.switch.apply(&self.state, &patch);
                conclude(&mut self.state, patch, result);
            }
            Step::Break(applied) => {
                let Some(patch) = self.state.patch() else { return };
                if applied {
                    let _ = self.switch.apply(&self.state, &patch);
                }
                conclude(&mut self.state, patch, Err(Failure::Unknown));
                self.switch.resync(&mut self.state);
            }
            Step::Resync => self.switch.resync(&mut self.state),
            Step::Meddle(table) => {
                self.switch.flows.retain(|_, flow| flow.table != table);
                self.switch.resync(&mut self.state);
            }
            Step::AllowSweep => self.state.allow_sweep(),
            Step::Retry => self.state.retry(),
        }
    }
}

/// A switch with leftovers of these steps.
fn used_switch(steps: Vec<Step>) -> Switch {
    let mut world = World::new(Switch::default());
    for step in steps {
        world.step(step);
        world.step(Step::Patch(vec![]));
    }
    Switch { cascaded: 0, ..world.switch }
}

proptest! {
    #[test]
    fn every_history_ends_in_the_desired_state(before in vec(claims(Harmless(false)), 0..4), steps in vec(step(), 0..24)) {
        let mut world = World::new(used_switch(before));
        for step in steps {
            world.step(step);
        }
        let World { mut state, mut switch, claims, .. } = world;
        state.allow_sweep();
        state.retry();
        switch.converge(&mut state);
        let outcome = claims.outcome();
        for (key, flow) in &outcome.flows {
            prop_assert_eq!(switch.flows.get(key), Some(flow));
        }
        for (id, group) in &outcome.groups {
            prop_assert_eq!(switch.groups.get(id), Some(group));
        }
        for (id, meter) in &outcome.meters {
            prop_assert_eq!(switch.meters.get(id), Some(meter));
        }
        // Other flows have a claimed key: their desired contents cannot be installed.
        let keys = claims.keys();
        prop_assert_eq!(switch.cascaded, 0);
        prop_assert!(switch.flows.keys().all(|key| keys.contains(key)));

        // A new state ends the same, with the same conflicts.
        let (mut again, mut fresh) = (State::with_meters(|_| false), Switch::default());
        claims.set_all(&mut again);
        fresh.resync(&mut again);
        again.allow_sweep();
        fresh.converge(&mut again);
        prop_assert_eq!(again.conflicts(), state.conflicts());
        for (key, flow) in &fresh.flows {
            prop_assert_eq!(switch.flows.get(key), Some(flow));
        }

        // A resync finds nothing to do.
        switch.resync(&mut state);
        prop_assert!(state.patch().is_none());
    }

    #[test]
    fn unclaimed_objects_stay_until_sweeping_is_allowed(
        before in vec(claims(Harmless(false)), 0..6),
        steps in vec(prop_oneof![
            2 => claims(Harmless(false)),
            2 => vec(claims(Harmless(false)), 0..3).prop_map(Step::Patch),
            1 => any::<bool>().prop_map(Step::Break),
            1 => Just(Step::Resync),
        ], 0..16),
    ) {
        let leftovers = used_switch(before);
        let mut world = World::new(leftovers.clone());
        for step in steps {
            world.step(step);
        }
        for (key, flow) in leftovers.flows.iter().filter(|(key, _)| !world.flow_keys.contains(key)) {
            prop_assert_eq!(world.switch.flows.get(key), Some(flow));
        }
        for (id, group) in leftovers.groups.iter().filter(|(id, _)| !world.group_ids.contains(id)) {
            prop_assert_eq!(world.switch.groups.get(id), Some(group));
        }
    }

    #[test]
    fn a_restart_sends_nothing(steps in vec(claims(Harmless(true)), 0..12), owners in Just(vec![1, 2, 3]).prop_shuffle(), listed in 0..4usize) {
        let mut world = World::new(Switch::default());
        world.state.allow_sweep();
        for step in steps {
            world.step(step);
        }
        world.switch.converge(&mut world.state);
        // One owner for each group and meter: two would conflict until both have made their claims.
        let mut taken = BTreeSet::new();
        for groups in world.claims.groups.values_mut() {
            groups.retain(|group| taken.insert(group.id));
        }
        let mut taken = BTreeSet::new();
        for meters in world.claims.meters.values_mut() {
            meters.retain(|meter| taken.insert(meter.id));
        }
        let mut state = State::with_meters(|_| false);
        for (at, owner) in owners.iter().enumerate() {
            if at == listed {
                world.switch.resync(&mut state);
            }
            world.claims.set(&mut state, *owner);
            let patch = state.patch();
            prop_assert!(patch.is_none(), "{:?}", messages(&state, &patch.unwrap()));
        }
        if listed == owners.len() {
            world.switch.resync(&mut state);
        }
        state.allow_sweep();
        let patch = state.patch();
        prop_assert!(patch.is_none(), "{:?}", messages(&state, &patch.unwrap()));
    }
}
