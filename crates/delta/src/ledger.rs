//! The objects of one kind (flows, groups or meters): the claims of their owners, and what the switch has of them.

mod claims;
mod resync;
mod schedule;
mod slab;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::report::{Conflict, Rejection, Waiting};
use crate::status::{Flags, Installed, Op, Outcome};
use crate::target::{Pointers, Target};
pub(crate) use claims::{Claims, Object};
pub(crate) use resync::{ListedObject, Resync};
use slab::{Entry, Slab};

/// The objects of one kind. `C` decides how several claims on one object become one object.
#[derive(Debug)]
pub(crate) struct Ledger<C: Claims> {
    slab: Slab<C>,
    /// The slots that an owner has a claim on, ascending.
    owners: BTreeMap<C::Owner, Box<[u32]>>,
    /// The slots that may be due; those that are flagged as listed.
    due: Vec<u32>,
    /// Objects in flight that are no longer desired as they were sent.
    pinned: BTreeMap<u32, C::Object>,
    /// Slots whose claims may conflict.
    mixed: BTreeSet<u32>,
    /// Why the switch rejected the desired object.
    rejected: BTreeMap<u32, String>,
    /// How many claims and leftovers point at each target.
    pointers: Pointers,
    /// What an object in the switch points at, if another is desired or none.
    stale: BTreeMap<u32, Vec<Target>>,
}

/// An object that an owner claims.
pub(crate) struct Claim<V> {
    pub(crate) object: V,
    /// Whether it points at a group or a meter.
    pub(crate) points: bool,
}

/// A claim on its way to its slot.
struct PlacedClaim<V> {
    slot: u32,
    points: bool,
    /// `None`: the slot has the object already.
    object: Option<V>,
}

impl<C: Claims> Default for Ledger<C> {
    fn default() -> Self {
        Self {
            slab: Slab::default(),
            owners: BTreeMap::new(),
            due: Vec::new(),
            pinned: BTreeMap::new(),
            mixed: BTreeSet::new(),
            rejected: BTreeMap::new(),
            pointers: Pointers::default(),
            stale: BTreeMap::new(),
        }
    }
}

impl<C: Claims> Ledger<C> {
    /// Replaces all claims of an owner.
    pub(crate) fn set(&mut self, owner: &C::Owner, claims: impl IntoIterator<Item = Claim<C::Object>>) {
        let mut placed: Vec<_> = claims.into_iter().map(|claim| self.place(owner, claim)).collect();
        placed.sort_by_key(|placed| placed.slot);
        let mut slots: Vec<u32> = placed.iter().map(|placed| placed.slot).collect();
        slots.dedup();
        let mut placed = placed.into_iter().peekable();
        while let Some(first) = placed.next() {
            let (slot, mut points) = (first.slot, first.points);
            let mut objects = vec![first.object];
            while let Some(more) = placed.next_if(|more| more.slot == slot) {
                points |= more.points;
                objects.push(more.object);
            }
            self.claim(owner, slot, objects, points);
        }
        let before = self.owners.remove(owner).unwrap_or_default();
        for slot in before.iter().filter(|slot| slots.binary_search(slot).is_err()) {
            self.replace(*slot, Some(owner), Vec::new(), false);
        }
        if !slots.is_empty() {
            self.owners.insert(owner.clone(), slots.into_boxed_slice());
        }
    }

    /// The objects that the switch should have.
    pub(crate) fn desired(&self) -> impl Iterator<Item = Cow<'_, C::Object>> {
        self.slab.entries().filter(|entry| entry.claims.is_claimed()).map(|entry| entry.claims.effective())
    }

    /// The objects that the switch should have, each with its owners in order.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (Cow<'_, C::Object>, Vec<C::Owner>)> {
        let claimed = self.slab.entries().filter(|entry| entry.claims.is_claimed());
        claimed.map(|entry| (entry.claims.effective(), entry.claims.owners()))
    }

    /// Whether a claim or a leftover points at a target.
    pub(crate) fn points_at(&self, target: Target) -> bool {
        self.pointers.any(target)
    }

    /// The object of a message that installs it, as it was when the patch was made.
    pub(crate) fn sent(&self, slot: u32) -> Option<Cow<'_, C::Object>> {
        match self.pinned.get(&slot) {
            Some(object) => Some(Cow::Borrowed(object)),
            None => self.slab.get(slot).map(|entry| entry.claims.effective()),
        }
    }

    /// An object with the key of a slot.
    pub(crate) fn key(&self, slot: u32) -> Option<&C::Object> {
        self.slab.get(slot).map(|entry| entry.claims.key())
    }

    /// Whether the switch has no object with the key of a slot.
    pub(crate) fn is_absent(&self, slot: u32) -> bool {
        self.slab.get(slot).is_none_or(|entry| entry.status.installed == Installed::Absent)
    }

    /// The outcome of a message is known.
    pub(crate) fn conclude(&mut self, slot: u32, op: Op, outcome: Outcome<'_>) {
        let Some(entry) = self.slab.get_mut(slot) else { return };
        entry.status.concluded(op, outcome);
        if outcome == Outcome::Applied {
            let unwanted = self.pinned.get(&slot).filter(|_| op == Op::Put);
            set_stale(&mut self.stale, slot, unwanted.map(Object::targets).unwrap_or_default());
        }
        if let (Outcome::Rejected(reason), true) = (outcome, entry.status.has(Flags::REJECTED)) {
            self.rejected.insert(slot, reason.to_owned());
        }
        self.settle(slot);
    }

    fn place(&mut self, owner: &C::Owner, claim: Claim<C::Object>) -> PlacedClaim<C::Object> {
        let Claim { object, points } = claim;
        if let Some(slot) = self.slab.find(&object) {
            let same = self.slab.get(slot).is_some_and(|entry| entry.claims.is_just(owner, &object));
            return PlacedClaim { slot, points, object: (!same).then_some(object) };
        }
        let slot = self.slab.insert(C::one(Some(owner.clone()), object));
        self.count(slot, points, Pointers::add);
        self.settle(slot);
        PlacedClaim { slot, points, object: None }
    }

    /// Replaces the claims of an owner on a slot; `None` is the object that the slot has already.
    fn claim(&mut self, owner: &C::Owner, slot: u32, objects: Vec<Option<C::Object>>, points: bool) {
        if objects.iter().any(Option::is_some) {
            let present = || self.slab.get(slot).map(|entry| entry.claims.effective().into_owned());
            let objects = objects.into_iter().filter_map(|object| object.or_else(present)).collect();
            self.replace(slot, Some(owner), objects, points);
        }
    }

    /// Replaces the claims of an owner, or the leftover, on a slot.
    fn replace(&mut self, slot: u32, owner: Option<&C::Owner>, objects: Vec<C::Object>, points: bool) {
        let Some(entry) = self.slab.get(slot) else { return };
        let before = entry.status.must_pin().then(|| entry.claims.effective().into_owned());
        let installed = entry.status.installed == Installed::Same && entry.status.has(Flags::POINTS);
        let stale = installed.then(|| entry.claims.effective().targets());
        let points = points || entry.status.has(Flags::POINTS);
        self.count(slot, false, Pointers::sub);
        let Some(entry) = self.slab.get_mut(slot) else { return };
        if entry.claims.replace(owner, objects) {
            entry.status.changed();
            self.rejected.remove(&slot);
            if let Some(before) = before {
                self.pinned.insert(slot, before);
            }
            if let Some(targets) = stale {
                set_stale(&mut self.stale, slot, targets);
            }
        }
        if entry.claims.may_conflict() {
            self.mixed.insert(slot);
        } else {
            self.mixed.remove(&slot);
        }
        self.count(slot, points, Pointers::add);
        self.settle(slot);
    }

    /// Counts the targets of all claims on a slot, if there may be any.
    fn count(&mut self, slot: u32, points: bool, change: impl Fn(&mut Pointers, Target)) {
        let Some(entry) = self.slab.get_mut(slot) else { return };
        if !points && !entry.status.has(Flags::POINTS) {
            return;
        }
        let targets = entry.claims.targets();
        entry.status.set(Flags::POINTS, !targets.is_empty());
        for target in targets {
            change(&mut self.pointers, target);
        }
    }

    /// Lists a slot if it may be due, and removes it if there is nothing left to remember.
    fn settle(&mut self, slot: u32) {
        let Some(entry) = self.slab.get_mut(slot) else { return };
        let present = entry.claims.is_present();
        if !present && entry.status.is_gone() {
            self.slab.remove(slot);
            self.rejected.remove(&slot);
            self.stale.remove(&slot);
        } else if !entry.status.has(Flags::LISTED) && entry.status.due(present, true).is_some() {
            entry.status.set(Flags::LISTED, true);
            if self.due.len() > 2 * self.slab.slots().len() {
                // Slots that were freed and used again are listed twice.
                self.due.sort_unstable();
                self.due.dedup();
            }
            self.due.push(slot);
        }
    }
}

impl<C: Claims<Owner: fmt::Debug>> Ledger<C> {
    pub(crate) fn conflicts(&self) -> impl Iterator<Item = Conflict<C::Owner>> {
        self.mixed.iter().filter_map(|slot| self.slab.get(*slot)).flat_map(|entry| {
            let subject = entry.claims.key().subject();
            let conflict = move |(winner, loser)| Conflict { subject: subject.clone(), winner, loser };
            entry.claims.conflicts().into_iter().map(conflict)
        })
    }

    pub(crate) fn rejections(&self) -> impl Iterator<Item = Rejection<C::Owner>> {
        self.rejected.iter().filter_map(|(slot, reason)| {
            let claims = &self.slab.get(*slot)?.claims;
            Some(Rejection { subject: claims.key().subject(), owners: claims.owners(), reason: reason.clone() })
        })
    }

    /// Objects with a target that is not `coming`.
    pub(crate) fn waiting(&self, coming: &BTreeSet<Target>) -> impl Iterator<Item = Waiting<C::Owner>> {
        let due: BTreeSet<u32> = self.due.iter().copied().collect();
        due.into_iter().filter_map(move |slot| {
            let entry @ Entry { claims, status, .. } = self.slab.get(slot)?;
            status.due(claims.is_present(), false).filter(|op| *op == Op::Put)?;
            let target = entry.missing(|target| coming.contains(&target))?;
            Some(Waiting { subject: claims.key().subject(), owners: claims.owners(), target })
        })
    }
}

/// Notes what an object in the switch points at, if anything.
fn set_stale(stale: &mut BTreeMap<u32, Vec<Target>>, slot: u32, targets: Vec<Target>) {
    if targets.is_empty() {
        stale.remove(&slot);
    } else {
        stale.insert(slot, targets);
    }
}

#[cfg(test)]
mod tests {
    use openflow::meter::{Meter, MeterId};

    use super::*;
    use crate::numbered::{ExclusiveClaims, claim_meter};

    #[test]
    fn the_list_of_due_slots_is_bounded_while_nothing_is_sent() {
        let mut ledger = Ledger::<ExclusiveClaims<u32, Meter>>::default();
        for _ in 0..1000 {
            ledger.set(&1, [claim_meter(Meter::drop_pktps(MeterId(1), 1, 1))]);
            ledger.set(&1, []);
        }
        assert!(ledger.due.len() < 5, "{}", ledger.due.len());
    }
}
