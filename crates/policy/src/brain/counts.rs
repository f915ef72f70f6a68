//! Reference counts by id.

use std::marker::PhantomData;

use selector::Id;
use smallvec::SmallVec;

/// A multiset of ids, sorted; most have few.
#[derive(Clone, Debug)]
pub(super) struct Counts<I> {
    counts: SmallVec<[(u32, u32); 2]>,
    kind: PhantomData<I>,
}

impl<I> Default for Counts<I> {
    fn default() -> Self {
        Self { counts: SmallVec::new(), kind: PhantomData }
    }
}

impl<I: Id> Counts<I> {
    /// Counts one more. Returns whether it is the first.
    pub(super) fn add(&mut self, id: I) -> bool {
        match self.find(id) {
            Ok(place) => {
                self.counts[place].1 += 1;
                false
            }
            Err(place) => {
                self.counts.insert(place, (id.number(), 1));
                true
            }
        }
    }

    /// Counts one less. Returns whether it was the last.
    pub(super) fn sub(&mut self, id: I) -> bool {
        let Ok(place) = self.find(id) else { return false };
        self.counts[place].1 -= 1;
        let is_last = self.counts[place].1 == 0;
        if is_last {
            self.counts.remove(place);
        }
        is_last
    }

    pub(super) fn contains(&self, id: I) -> bool {
        self.find(id).is_ok()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = I> + '_ {
        self.counts.iter().map(|(number, _)| I::new(*number))
    }

    fn find(&self, id: I) -> Result<usize, usize> {
        self.counts.binary_search_by_key(&id.number(), |(number, _)| *number)
    }
}
