//! What holds for every sequence of events.

use std::collections::BTreeSet;

use openflow::action::Action;
use openflow::flow::Flow;
use openflow::group::{Bucket, Group, GroupType};
use openflow::matching::Match;
use openflow::meter::{Meter, MeterId};
use openflow::port::Port;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::model::{Owner, POISON, Switch, Wanted, messages};
use crate::{Failure, State};

#[derive(Clone, Debug)]
enum Step {
    Flows(Owner, Vec<Flow>),
    Groups(Owner, Vec<Group>),
    Meters(Owner, Vec<Meter>),
    Remove(Owner),
    /// A patch is made, the steps happen, and the patch is carried out.
    Patch(Vec<Step>),
    /// A patch is made, and the connection breaks before or after it is carried out.
    Break(bool),
    /// The switch is listed anew.
    Resync,
    /// Someone else removes everything from a table, then the switch is listed anew.
    Meddle(u8),
    AllowSweep,
    Retry,
}

/// With conflicts and with what the switch refuses, or without.
#[derive(Clone, Copy, Debug)]
struct Peace(bool);

fn flow(peace: Peace) -> impl Strategy<Value = Flow> {
    let clause = (0..4u32, 1..3u8).prop_map(|(id, clause)| Action::Conjunction { id, clause, of: 2 });
    let clauses = vec(clause, 1..3);
    // In peace, actions follow from the key, so that nobody disagrees.
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
            flow.actions = match peace {
                Peace(true) if table == 1 => clauses,
                Peace(true) => vec![Action::Group(u32::from(address) + 1)],
                Peace(false) if conjunctive => clauses,
                Peace(false) => other,
            };
            flow.idle_timeout = if timeout && !peace.0 { 60 } else { 0 };
            flow
        },
    )
}

fn group(peace: Peace) -> impl Strategy<Value = Group> {
    let bucket = (prop_oneof![6 => 1..4u16, 1 => Just(POISON)], prop::option::weighted(0.3, 1..4u32));
    (1..4u32, vec(bucket, 0..3)).prop_map(move |(id, buckets)| {
        let bucket = |(weight, next): (u16, Option<u32>)| Bucket {
            weight: Some(if peace.0 { 1 } else { weight }),
            // Upwards only: the switch does not like circles.
            actions: next.filter(|next| *next > id).map(Action::Group).into_iter().collect(),
            ..Bucket::default()
        };
        let mut group = Group { id, kind: GroupType::Select, selection: None, buckets: vec![], unknown: vec![] };
        if !peace.0 {
            group.buckets = buckets.into_iter().map(bucket).collect();
        }
        group
    })
}

fn meter(peace: Peace) -> impl Strategy<Value = Meter> {
    (1..3u32, prop_oneof![3 => 1..3u32, 1 => Just(POISON.into())])
        .prop_map(move |(id, rate)| Meter::drop_pktps(MeterId(id), if peace.0 { 1 } else { rate }, 1))
}

fn owned(owner: Owner, flows: Vec<Flow>) -> Vec<Flow> {
    flows.into_iter().map(|flow| flow.cookie(owner.into())).collect()
}

fn wish(peace: Peace) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..4u32, vec(flow(peace), 0..5)).prop_map(|(owner, flows)| Step::Flows(owner, owned(owner, flows))),
        3 => (1..4u32, vec(group(peace), 0..4)).prop_map(|(owner, groups)| Step::Groups(owner, groups)),
        2 => (1..4u32, vec(meter(peace), 0..3)).prop_map(|(owner, meters)| Step::Meters(owner, meters)),
        1 => (1..4u32).prop_map(Step::Remove),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => wish(Peace(false)),
        6 => vec(wish(Peace(false)), 0..3).prop_map(Step::Patch),
        2 => any::<bool>().prop_map(Step::Break),
        1 => Just(Step::Resync),
        1 => (1..3u8).prop_map(Step::Meddle),
        1 => Just(Step::AllowSweep),
        1 => Just(Step::Retry),
    ]
}

/// A state, a switch, and what was said.
struct World {
    state: State<Owner>,
    switch: Switch,
    wanted: Wanted,
}

impl World {
    fn new(switch: Switch) -> Self {
        let mut state = State::new(|_| false);
        switch.resync(&mut state);
        Self { state, switch, wanted: Wanted::default() }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Flows(owner, flows) => {
                self.wanted.flows.insert(owner, flows.clone());
                self.state.set_flows(&owner, flows);
            }
            Step::Groups(owner, groups) => {
                self.wanted.groups.insert(owner, groups.clone());
                self.state.set_groups(&owner, groups);
            }
            Step::Meters(owner, meters) => {
                self.wanted.meters.insert(owner, meters.clone());
                self.state.set_meters(&owner, meters);
            }
            Step::Remove(owner) => {
                self.wanted.flows.remove(&owner);
                self.wanted.groups.remove(&owner);
                self.wanted.meters.remove(&owner);
                self.state.remove(&owner);
            }
            Step::Patch(meanwhile) => {
                let Some(patch) = self.state.patch() else { return };
                let before = messages(&self.state, &patch, 0..patch.len());
                assert_eq!(before.len(), patch.len());
                for step in meanwhile {
                    self.step(step);
                }
                assert_eq!(messages(&self.state, &patch, 0..patch.len()), before);
                match self.switch.carry_out(&self.state, &patch) {
                    Ok(()) => self.state.committed(patch),
                    Err(failure) => self.state.failed(patch, failure),
                }
            }
            Step::Break(carried_out) => {
                let Some(patch) = self.state.patch() else { return };
                if carried_out {
                    let _ = self.switch.carry_out(&self.state, &patch);
                }
                self.state.failed(patch, Failure::Unknown);
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

/// A switch that something has been done to.
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
    fn every_way_ends_with_what_is_wanted(before in vec(wish(Peace(false)), 0..4), steps in vec(step(), 0..24)) {
        let mut world = World::new(used_switch(before));
        for step in steps {
            world.step(step);
        }
        let World { mut state, mut switch, wanted } = world;
        state.allow_sweep();
        state.retry();
        switch.converge(&mut state);
        let outcome = wanted.outcome();
        for (key, flow) in &outcome.flows {
            prop_assert_eq!(switch.flows.get(key), Some(flow));
        }
        for (id, group) in &outcome.groups {
            prop_assert_eq!(switch.groups.get(id), Some(group));
        }
        for (id, meter) in &outcome.meters {
            prop_assert_eq!(switch.meters.get(id), Some(meter));
        }
        // What is there beyond that is wanted as well, only not like that.
        let keys = wanted.keys();
        prop_assert_eq!(switch.cascaded, 0);
        prop_assert!(switch.flows.keys().all(|key| keys.contains(key)));

        // From scratch it is the same, conflicts included.
        let (mut again, mut fresh) = (State::new(|_| false), Switch::default());
        wanted.tell(&mut again);
        fresh.resync(&mut again);
        again.allow_sweep();
        fresh.converge(&mut again);
        prop_assert_eq!(again.conflicts(), state.conflicts());
        for (key, flow) in &fresh.flows {
            prop_assert_eq!(switch.flows.get(key), Some(flow));
        }

        // And a resync finds nothing to do.
        switch.resync(&mut state);
        prop_assert!(state.patch().is_none());
    }

    #[test]
    fn what_nobody_has_spoken_of_stays_until_sweeping_is_allowed(
        before in vec(wish(Peace(false)), 0..6),
        steps in vec(prop_oneof![
            2 => wish(Peace(false)),
            2 => vec(wish(Peace(false)), 0..3).prop_map(Step::Patch),
            1 => any::<bool>().prop_map(Step::Break),
            1 => Just(Step::Resync),
        ], 0..16),
    ) {
        let found = used_switch(before);
        let mut world = World::new(found.clone());
        let (mut keys, mut groups) = (BTreeSet::new(), BTreeSet::new());
        for step in steps {
            world.step(step);
            keys.extend(world.wanted.keys());
            groups.extend(world.wanted.groups.values().flatten().map(|group| group.id));
        }
        for (key, flow) in found.flows.iter().filter(|(key, _)| !keys.contains(key)) {
            prop_assert_eq!(world.switch.flows.get(key), Some(flow));
        }
        for (id, group) in found.groups.iter().filter(|(id, _)| !groups.contains(id)) {
            prop_assert_eq!(world.switch.groups.get(id), Some(group));
        }
    }

    #[test]
    fn a_restart_sends_nothing(steps in vec(wish(Peace(true)), 0..12), owners in Just(vec![1, 2, 3]).prop_shuffle(), listed in 0..4usize) {
        let mut world = World::new(Switch::default());
        world.state.allow_sweep();
        for step in steps {
            world.step(step);
        }
        world.switch.converge(&mut world.state);
        // Two owners of a group would disagree until both have spoken, and so would what waits for a group.
        let mut taken = BTreeSet::new();
        for groups in world.wanted.groups.values_mut() {
            groups.retain(|group| taken.insert(group.id));
        }
        let mut taken = BTreeSet::new();
        for meters in world.wanted.meters.values_mut() {
            meters.retain(|meter| taken.insert(meter.id));
        }
        let mut state = State::new(|_| false);
        for (at, owner) in owners.iter().enumerate() {
            if at == listed {
                world.switch.resync(&mut state);
            }
            world.wanted.tell_of(&mut state, *owner);
            if let Some(patch) = state.patch() {
                prop_assert!(patch.is_empty(), "{:?}", messages(&state, &patch, 0..patch.len()));
            }
        }
        if listed == owners.len() {
            world.switch.resync(&mut state);
        }
        state.allow_sweep();
        let patch = state.patch();
        prop_assert!(patch.is_none(), "{:?}", messages(&state, &patch.unwrap(), 0..99));
    }
}
