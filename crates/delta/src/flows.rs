//! Flows: who wants which, and which of them the switch holds.

mod share;
mod slab;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use openflow::action::Action;
use openflow::flow::{EncodedFlow, Flow};

use crate::life::{Installed, Life, Marks, Op, Outcome};
use crate::patch::{MAX_BODY, too_long};
use crate::report::{Conflict, Rejection, Subject, Waiting};
use crate::state::Observed;
use crate::target::{Pointers, Target, targets};
use share::Shared;
use slab::Slab;

/// The flows of all owners, each held once, as the bytes that add it.
#[derive(Debug)]
pub(crate) struct Flows<O> {
    slab: Slab<O>,
    /// The slots that an owner has a part in, ascending.
    owners: BTreeMap<O, Box<[u32]>>,
    /// The slots that may be due; those that are marked as listed.
    due: Vec<u32>,
    /// Flows under way that are no longer wanted as they were sent.
    pinned: BTreeMap<u32, EncodedFlow>,
    /// Slots whose owners may disagree.
    mixed: BTreeSet<u32>,
    refused: BTreeMap<u32, String>,
    pointers: Pointers,
    /// What a flow in the switch points at, where another is wanted or none.
    stale: BTreeMap<u32, Vec<Target>>,
    scratch: Vec<u8>,
}

/// A flow that an owner wants, on its way to its slot.
struct Given {
    slot: u32,
    points: bool,
    /// `None`: the flow that is in the slot already.
    flow: Option<EncodedFlow>,
}

/// The messages about flows in a patch.
#[derive(Debug, Default)]
pub(crate) struct Due {
    pub(crate) put: Vec<u32>,
    pub(crate) delete: Vec<u32>,
}

impl<O> Default for Flows<O> {
    fn default() -> Self {
        Self {
            slab: Slab::default(),
            owners: BTreeMap::new(),
            due: Vec::new(),
            pinned: BTreeMap::new(),
            mixed: BTreeSet::new(),
            refused: BTreeMap::new(),
            pointers: Pointers::default(),
            stale: BTreeMap::new(),
            scratch: Vec::new(),
        }
    }
}

impl<O: Ord + Clone> Flows<O> {
    /// Replaces all that an owner wants.
    pub(crate) fn set(&mut self, owner: &O, flows: impl IntoIterator<Item = Flow>) {
        let mut given: Vec<Given> = flows.into_iter().map(|flow| self.give(owner, flow)).collect();
        given.sort_by_key(|given| given.slot);
        let mut slots: Vec<u32> = given.iter().map(|given| given.slot).collect();
        slots.dedup();
        let mut given = given.into_iter().peekable();
        while let Some(first) = given.next() {
            let (slot, mut points) = (first.slot, first.points);
            let mut flows = vec![first.flow];
            while let Some(more) = given.next_if(|more| more.slot == slot) {
                points |= more.points;
                flows.push(more.flow);
            }
            self.take(owner, slot, flows, points);
        }
        let before = self.owners.remove(owner).unwrap_or_default();
        for slot in before.iter().filter(|slot| slots.binary_search(slot).is_err()) {
            self.replace(*slot, Some(owner), Vec::new(), false);
        }
        if !slots.is_empty() {
            self.owners.insert(owner.clone(), slots.into_boxed_slice());
        }
    }

    /// The flows that are wanted, as the switch should hold them.
    pub(crate) fn desired(&self) -> impl Iterator<Item = Flow> + '_ {
        let wanted = |slot| self.slab.get(slot).filter(|entry| entry.shared.is_wanted());
        self.slab.slots().filter_map(wanted).map(|entry| entry.shared.effective().decode())
    }

    /// Whether someone wants a flow that points there.
    pub(crate) fn points_at(&self, target: Target) -> bool {
        self.pointers.any(target)
    }

    /// What flows in the switch point at and should not, but for those that a message under way is about.
    pub(crate) fn held_targets(&self) -> BTreeSet<Target> {
        let held = |slot: &u32| self.slab.get(*slot).is_some_and(|entry| !entry.life.is(Marks::IN_FLIGHT));
        self.stale.iter().filter(|(slot, _)| held(slot)).flat_map(|(_, targets)| targets.iter().copied()).collect()
    }

    /// Takes all that is due, in order of keys. What points at something that `available` does not know stays due.
    pub(crate) fn take_due(&mut self, sweep: bool, available: impl Fn(Target) -> bool) -> Due {
        let mut due = Due::default();
        for slot in std::mem::take(&mut self.due) {
            let Some(entry) = self.slab.get_mut(slot).filter(|entry| entry.life.is(Marks::LISTED)) else { continue };
            entry.life.mark(Marks::LISTED, false);
            match entry.life.due(entry.shared.is_present(), sweep) {
                None => {}
                Some(Op::Put) if entry.missing(&available).is_some() => self.due.push(slot),
                Some(Op::Put) if entry.shared.len_bound() > MAX_BODY && entry.shared.effective().len() > MAX_BODY => {
                    entry.life.mark(Marks::REFUSED, true);
                    self.refused.insert(slot, too_long(entry.shared.effective().len()));
                }
                Some(op) => {
                    entry.life.sent(op == Op::Put && !entry.shared.has_found());
                    if op == Op::Put { due.put.push(slot) } else { due.delete.push(slot) }
                }
            }
        }
        for slot in &self.due {
            if let Some(entry) = self.slab.get_mut(*slot) {
                entry.life.mark(Marks::LISTED, true);
            }
        }
        for slots in [&mut due.put, &mut due.delete] {
            self.slab.sort(slots);
        }
        due
    }

    /// The flow of a message that adds it, as it was when the patch was made.
    pub(crate) fn sent(&self, slot: u32) -> Option<Cow<'_, EncodedFlow>> {
        match self.pinned.get(&slot) {
            Some(flow) => Some(Cow::Borrowed(flow)),
            None => self.slab.get(slot).map(|entry| entry.shared.effective()),
        }
    }

    /// A flow with the key of a slot.
    pub(crate) fn key(&self, slot: u32) -> Option<&EncodedFlow> {
        self.slab.get(slot).map(|entry| entry.shared.key())
    }

    /// A message is no longer under way.
    pub(crate) fn conclude(&mut self, slot: u32, op: Op, outcome: Outcome<'_>) {
        let Some(entry) = self.slab.get_mut(slot) else { return };
        entry.life.concluded(op, outcome);
        if outcome == Outcome::Landed {
            match self.pinned.get(&slot).filter(|_| op == Op::Put) {
                Some(flow) => note(&mut self.stale, slot, &flow.decode()),
                None => drop(self.stale.remove(&slot)),
            }
        }
        if let (Outcome::Refused(reason), true) = (outcome, entry.life.is(Marks::REFUSED)) {
            self.refused.insert(slot, reason.to_owned());
        }
        self.list(slot);
    }

    /// No patch is under way any more.
    pub(crate) fn unpin(&mut self) {
        self.pinned.clear();
    }

    /// What was refused is due again.
    pub(crate) fn retry(&mut self) {
        for slot in std::mem::take(&mut self.refused).into_keys() {
            self.settle(slot, |life| life.mark(Marks::REFUSED, false));
        }
    }

    /// Nothing that was found in the switch is missing its owner any more.
    pub(crate) fn allow_sweep(&mut self) {
        for slot in self.slab.slots() {
            self.forget_found(slot);
            self.list(slot);
        }
    }

    /// The switch is about to be listed.
    pub(crate) fn begin_resync(&mut self) {
        self.pinned.clear();
        for slot in self.slab.slots() {
            if let Some(entry) = self.slab.get_mut(slot) {
                entry.life.begin_resync();
            }
        }
    }

    /// A flow that the switch holds.
    pub(crate) fn observe(&mut self, flow: &Flow, sweep: bool, learned: impl Fn(&Flow) -> bool) -> Observed {
        let canonical = canonical(Cow::Borrowed(flow));
        let encoded = EncodedFlow::new(&canonical, &mut self.scratch);
        let foreign = flow.is_foreign();
        let found = self.slab.find(&encoded);
        let wanted = found.is_some_and(|slot| self.is_wanted(slot));
        if !wanted && learned(flow) {
            // Not listed as far as we are concerned, so it is left alone.
            return Observed::Learned;
        }
        let Some(slot) = found else {
            let keep = !sweep && !foreign;
            let shared = if keep { Shared::one(None, encoded) } else { Shared::nobody(flow) };
            let slot = self.slab.insert(shared);
            if let Some(entry) = self.slab.get_mut(slot) {
                entry.life.observed(keep);
            }
            self.restale(slot, flow);
            return if foreign { Observed::Foreign } else { Observed::Unwanted };
        };
        if foreign {
            self.compare(slot, None);
            self.restale(slot, flow);
            return Observed::Foreign;
        }
        if !self.compare(slot, Some(&encoded)) {
            self.forget_found(slot);
        }
        if !self.compare(slot, Some(&encoded)) && !sweep && !self.is_ours(slot) {
            self.replace(slot, None, vec![encoded.clone()], false);
            self.compare(slot, Some(&encoded));
        }
        self.restale(slot, flow);
        match self.slab.get(slot).map(|entry| entry.life.installed) {
            _ if !wanted => Observed::Unwanted,
            Some(Installed::Same) => Observed::Same,
            _ => Observed::Differs,
        }
    }

    /// What was not listed is not there.
    pub(crate) fn end_resync(&mut self) {
        for slot in self.slab.slots() {
            let Some(entry) = self.slab.get_mut(slot) else { continue };
            if !entry.life.is(Marks::SEEN) {
                entry.life.installed = Installed::Absent;
                self.stale.remove(&slot);
                self.forget_found(slot);
            }
            self.settle(slot, |_| {});
        }
    }

    fn give(&mut self, owner: &O, flow: Flow) -> Given {
        let flow = canonical(Cow::Owned(flow));
        let points = targets(&flow.actions).next().is_some();
        let encoded = EncodedFlow::new(&flow, &mut self.scratch);
        if let Some(slot) = self.slab.find(&encoded) {
            let same = self.slab.get(slot).is_some_and(|entry| entry.shared.is_just(owner, &encoded));
            return Given { slot, points, flow: (!same).then_some(encoded) };
        }
        let slot = self.slab.insert(Shared::one(Some(owner.clone()), encoded));
        self.count(slot, points, Pointers::add);
        self.list(slot);
        Given { slot, points, flow: None }
    }

    /// Takes all that an owner wants in a slot; `None` is the flow that is there already.
    fn take(&mut self, owner: &O, slot: u32, flows: Vec<Option<EncodedFlow>>, points: bool) {
        if flows.iter().any(Option::is_some) {
            let held = || self.key(slot).cloned();
            let flows = flows.into_iter().filter_map(|flow| flow.or_else(held)).collect();
            self.replace(slot, Some(owner), flows, points);
        }
    }

    /// Replaces what an owner wants in a slot.
    fn replace(&mut self, slot: u32, owner: Option<&O>, flows: Vec<EncodedFlow>, points: bool) {
        self.count(slot, false, Pointers::sub);
        let Some(entry) = self.slab.get_mut(slot) else { return };
        let before = entry.life.must_pin().then(|| entry.shared.effective().into_owned());
        let may_point = entry.life.is(Marks::POINTS) || (entry.shared.has_found() && entry.shared.may_point());
        let known = entry.life.installed == Installed::Same && may_point;
        let stale = known.then(|| entry.shared.effective().decode());
        let points = points || entry.life.is(Marks::POINTS);
        if entry.shared.replace(owner, flows) {
            entry.life.changed();
            self.refused.remove(&slot);
            if let Some(before) = before {
                self.pinned.insert(slot, before);
            }
            if let Some(flow) = stale {
                note(&mut self.stale, slot, &flow);
            }
        }
        if entry.shared.may_conflict() {
            self.mixed.insert(slot);
        } else {
            self.mixed.remove(&slot);
        }
        self.count(slot, points, Pointers::add);
        self.settle(slot, |_| {});
    }

    /// Counts what the flows in a slot point at, if they may point anywhere.
    fn count(&mut self, slot: u32, points: bool, change: impl Fn(&mut Pointers, Target)) {
        let Some(entry) = self.slab.get_mut(slot) else { return };
        if !points && !entry.life.is(Marks::POINTS) {
            return;
        }
        let mut any = false;
        for flow in entry.shared.wanted() {
            for target in targets(&flow.actions) {
                any = true;
                change(&mut self.pointers, target);
            }
        }
        entry.life.mark(Marks::POINTS, any);
    }

    /// Forgets the part of what was found in the switch.
    fn forget_found(&mut self, slot: u32) {
        if self.slab.get(slot).is_some_and(|entry| entry.shared.has_found()) {
            self.replace(slot, None, Vec::new(), false);
        }
    }

    /// Notes whether the switch holds what it should.
    fn compare(&mut self, slot: u32, flow: Option<&EncodedFlow>) -> bool {
        let Some(entry) = self.slab.get_mut(slot) else { return false };
        let same = flow.is_some_and(|flow| entry.shared.is_present() && *entry.shared.effective() == *flow);
        entry.life.observed(same);
        if same {
            self.refused.remove(&slot);
        }
        same
    }

    /// Notes what the flow that the switch has listed points at, unless it is as it should be.
    fn restale(&mut self, slot: u32, flow: &Flow) {
        match self.slab.get(slot).map(|entry| entry.life.installed) {
            Some(Installed::Differs) => note(&mut self.stale, slot, flow),
            _ => drop(self.stale.remove(&slot)),
        }
    }

    fn is_wanted(&self, slot: u32) -> bool {
        self.slab.get(slot).is_some_and(|entry| entry.shared.is_wanted())
    }

    fn is_ours(&self, slot: u32) -> bool {
        self.slab.get(slot).is_some_and(|entry| entry.life.is(Marks::OURS))
    }

    /// Makes a change, and lists or forgets the slot.
    fn settle(&mut self, slot: u32, change: impl FnOnce(&mut Life)) {
        if let Some(entry) = self.slab.get_mut(slot) {
            change(&mut entry.life);
        }
        self.list(slot);
    }

    /// Lists a slot if it may be due, and forgets it if nothing is left to remember.
    fn list(&mut self, slot: u32) {
        let Some(entry) = self.slab.get_mut(slot) else { return };
        if !entry.shared.is_present() && entry.life.is_over() {
            self.slab.remove(slot);
            self.refused.remove(&slot);
            self.stale.remove(&slot);
        } else if !entry.life.is(Marks::LISTED) && entry.life.due(entry.shared.is_present(), true).is_some() {
            entry.life.mark(Marks::LISTED, true);
            self.due.push(slot);
        }
    }
}

impl<O: Ord + Clone + fmt::Debug> Flows<O> {
    pub(crate) fn conflicts(&self) -> impl Iterator<Item = Conflict<O>> {
        self.mixed.iter().filter_map(|slot| self.slab.get(*slot)).flat_map(|entry| {
            let subject = Subject::flow(entry.shared.key());
            let conflict = move |(winner, loser)| Conflict { subject: subject.clone(), winner, loser };
            entry.shared.conflicts().into_iter().map(conflict)
        })
    }

    pub(crate) fn rejections(&self) -> impl Iterator<Item = Rejection<O>> {
        self.refused.iter().filter_map(|(slot, reason)| {
            let shared = &self.slab.get(*slot)?.shared;
            Some(Rejection { subject: Subject::flow(shared.key()), owners: shared.owners(), reason: reason.clone() })
        })
    }

    pub(crate) fn waiting(&self, available: impl Fn(Target) -> bool) -> impl Iterator<Item = Waiting<O>> {
        self.due.iter().filter_map(move |slot| {
            let entry = self.slab.get(*slot)?;
            entry.life.due(entry.shared.is_present(), false).filter(|op| *op == Op::Put)?;
            let target = entry.missing(&available)?;
            Some(Waiting { subject: Subject::flow(entry.shared.key()), owners: entry.shared.owners(), target })
        })
    }
}

/// Notes what a flow points at, if it points anywhere.
fn note(stale: &mut BTreeMap<u32, Vec<Target>>, slot: u32, flow: &Flow) {
    let targets: Vec<_> = targets(&flow.actions).collect();
    if targets.is_empty() {
        stale.remove(&slot);
    } else {
        stale.insert(slot, targets);
    }
}

/// The order of `conjunction` actions means nothing to the switch; here it is always the same.
fn canonical(flow: Cow<'_, Flow>) -> Cow<'_, Flow> {
    let clause = |action: &Action| match *action {
        Action::Conjunction { id, clause, of } => Some((id, clause, of)),
        _ => None,
    };
    if flow.actions.is_sorted_by(|a, b| clause(a) < clause(b)) || !flow.actions.iter().all(|a| clause(a).is_some()) {
        return flow;
    }
    let mut flow = flow.into_owned();
    flow.actions.sort_by_key(clause);
    flow.actions.dedup();
    Cow::Owned(flow)
}
