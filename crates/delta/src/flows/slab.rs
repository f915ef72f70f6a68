//! Where flows are kept: numbered slots, found by the key of the flow in them.

use std::cmp::Ordering;

use hashbrown::HashTable;
use openflow::flow::EncodedFlow;

use super::share::Shared;
use crate::hash::StableHasher;
use crate::life::{Life, Marks};
use crate::target::{Target, targets};

/// Bytes of a key that are compared first: enough for an address behind what flows of a table have in common.
const BEGIN: usize = 28;

/// What is kept of a flow.
#[derive(Debug)]
pub(super) struct Entry<O> {
    pub(super) shared: Shared<O>,
    /// Of the key; so that the index can grow without reading every flow.
    hash: u32,
    pub(super) life: Life,
}

/// Numbered slots. A number stays with its flow until it is removed.
#[derive(Debug)]
pub(super) struct Slab<O> {
    entries: Vec<Option<Entry<O>>>,
    free: Vec<u32>,
    index: HashTable<u32>,
}

impl<O> Default for Slab<O> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new(), index: HashTable::new() }
    }
}

impl<O: Ord + Clone> Entry<O> {
    /// The first thing that it points at and that is not available.
    pub(super) fn missing(&self, available: impl Fn(Target) -> bool) -> Option<Target> {
        if !self.life.is(Marks::POINTS) {
            return None;
        }
        targets(&self.shared.effective().decode().actions).find(|target| !available(*target))
    }
}

impl<O: Ord + Clone> Slab<O> {
    pub(super) fn get(&self, slot: u32) -> Option<&Entry<O>> {
        self.entries.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry<O>> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    /// Every slot, whether in use or not.
    pub(super) fn slots(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// The slot of the flow with this key.
    pub(super) fn find(&self, flow: &EncodedFlow) -> Option<u32> {
        let hash = hash(flow);
        let same = |entry: &Entry<O>| entry.hash == hash && entry.shared.key().same_key(flow);
        self.index.find(spread(hash), |slot| self.get(*slot).is_some_and(same)).copied()
    }

    /// Keeps a flow whose key is not there yet.
    pub(super) fn insert(&mut self, shared: Shared<O>) -> u32 {
        let hash = hash(shared.key());
        let entry = Some(Entry { shared, hash, life: Life::default() });
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

    /// Sorts slots by table, priority and match.
    pub(super) fn sort(&self, slots: &mut [u32]) {
        // The beginning of a key beside its slot tells most pairs apart, and the flows are all over the memory.
        let begin = |slot: u32| {
            let mut begin = [0; BEGIN];
            if let Some(entry) = self.get(slot) {
                let flow = entry.shared.key();
                let bytes = [&[flow.table()], &flow.priority().to_be_bytes()[..], flow.match_bytes()];
                for (to, from) in begin.iter_mut().zip(bytes.into_iter().flatten()) {
                    *to = *from;
                }
            }
            begin
        };
        let mut sorted: Vec<_> = slots.iter().map(|slot| (begin(*slot), *slot)).collect();
        sorted.sort_unstable_by(|(a, x), (b, y)| a.cmp(b).then_with(|| self.compare(*x, *y)));
        for (to, (_, slot)) in slots.iter_mut().zip(sorted) {
            *to = slot;
        }
    }

    /// By table, priority and match.
    fn compare(&self, a: u32, b: u32) -> Ordering {
        let key = |slot| {
            let flow = self.get(slot)?.shared.key();
            Some((flow.table(), flow.priority(), flow.match_bytes()))
        };
        key(a).cmp(&key(b))
    }
}

fn hash(flow: &EncodedFlow) -> u32 {
    let mut hash = StableHasher::default();
    hash.write(&[flow.table()]);
    hash.write(&flow.priority().to_be_bytes());
    hash.write(flow.match_bytes());
    let hash = hash.finish();
    (hash >> 32) as u32
}

/// The index looks at the highest and the lowest bits.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

#[cfg(test)]
mod tests {
    use openflow::field::Field;
    use openflow::flow::Flow;
    use openflow::matching::Match;

    use super::*;

    #[test]
    fn slots_are_sorted_by_their_keys_however_much_those_have_in_common() {
        let mut slab = Slab::<u32>::default();
        let flow = |table, priority, matches| Flow { table, priority, matches, ..Flow::default() };
        let flows = (0..50u8).rev().flat_map(|n| {
            let late =
                Match::default().with(Field::Reg0, 1u8).with(Field::Reg1, 2u8).with(Field::Reg2, n.wrapping_mul(77));
            [flow(3, 7, late), flow(n % 4, u16::from(n % 8), Match::default().with(Field::Reg0, n))]
        });
        let mut slots: Vec<u32> =
            flows.map(|flow| slab.insert(Shared::one(None, EncodedFlow::new(&flow, &mut Vec::new())))).collect();
        slab.sort(&mut slots);
        assert_eq!(slots.len(), 100);
        assert!(slots.is_sorted_by(|a, b| slab.compare(*a, *b) == Ordering::Less));
    }

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Option<Entry<u64>>>(), 40);
        assert_eq!(size_of::<Option<Entry<u32>>>(), 40);
    }
}
