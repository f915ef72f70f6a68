//! Label sets and selectors, and which of them match.

use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;
use types::meta::Labels;

use crate::ids::IdSet;
use crate::selector::{Anchor, Selector};
use crate::slab::Slab;

crate::ids! {
    /// A label set of an index.
    pub LabelsId;
    /// A selector of an index.
    pub SelectorId;
}

// Keys are chosen by users, so the hash is keyed. No result depends on the order of a table.
type HashMap<K, V> = hashbrown::HashMap<K, V, RandomState>;

/// Label sets and selectors, each stored once and reference counted, and which of them match.
///
/// A selector is filed under one of the labels that it requires, and a label set under all of its labels, so that a new entry is
/// compared only with candidates.
#[derive(Clone, Debug, Default)]
pub struct Index {
    sets: Slab<LabelsId, Counted<Labels, SelectorId>>,
    selectors: Slab<SelectorId, Counted<Selector, LabelsId>>,
    keys: HashMap<String, Key>,
    /// All label sets, for selectors without an anchor.
    all_sets: IdSet<LabelsId>,
    /// Selectors that require no label.
    unanchored: IdSet<SelectorId>,
    hasher: RandomState,
    set_ids: HashTable<LabelsId>,
    selector_ids: HashTable<SelectorId>,
}

#[derive(Clone, Debug, Default)]
struct Counted<T, M> {
    value: T,
    users: u32,
    matching: IdSet<M>,
}

#[derive(Clone, Debug, Default)]
struct Key {
    any: Filed,
    values: HashMap<String, Filed>,
}

#[derive(Clone, Debug, Default)]
struct Filed {
    sets: IdSet<LabelsId>,
    selectors: IdSet<SelectorId>,
}

impl Filed {
    fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.selectors.is_empty()
    }
}

impl Index {
    /// Adds a label set, or counts one more user of it.
    pub fn acquire_labels(&mut self, labels: &Labels) -> LabelsId {
        let hash = self.hash(labels);
        if let Some(id) = self.set_ids.find(hash, |id| self.sets[*id].value == *labels) {
            self.sets[*id].users += 1;
            return *id;
        }
        let matching: IdSet<SelectorId> =
            self.may_select(labels).filter(|id| self.selectors[*id].value.selects(labels)).collect();
        let id = self.sets.insert(Counted { value: labels.clone(), users: 1, matching: matching.clone() });
        for selector in matching.iter() {
            self.selectors[selector].matching.insert(id);
        }
        self.all_sets.insert(id);
        for (key, value) in labels {
            let key = self.keys.entry_ref(key).or_default();
            key.any.sets.insert(id);
            key.values.entry_ref(value.as_str()).or_default().sets.insert(id);
        }
        let (sets, hasher) = (&self.sets, &self.hasher);
        self.set_ids.insert_unique(hash, id, |id| hasher.hash_one(&sets[*id].value));
        id
    }

    /// The labels of a set.
    pub fn labels(&self, id: LabelsId) -> &Labels {
        &self.sets[id].value
    }

    /// Counts one user less of a label set, and removes it with the last.
    pub fn release_labels(&mut self, id: LabelsId) {
        self.sets[id].users -= 1;
        if self.sets[id].users > 0 {
            return;
        }
        let hash = self.hash(&self.sets[id].value);
        if let Ok(entry) = self.set_ids.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        let gone = self.sets.remove(id);
        for selector in gone.matching.iter() {
            self.selectors[selector].matching.remove(id);
        }
        self.all_sets.remove(id);
        for (key, value) in &gone.value {
            self.unfile(key, |key| {
                key.any.sets.remove(id);
                unfile_value(key, value, |filed| filed.sets.remove(id));
            });
        }
    }

    /// Adds a selector, or counts one more user of it.
    pub fn acquire_selector(&mut self, selector: &Selector) -> SelectorId {
        let hash = self.hash(selector);
        if let Some(id) = self.selector_ids.find(hash, |id| self.selectors[*id].value == *selector) {
            self.selectors[*id].users += 1;
            return *id;
        }
        let matching: IdSet<LabelsId> =
            self.may_be_selected(selector).filter(|id| selector.selects(&self.sets[*id].value)).collect();
        let id = self.selectors.insert(Counted { value: selector.clone(), users: 1, matching: matching.clone() });
        for labels in matching.iter() {
            self.sets[labels].matching.insert(id);
        }
        match selector.anchor() {
            Anchor::Values(key, values) => {
                let key = self.keys.entry_ref(key).or_default();
                for value in values {
                    key.values.entry_ref(value.as_str()).or_default().selectors.insert(id);
                }
            }
            Anchor::Key(key) => {
                self.keys.entry_ref(key).or_default().any.selectors.insert(id);
            }
            Anchor::Nothing => {
                self.unanchored.insert(id);
            }
        }
        let (selectors, hasher) = (&self.selectors, &self.hasher);
        self.selector_ids.insert_unique(hash, id, |id| hasher.hash_one(&selectors[*id].value));
        id
    }

    /// Counts one user less of a selector, and removes it with the last.
    pub fn release_selector(&mut self, id: SelectorId) {
        self.selectors[id].users -= 1;
        if self.selectors[id].users > 0 {
            return;
        }
        let hash = self.hash(&self.selectors[id].value);
        if let Ok(entry) = self.selector_ids.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        let gone = self.selectors.remove(id);
        for labels in gone.matching.iter() {
            self.sets[labels].matching.remove(id);
        }
        match gone.value.anchor() {
            Anchor::Values(key, values) => self.unfile(key, |key| {
                for value in values {
                    unfile_value(key, value, |filed| filed.selectors.remove(id));
                }
            }),
            Anchor::Key(key) => self.unfile(key, |key| {
                key.any.selectors.remove(id);
            }),
            Anchor::Nothing => {
                self.unanchored.remove(id);
            }
        }
    }

    /// The selectors that select a label set.
    pub fn selectors_of(&self, id: LabelsId) -> &IdSet<SelectorId> {
        &self.sets[id].matching
    }

    /// The label sets that a selector selects.
    pub fn sets_of(&self, id: SelectorId) -> &IdSet<LabelsId> {
        &self.selectors[id].matching
    }

    /// A selector of the index.
    pub fn selector(&self, id: SelectorId) -> &Selector {
        &self.selectors[id].value
    }

    /// The numbers of label sets and of selectors.
    pub fn len(&self) -> (usize, usize) {
        (self.sets.len(), self.selectors.len())
    }

    /// Whether all tables are empty.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.selectors.is_empty() && self.keys.is_empty() && self.unanchored.is_empty()
    }

    fn hash(&self, value: &impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }

    fn may_select(&self, labels: &Labels) -> impl Iterator<Item = SelectorId> {
        let filed =
            labels.iter().filter_map(|(key, value)| Some((self.keys.get(key)?, value))).flat_map(|(key, value)| {
                let by_value = key.values.get(value).into_iter().flat_map(|filed| filed.selectors.iter());
                key.any.selectors.iter().chain(by_value)
            });
        filed.chain(self.unanchored.iter())
    }

    fn may_be_selected<'a>(&'a self, selector: &'a Selector) -> Box<dyn Iterator<Item = LabelsId> + 'a> {
        match selector.anchor() {
            Anchor::Values(key, values) => {
                let key = self.keys.get(key);
                let filed = values.iter().filter_map(move |value| key?.values.get(value));
                Box::new(filed.flat_map(|filed| filed.sets.iter()))
            }
            Anchor::Key(key) => Box::new(self.keys.get(key).into_iter().flat_map(|key| key.any.sets.iter())),
            Anchor::Nothing => Box::new(self.all_sets.iter()),
        }
    }

    fn unfile(&mut self, key: &str, change: impl FnOnce(&mut Key)) {
        if let Some(filed) = self.keys.get_mut(key) {
            change(filed);
            if filed.any.is_empty() && filed.values.is_empty() {
                self.keys.remove(key);
            }
        }
    }
}

fn unfile_value(key: &mut Key, value: &str, change: impl FnOnce(&mut Filed) -> bool) {
    if let Some(filed) = key.values.get_mut(value) {
        change(filed);
        if filed.is_empty() {
            key.values.remove(value);
        }
    }
}

#[cfg(test)]
mod tests;
