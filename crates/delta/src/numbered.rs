//! Groups and meters: things with a number, each of which belongs to one owner.

mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::life::{Installed, Life, Marks, Op, Outcome};
use crate::patch::{MAX_BODY, too_long};
use crate::report::{Conflict, Rejection, Waiting};
use crate::state::Observed;
use crate::target::{Pointers, Target};
pub(crate) use value::{EncodedGroup, Value, is_foreign_meter};

#[derive(Debug)]
struct Entry<O, V> {
    /// By owner; the first wins.
    claims: Vec<(O, V)>,
    /// What was found in the switch while it may yet be wanted.
    found: Option<V>,
    /// What the value in the switch points at.
    targets: Box<[Target]>,
    life: Life,
}

impl<O, V> Default for Entry<O, V> {
    fn default() -> Self {
        Self { claims: Vec::new(), found: None, targets: Box::default(), life: Life::default() }
    }
}

impl<O, V> Entry<O, V> {
    fn wanted(&self) -> Option<&V> {
        self.claims.first().map(|(_, value)| value)
    }
}

/// Things with numbers, of all owners.
#[derive(Debug)]
pub(crate) struct Numbered<O, V> {
    entries: BTreeMap<u32, Entry<O, V>>,
    owners: BTreeMap<O, Box<[u32]>>,
    /// What may be due.
    due: BTreeSet<u32>,
    /// Values under way that are no longer wanted as they were sent.
    pinned: BTreeMap<u32, V>,
    refused: BTreeMap<u32, String>,
    pointers: Pointers,
}

impl<O, V> Default for Numbered<O, V> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            owners: BTreeMap::new(),
            due: BTreeSet::new(),
            pinned: BTreeMap::new(),
            refused: BTreeMap::new(),
            pointers: Pointers::default(),
        }
    }
}

impl<O: Ord + Clone, V: Value> Numbered<O, V> {
    /// Replaces all that an owner wants.
    pub(crate) fn set(&mut self, owner: &O, values: impl IntoIterator<Item = (u32, V)>) {
        let mut given: BTreeMap<u32, Vec<V>> = BTreeMap::new();
        for (id, value) in values {
            let values = given.entry(id).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
        let ids: Box<[u32]> = given.keys().copied().collect();
        for id in self.owners.remove(owner).unwrap_or_default() {
            given.entry(id).or_default();
        }
        for (id, values) in given {
            self.claim(id, owner, values);
        }
        if !ids.is_empty() {
            self.owners.insert(owner.clone(), ids);
        }
    }

    /// Whether someone wants something that points there.
    pub(crate) fn points_at(&self, target: Target) -> bool {
        self.pointers.any(target)
    }

    /// Whether anything may be due.
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// What things in the switch point at, but for those that a message under way is about.
    pub(crate) fn held_targets(&self) -> BTreeSet<Target> {
        let held = |entry: &&Entry<O, V>| entry.life.installed != Installed::Absent && !entry.life.is(Marks::IN_FLIGHT);
        self.entries.values().filter(held).flat_map(|entry| entry.targets.iter().copied()).collect()
    }

    /// Whether the switch holds something under this number, now or once the patch under way has landed.
    pub(crate) fn is_available(&self, id: u32) -> bool {
        self.entries.get(&id).is_some_and(|entry| {
            let coming = entry.life.is(Marks::IN_FLIGHT) && entry.wanted().is_some();
            entry.life.installed != Installed::Absent || coming
        })
    }

    /// The numbers under which the switch holds something, or will if nothing goes wrong.
    pub(crate) fn coming(&self, others: impl Fn(Target) -> bool) -> BTreeSet<u32> {
        let mut coming: BTreeSet<u32> = self.entries.keys().copied().filter(|id| self.is_available(*id)).collect();
        loop {
            let is_there = |target| V::number(target).map_or_else(|| others(target), |id| coming.contains(&id));
            let next = |(id, entry): &(&u32, &Entry<O, V>)| {
                let can_come = entry.wanted().is_some() && !entry.life.is(Marks::REFUSED) && !coming.contains(id);
                can_come && self.missing(**id, is_there).is_none()
            };
            let more: Vec<u32> = self.entries.iter().filter(next).map(|(id, _)| *id).collect();
            if more.is_empty() {
                return coming;
            }
            coming.extend(more);
        }
    }

    /// Takes what has to be installed, what is pointed at first. What points at something that is not there, as `others`
    /// say for what is not kept here, stays due.
    pub(crate) fn take_puts(&mut self, others: impl Fn(Target) -> bool) -> Vec<u32> {
        let mut ready = Vec::new();
        loop {
            let before = ready.len();
            for id in self.due.iter().copied().collect::<Vec<_>>() {
                if self.missing(id, |target| self.is_there(target, &others)).is_none() && self.take_put(id) {
                    ready.push(id);
                }
            }
            if ready.len() == before {
                return ready;
            }
        }
    }

    /// Takes what has to go, what points first. What something points at, or should, stays due, and stays.
    pub(crate) fn take_deletes(&mut self, sweep: bool, others: impl Fn(Target) -> bool) -> Vec<u32> {
        let mut taken = Vec::new();
        loop {
            let before = taken.len();
            let held = if self.due.is_empty() { BTreeSet::new() } else { self.held_targets() };
            for id in self.due.iter().copied().collect::<Vec<_>>() {
                let target = V::target(id);
                let pointed = held.contains(&target) || self.pointers.any(target) || others(target);
                let Some(entry) = self.entries.get_mut(&id) else { continue };
                match entry.life.due(entry.wanted().is_some(), sweep) {
                    Some(Op::Delete) if !pointed => {
                        entry.life.sent(false);
                        taken.push(id);
                        self.due.remove(&id);
                    }
                    Some(_) => {}
                    None => drop(self.due.remove(&id)),
                }
            }
            if taken.len() == before {
                return taken;
            }
        }
    }

    /// The value of a message that installs it, as it was when the patch was made, and whether it is new.
    pub(crate) fn sent(&self, id: u32) -> Option<(&V, bool)> {
        let entry = self.entries.get(&id)?;
        let value = self.pinned.get(&id).or(entry.wanted())?;
        Some((value, entry.life.installed == Installed::Absent))
    }

    /// A message is no longer under way.
    pub(crate) fn conclude(&mut self, id: u32, op: Op, outcome: Outcome<'_>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if (outcome, op) == (Outcome::Landed, Op::Put)
            && let Some(value) = self.pinned.get(&id).or(entry.wanted())
        {
            entry.targets = value.targets().into();
        }
        entry.life.concluded(op, outcome);
        if let (Outcome::Refused(reason), true) = (outcome, entry.life.is(Marks::REFUSED)) {
            self.refused.insert(id, reason.to_owned());
        }
        self.settle(id, |_| {});
    }

    /// No patch is under way any more.
    pub(crate) fn unpin(&mut self) {
        self.pinned.clear();
    }

    /// What was refused is due again.
    pub(crate) fn retry(&mut self) {
        for id in std::mem::take(&mut self.refused).into_keys() {
            self.settle(id, |life| life.mark(Marks::REFUSED, false));
        }
    }

    /// Nothing that was found in the switch is missing its owner any more.
    pub(crate) fn allow_sweep(&mut self) {
        for (id, entry) in &mut self.entries {
            entry.found = None;
            if entry.life.due(entry.wanted().is_some(), true).is_some() {
                self.due.insert(*id);
            }
        }
    }

    /// The switch is about to be listed.
    pub(crate) fn begin_resync(&mut self) {
        self.pinned.clear();
        for entry in self.entries.values_mut() {
            entry.life.begin_resync();
            entry.found = None;
        }
    }

    /// Something that the switch holds.
    pub(crate) fn observe(&mut self, id: u32, value: V, foreign: bool, sweep: bool) -> Observed {
        let entry = self.entries.entry(id).or_default();
        let same = !foreign && entry.wanted() == Some(&value);
        entry.life.observed(same);
        if same {
            self.refused.remove(&id);
        }
        entry.targets = value.targets().into();
        if !entry.claims.is_empty() {
            return match (foreign, same) {
                (true, _) => Observed::Foreign,
                (false, true) => Observed::Same,
                (false, false) => Observed::Differs,
            };
        }
        entry.found = Some(value).filter(|_| !sweep && !foreign);
        if foreign { Observed::Foreign } else { Observed::Unwanted }
    }

    /// What was not listed is not there.
    pub(crate) fn end_resync(&mut self) {
        for id in self.entries.keys().copied().collect::<Vec<_>>() {
            self.settle(id, |life| {
                if !life.is(Marks::SEEN) {
                    life.installed = Installed::Absent;
                }
            });
        }
    }

    /// Replaces what an owner wants under a number.
    fn claim(&mut self, id: u32, owner: &O, values: Vec<V>) {
        let entry = self.entries.entry(id).or_default();
        let before = entry.wanted().cloned();
        for target in entry.claims.iter().flat_map(|(_, value)| value.targets()) {
            self.pointers.sub(*target);
        }
        entry.claims.retain(|(other, _)| other != owner);
        // Of very many things each has one owner: no room for more.
        entry.claims.reserve_exact(values.len());
        entry.claims.extend(values.into_iter().map(|value| (owner.clone(), value)));
        entry.claims.sort_by(|a, b| a.0.cmp(&b.0));
        for target in entry.claims.iter().flat_map(|(_, value)| value.targets()) {
            self.pointers.add(*target);
        }
        if entry.wanted() != before.as_ref() {
            if let Some(before) = before.filter(|_| entry.life.must_pin()) {
                self.pinned.insert(id, before);
            }
            entry.life.changed();
            self.refused.remove(&id);
            if let (Some((_, value)), Some(found)) = (entry.claims.first(), entry.found.take())
                && *value == found
            {
                entry.life.installed = Installed::Same;
            }
        }
        self.settle(id, |_| {});
    }

    fn take_put(&mut self, id: u32) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        let Some(length) = entry.wanted().map(Value::len) else { return false };
        if entry.life.due(true, false) != Some(Op::Put) {
            return false;
        }
        self.due.remove(&id);
        if length > MAX_BODY {
            entry.life.mark(Marks::REFUSED, true);
            self.refused.insert(id, too_long(length));
            return false;
        }
        // What was there before may be what flows that were found point at.
        entry.life.sent(entry.life.installed == Installed::Absent);
        true
    }

    /// The first thing that it should point at and that is not there.
    fn missing(&self, id: u32, is_there: impl Fn(Target) -> bool) -> Option<Target> {
        let value = self.entries.get(&id)?.wanted()?;
        value.targets().iter().copied().find(|target| !is_there(*target))
    }

    fn is_there(&self, target: Target, others: impl Fn(Target) -> bool) -> bool {
        V::number(target).map_or_else(|| others(target), |id| self.is_available(id))
    }

    /// Makes a change, and lists or forgets the number.
    fn settle(&mut self, id: u32, change: impl FnOnce(&mut Life)) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        change(&mut entry.life);
        if entry.claims.is_empty() && entry.life.is_over() {
            self.entries.remove(&id);
            self.due.remove(&id);
            self.refused.remove(&id);
        } else if entry.life.due(!entry.claims.is_empty(), true).is_some() {
            self.due.insert(id);
        }
    }
}

impl<O: Ord + Clone + fmt::Debug, V: Value> Numbered<O, V> {
    pub(crate) fn conflicts(&self) -> impl Iterator<Item = Conflict<O>> {
        self.entries.iter().filter(|(_, entry)| entry.claims.len() > 1).flat_map(|(id, entry)| {
            let winner = entry.claims.first();
            let losers = entry.claims.iter().skip(1);
            losers.zip(winner.into_iter().cycle()).map(|((loser, _), (winner, _))| Conflict {
                subject: V::subject(*id),
                winner: winner.clone(),
                loser: loser.clone(),
            })
        })
    }

    pub(crate) fn rejections(&self) -> impl Iterator<Item = Rejection<O>> {
        self.refused.iter().map(|(id, reason)| Rejection {
            subject: V::subject(*id),
            owners: self.owners(*id),
            reason: reason.clone(),
        })
    }

    pub(crate) fn waiting(&self, coming: impl Fn(Target) -> bool) -> impl Iterator<Item = Waiting<O>> {
        self.due.iter().filter_map(move |id| {
            let target = self.missing(*id, &coming)?;
            Some(Waiting { subject: V::subject(*id), owners: self.owners(*id), target })
        })
    }

    fn owners(&self, id: u32) -> Vec<O> {
        self.entries.get(&id).into_iter().flat_map(|entry| &entry.claims).map(|(owner, _)| owner.clone()).collect()
    }
}
