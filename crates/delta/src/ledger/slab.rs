//! Storage of a ledger: numbered slots, found by the key of the object in them.

use hashbrown::HashTable;

use super::claims::{Claims, Object};
use crate::status::{Flags, Status};
use crate::target::Target;

/// One object of a ledger.
#[derive(Debug)]
pub(super) struct Entry<C> {
    pub(super) claims: C,
    /// Of the key: the index can grow without reading every object.
    hash: u32,
    pub(super) status: Status,
}

/// Numbered slots. A slot belongs to its object until the object is removed.
#[derive(Debug)]
pub(super) struct Slab<C> {
    entries: Vec<Option<Entry<C>>>,
    free: Vec<u32>,
    index: HashTable<u32>,
}

impl<C> Default for Slab<C> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), index: HashTable::new() }
    }
}

impl<C: Claims> Entry<C> {
    /// The first target that is not available.
    pub(super) fn missing(&self, available: impl Fn(Target) -> bool) -> Option<Target> {
        if !self.status.has(Flags::POINTS) {
            return None;
        }
        self.claims.effective().targets().into_iter().find(|target| !available(*target))
    }
}

impl<C: Claims> Slab<C> {
    pub(super) fn get(&self, slot: u32) -> Option<&Entry<C>> {
        self.entries.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry<C>> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    /// All slots, used or free.
    pub(super) fn slots(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry<C>> {
        self.entries.iter().flatten()
    }

    /// The slot of the object with this key.
    pub(super) fn find(&self, object: &C::Object) -> Option<u32> {
        let hash = object.key_hash();
        let same = |entry: &Entry<C>| entry.hash == hash && entry.claims.key().same_key(object);
        self.index.find(spread(hash), |slot| self.get(*slot).is_some_and(same)).copied()
    }

    /// Adds an object whose key is not present yet.
    pub(super) fn insert(&mut self, claims: C) -> u32 {
        let hash = claims.key().key_hash();
        let entry = Some(Entry { claims, hash, status: Status::default() });
        let slot = self.free.pop().unwrap_or(self.slots().end);
        match self.entries.get_mut(slot as usize) {
            Some(place) => *place = entry,
            None => self.entries.push(entry),
        }
        let entries = &self.entries;
        let hash_of = |slot: &u32| entries.get(*slot as usize).and_then(Option::as_ref).map_or(0, |entry| entry.hash);
        self.index.insert_unique(spread(hash), slot, |slot| spread(hash_of(slot)));
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) {
        let Some(entry) = self.entries.get_mut(slot as usize).and_then(Option::take) else { return };
        if let Ok(place) = self.index.find_entry(spread(entry.hash), |other| *other == slot) {
            place.remove();
        }
        self.free.push(slot);
    }

    /// Sorts slots by key, each once; leaves out those that are free.
    pub(super) fn sort(&self, slots: &mut Vec<u32>) {
        // Most comparisons need only the prefix, which is kept beside the slot: the objects are scattered in memory.
        let prefixed = |slot: u32| Some((self.get(slot)?.claims.key().key_prefix(), slot));
        let mut sorted = Vec::with_capacity(slots.len());
        sorted.extend(slots.iter().filter_map(|slot| prefixed(*slot)));
        sorted.sort_unstable_by(|(a, x), (b, y)| a.cmp(b).then_with(|| self.cmp_key(*x, *y)));
        sorted.dedup_by_key(|(_, slot)| *slot);
        slots.clear();
        slots.extend(sorted.into_iter().map(|(_, slot)| slot));
    }

    fn cmp_key(&self, a: u32, b: u32) -> std::cmp::Ordering {
        match (self.get(a), self.get(b)) {
            (Some(a), Some(b)) => a.claims.key().cmp_key(b.claims.key()),
            (a, b) => a.is_some().cmp(&b.is_some()),
        }
    }
}

/// The index uses the highest and the lowest bits.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use openflow::field::Field;
    use openflow::flow::{EncodedFlow, Flow};
    use openflow::matching::Match;

    use super::*;
    use crate::flows::SharedFlow;

    #[test]
    fn slots_are_sorted_by_key_however_long_the_common_prefix() {
        let mut slab = Slab::<SharedFlow<u32>>::default();
        let flow = |table, priority, matches| Flow { table, priority, matches, ..Flow::default() };
        let flows = (0..50u8).rev().flat_map(|n| {
            let late =
                Match::default().with(Field::Reg0, 1u8).with(Field::Reg1, 2u8).with(Field::Reg2, n.wrapping_mul(77));
            [flow(3, 7, late), flow(n % 4, u16::from(n % 8), Match::default().with(Field::Reg0, n))]
        });
        let mut slots: Vec<u32> =
            flows.map(|flow| slab.insert(SharedFlow::one(None, EncodedFlow::new(&flow, &mut Vec::new())))).collect();
        slots.extend_from_within(..7);
        slab.sort(&mut slots);
        assert_eq!(slots.len(), 100);
        assert!(slots.is_sorted_by(|a, b| slab.cmp_key(*a, *b) == Ordering::Less));
    }

    #[test]
    fn an_entry_for_a_flow_is_small() {
        assert_eq!(size_of::<Option<Entry<SharedFlow<u64>>>>(), 40);
        assert_eq!(size_of::<Option<Entry<SharedFlow<u32>>>>(), 40);
    }
}
