//! Finds ids by name, without a second copy of the names.

use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;

/// Ids by name. The names are stored in the objects themselves.
// Names are chosen by users, so the hash is keyed. No result depends on the order of the table.
#[derive(Clone, Debug)]
pub(super) struct Names<I> {
    /// With the hashes, so that growing does not need the names.
    table: HashTable<(u64, I)>,
    hasher: RandomState,
}

impl<I> Default for Names<I> {
    fn default() -> Self {
        Self { table: HashTable::new(), hasher: RandomState::new() }
    }
}

impl<I: Copy + Eq> Names<I> {
    /// The hash of a name, for the methods below.
    pub(super) fn hash<N: Hash + ?Sized>(&self, name: &N) -> u64 {
        self.hasher.hash_one(name)
    }

    /// The id of a name; `name_of` returns the name of an id.
    pub(super) fn find<'a, N: Eq + ?Sized + 'a>(&self, hash: u64, name: &N, name_of: impl Fn(I) -> &'a N) -> Option<I> {
        self.table.find(hash, |(other, id)| *other == hash && name_of(*id) == name).map(|(_, id)| *id)
    }

    /// Adds the id of a new name.
    pub(super) fn insert(&mut self, hash: u64, id: I) {
        self.table.insert_unique(hash, (hash, id), |(hash, _)| *hash);
    }

    /// Removes the id of a name.
    pub(super) fn remove(&mut self, hash: u64, id: I) {
        if let Ok(entry) = self.table.find_entry(hash, |(_, other)| *other == id) {
            entry.remove();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
}
