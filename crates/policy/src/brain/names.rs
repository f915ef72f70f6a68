//! From names to numbers, without a second copy of the names.

use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;

/// Finds the id of a thing by its name, which the thing itself holds.
// Names are chosen by users, so the hash has a secret; nothing is ever listed in the order of the table.
#[derive(Clone, Debug)]
pub(super) struct Names<I> {
    /// With the hashes, so that a table that grows need not look at the names.
    table: HashTable<(u64, I)>,
    hasher: RandomState,
}

impl<I> Default for Names<I> {
    fn default() -> Self {
        Self { table: HashTable::new(), hasher: RandomState::new() }
    }
}

impl<I: Copy + Eq> Names<I> {
    /// The hash of a name, for those who need it more than once.
    pub(super) fn hash<N: Hash + ?Sized>(&self, name: &N) -> u64 {
        self.hasher.hash_one(name)
    }

    /// The id of a name that has this hash; `name_of` says the name of an id.
    pub(super) fn find<'a, N: Eq + ?Sized + 'a>(&self, hash: u64, name: &N, name_of: impl Fn(I) -> &'a N) -> Option<I> {
        self.table.find(hash, |(other, id)| *other == hash && name_of(*id) == name).map(|(_, id)| *id)
    }

    /// Takes in the id of a name that is not there, and has this hash.
    pub(super) fn insert(&mut self, hash: u64, id: I) {
        self.table.insert_unique(hash, (hash, id), |(hash, _)| *hash);
    }

    /// Forgets a name that has this hash.
    pub(super) fn remove(&mut self, hash: u64, id: I) {
        if let Ok(entry) = self.table.find_entry(hash, |(_, other)| *other == id) {
            entry.remove();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}
