//! What the switch reports, compared with what is desired.

use super::slab::Entry;
use super::{Claims, Ledger, set_stale};
use crate::state::Observed;
use crate::status::{Flags, Installed};
use crate::target::{Pointers, Target};

/// An object that the switch reported.
pub(crate) struct ListedObject<V> {
    pub(crate) object: V,
    pub(crate) targets: Vec<Target>,
    /// Whether parts of it were not understood.
    pub(crate) foreign: bool,
}

/// What all ledgers of a state do together.
pub(crate) trait Resync {
    /// The switch is about to be listed.
    fn begin_resync(&mut self);
    /// The switch has been listed: objects that it did not report are absent.
    fn end_resync(&mut self);
    /// All owners have made their claims: leftovers can be deleted.
    fn allow_sweep(&mut self);
    /// Rejected objects become due again.
    fn retry(&mut self);
    /// No patch is in flight any more.
    fn unpin(&mut self);
}

impl<C: Claims> Resync for Ledger<C> {
    fn begin_resync(&mut self) {
        self.pinned.clear();
        for slot in self.slab.slots() {
            if let Some(entry) = self.slab.get_mut(slot) {
                entry.status.begin_resync();
            }
        }
    }

    fn end_resync(&mut self) {
        for slot in self.slab.slots() {
            let Some(entry) = self.slab.get_mut(slot) else { continue };
            if !entry.status.has(Flags::OBSERVED) {
                entry.status.installed = Installed::Absent;
                self.stale.remove(&slot);
                self.forget_leftover(slot);
            }
            self.settle(slot);
        }
    }

    fn allow_sweep(&mut self) {
        for slot in self.slab.slots() {
            self.forget_leftover(slot);
            self.settle(slot);
        }
    }

    fn retry(&mut self) {
        for slot in std::mem::take(&mut self.rejected).into_keys() {
            if let Some(entry) = self.slab.get_mut(slot) {
                entry.status.set(Flags::REJECTED, false);
            }
            self.settle(slot);
        }
    }

    fn unpin(&mut self) {
        self.pinned.clear();
    }
}

impl<C: Claims> Ledger<C> {
    /// The switch reported an object; `learned` tells whether the switch made it itself, if no owner claims it.
    pub(crate) fn observe(
        &mut self,
        listed: ListedObject<C::Object>,
        sweep: bool,
        learned: impl FnOnce() -> bool,
    ) -> Observed {
        let ListedObject { object, targets, foreign } = listed;
        let found = self.slab.find(&object);
        let claimed = found.and_then(|slot| self.slab.get(slot)).is_some_and(|entry| entry.claims.is_claimed());
        if !claimed && learned() {
            // For the ledger it does not exist, so it is left alone.
            return Observed::Learned;
        }
        let slot = match found {
            Some(slot) => {
                self.reconcile(slot, object, !targets.is_empty(), foreign, sweep);
                slot
            }
            None => {
                let keep = !sweep && !foreign;
                let slot = self.slab.insert(if keep { C::one(None, object) } else { C::none(&object) });
                self.count(slot, keep && !targets.is_empty(), Pointers::add);
                if let Some(entry) = self.slab.get_mut(slot) {
                    entry.status.observed(keep);
                }
                slot
            }
        };
        let installed = self.slab.get(slot).map(|entry| entry.status.installed);
        let is_stale = installed == Some(Installed::Differs);
        set_stale(&mut self.stale, slot, if is_stale { targets } else { Vec::new() });
        match installed {
            _ if foreign => Observed::Foreign,
            _ if !claimed => Observed::Unwanted,
            Some(Installed::Same) => Observed::Same,
            _ => Observed::Differs,
        }
    }

    /// Compares a reported object with the desired one, and keeps it as a leftover if it may still be claimed.
    fn reconcile(&mut self, slot: u32, object: C::Object, points: bool, foreign: bool, sweep: bool) {
        let listed = Some(&object).filter(|_| !foreign);
        if self.compare(slot, listed) {
            return;
        }
        self.forget_leftover(slot);
        let ours = self.slab.get(slot).is_some_and(|entry| entry.status.has(Flags::OURS));
        if !self.compare(slot, listed) && !sweep && !foreign && !ours {
            self.replace(slot, None, vec![object.clone()], points);
            self.compare(slot, Some(&object));
        }
    }

    /// Sets whether the switch has the desired object.
    fn compare(&mut self, slot: u32, listed: Option<&C::Object>) -> bool {
        let Some(Entry { claims, status, .. }) = self.slab.get_mut(slot) else { return false };
        let same = listed.is_some_and(|listed| claims.is_present() && *claims.effective() == *listed);
        status.observed(same);
        if same {
            self.rejected.remove(&slot);
        }
        same
    }

    fn forget_leftover(&mut self, slot: u32) {
        if self.slab.get(slot).is_some_and(|entry| entry.claims.has_leftover()) {
            self.replace(slot, None, Vec::new(), false);
        }
    }
}
