//! From names to numbers, without a second copy of the names.

use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;

/// Finds the id of a thing by its name, which the thing itself holds.
// Names are chosen by users, so the hash has a secret; nothing is ever listed in the order of the table.
#[derive(Clone, Debug)]
pub(super) struct Names<I> {
    table: HashTable<I>,
    hasher: RandomState,
}

impl<I> Default for Names<I> {
    fn default() -> Self {
        Self { table: HashTable::new(), hasher: RandomState::new() }
    }
}

impl<I: Copy + Eq> Names<I> {
    /// The id of a name; `name_of` says the name of an id.
    pub(super) fn find<'a, N: Hash + Eq + ?Sized + 'a>(&self, name: &N, name_of: impl Fn(I) -> &'a N) -> Option<I> {
        self.table.find(self.hasher.hash_one(name), |id| name_of(*id) == name).copied()
    }

    /// Takes in the id of a name that is not there.
    pub(super) fn insert<'a, N: Hash + ?Sized + 'a>(&mut self, name: &N, id: I, name_of: impl Fn(I) -> &'a N) {
        let hasher = &self.hasher;
        self.table.insert_unique(hasher.hash_one(name), id, |id| hasher.hash_one(name_of(*id)));
    }

    /// Forgets a name.
    pub(super) fn remove<N: Hash + ?Sized>(&mut self, name: &N, id: I) {
        if let Ok(entry) = self.table.find_entry(self.hasher.hash_one(name), |other| *other == id) {
            entry.remove();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}
