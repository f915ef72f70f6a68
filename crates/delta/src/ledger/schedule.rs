//! Which messages a ledger needs to send, and in which order.

use std::collections::BTreeSet;

use super::{Claims, Ledger, Object};
use crate::patch::{MAX_BODY, too_long};
use crate::status::{Flags, Installed, Op};
use crate::target::Target;

impl<C: Claims> Ledger<C> {
    /// What objects in the switch point at although they should not; those with a message in flight apart.
    pub(crate) fn held_targets(&self) -> BTreeSet<Target> {
        let held = |slot: &u32| self.slab.get(*slot).is_some_and(|entry| !entry.status.has(Flags::IN_FLIGHT));
        self.stale.iter().filter(|(slot, _)| held(slot)).flat_map(|(_, targets)| targets.iter().copied()).collect()
    }

    /// Whether the switch has a target that is in this ledger, now or after the patch in flight.
    pub(crate) fn is_available(&self, target: Target) -> bool {
        let slot = C::Object::key_of(target).and_then(|key| self.slab.find(&key));
        slot.and_then(|slot| self.slab.get(slot)).is_some_and(|entry| {
            let coming = entry.status.has(Flags::IN_FLIGHT) && entry.claims.is_present();
            entry.status.installed != Installed::Absent || coming
        })
    }

    /// Adds to `coming` the targets in this ledger that the switch has, or will have if it rejects nothing.
    pub(crate) fn add_coming(&self, coming: &mut BTreeSet<Target>) {
        let targets = self.slab.entries().filter_map(|entry| entry.claims.key().as_target());
        coming.extend(targets.filter(|target| self.is_available(*target)));
        loop {
            let more: Vec<Target> = self
                .slab
                .entries()
                .filter(|entry| entry.claims.is_present() && !entry.status.has(Flags::REJECTED))
                .filter(|entry| entry.missing(|target| coming.contains(&target)).is_none())
                .filter_map(|entry| entry.claims.key().as_target())
                .filter(|target| !coming.contains(target))
                .collect();
            if more.is_empty() {
                return;
            }
            coming.extend(more);
        }
    }

    /// Takes the objects to install: by key, but targets before the objects of this ledger that point at them. Objects
    /// with a target that is neither in this ledger nor `available` stay due.
    pub(crate) fn take_puts(&mut self, available: impl Fn(Target) -> bool) -> Vec<u32> {
        let mut due = std::mem::take(&mut self.due);
        due.retain(|slot| self.slab.get(*slot).is_some_and(|entry| entry.status.has(Flags::LISTED)));
        self.slab.sort(&mut due);
        let mut puts = Vec::new();
        loop {
            let (before, mut waits_here) = (puts.len(), false);
            due.retain(|slot| {
                let Some(entry) = self.slab.get(*slot) else { return false };
                if entry.status.due(entry.claims.is_present(), false) != Some(Op::Put) {
                    return true;
                }
                let missing = entry.missing(|target| self.is_available(target) || available(target));
                if let Some(target) = missing {
                    waits_here |= C::Object::key_of(target).is_some();
                } else if self.take_put(*slot) {
                    puts.push(*slot);
                }
                missing.is_some()
            });
            if puts.len() == before || !waits_here {
                self.due = due;
                return puts;
            }
        }
    }

    /// Takes the objects to delete: by key, but those that point at others of this ledger before their targets. Targets of
    /// an object in the switch, of a claim, or of what `pointed_at` knows stay due.
    pub(crate) fn take_deletes(&mut self, sweep: bool, pointed_at: impl Fn(Target) -> bool) -> Vec<u32> {
        let mut due = std::mem::take(&mut self.due);
        let mut deletes = Vec::new();
        loop {
            let (before, mut held_here) = (deletes.len(), false);
            let held = if due.is_empty() { BTreeSet::new() } else { self.held_targets() };
            due.retain(|slot| {
                let Some(entry) = self.slab.get_mut(*slot) else { return false };
                match entry.status.due(entry.claims.is_present(), sweep) {
                    Some(Op::Put) => return true,
                    Some(Op::Delete) => {
                        let is_held =
                            |target| held.contains(&target) || self.pointers.any(target) || pointed_at(target);
                        if entry.claims.key().as_target().is_some_and(is_held) {
                            held_here = true;
                            return true;
                        }
                        entry.status.sent(false);
                        deletes.push(*slot);
                    }
                    None => {}
                }
                entry.status.set(Flags::LISTED, false);
                false
            });
            if deletes.len() == before || !held_here {
                due.shrink_to_fit();
                self.due = due;
                return deletes;
            }
        }
    }

    /// Flags an object as sent; returns whether its message is short enough for that.
    fn take_put(&mut self, slot: u32) -> bool {
        let Some(entry) = self.slab.get_mut(slot) else { return false };
        entry.status.set(Flags::LISTED, false);
        if entry.claims.len_bound() > MAX_BODY {
            let length = entry.claims.effective().len();
            if length > MAX_BODY {
                entry.status.set(Flags::REJECTED, true);
                self.rejected.insert(slot, too_long(length));
                return false;
            }
        }
        // Leftovers may point at an object that was there before.
        let replaces_target = entry.claims.key().as_target().is_some() && entry.status.installed != Installed::Absent;
        entry.status.sent(!replaces_target && !entry.claims.has_leftover());
        true
    }
}
