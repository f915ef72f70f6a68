//! Ids that live in the switch: of conjunctions and groups.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::hash::StableKey;

/// Assigns an id to each key, which the key keeps across restarts, whatever happens to other keys.
///
/// A key gets the id that its [`StableKey`] hashes to, or the next free one. After a restart [`Ids::adopt`] adds the ids that
/// are in the switch, with fingerprints of their keys (which travel in cookies): each key gets the id that it had, and no
/// id gets a second meaning while flows with the first may exist.
#[derive(Clone, Debug)]
pub struct Ids<K> {
    range: RangeInclusive<u32>,
    fingerprint: u64,
    ids: BTreeMap<u32, Usage<K>>,
    /// Keys that have an id, or had one and may get it back.
    keys: BTreeMap<K, u32>,
    /// The adopted id of each fingerprint; `None` if it was claimed or is ambiguous.
    adopted: BTreeMap<u64, Option<u32>>,
}

/// What an id is used for.
#[derive(Clone, Debug)]
enum Usage<K> {
    /// It is the id of a key.
    Live(K),
    /// The key released it; flows with it may still be in the switch.
    Retiring(K),
    /// It is in the switch, for a key with this fingerprint.
    Adopted(u64),
    /// It is in the switch, for an unknown key.
    Reserved,
}

/// The result of [`Ids::adopt`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Adopted {
    /// The id is reserved for its key.
    Kept,
    /// The id is out of range, so it is never assigned.
    OutOfRange,
    /// The key cannot be determined; the id is not assigned before [`Ids::forget_unclaimed`].
    Ambiguous,
    /// The id is already assigned to another key: flows of two keys share it. Adopt first, then assign.
    Clash,
}

/// All ids are in use.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all ids from {} to {} are in use", .range.start(), .range.end())]
pub struct Exhausted {
    /// The range of ids to assign from.
    pub range: RangeInclusive<u32>,
}

impl<K: StableKey + Ord + Clone> Ids<K> {
    /// Assigns ids of a range. Fingerprints have 1 to 64 bits, as many as fit into a cookie; keys with the same fingerprint
    /// cannot be distinguished after a restart.
    pub fn new(range: RangeInclusive<u32>, fingerprint_bits: u32) -> Self {
        let fingerprint = u64::MAX >> 64u32.saturating_sub(fingerprint_bits).min(63);
        Self { range, fingerprint, ids: BTreeMap::new(), keys: BTreeMap::new(), adopted: BTreeMap::new() }
    }

    /// Identifies a key in the switch: the low bits of its hash.
    pub fn fingerprint(&self, key: &K) -> u64 {
        key.stable_hash() & self.fingerprint
    }

    /// The switch has an id whose key has this fingerprint. Idempotent.
    pub fn adopt(&mut self, id: u32, fingerprint: u64) -> Adopted {
        if !self.range.contains(&id) {
            return Adopted::OutOfRange;
        }
        let fingerprint = fingerprint & self.fingerprint;
        match self.ids.get(&id) {
            Some(Usage::Live(key) | Usage::Retiring(key)) if self.fingerprint(key) == fingerprint => {
                return Adopted::Kept;
            }
            Some(Usage::Live(_) | Usage::Retiring(_)) => return Adopted::Clash,
            Some(Usage::Adopted(known)) if *known == fingerprint => return Adopted::Kept,
            Some(Usage::Adopted(_) | Usage::Reserved) => {
                self.reserve(id);
                self.disown(fingerprint);
                return Adopted::Ambiguous;
            }
            None => {}
        }
        if self.adopted.contains_key(&fingerprint) {
            self.disown(fingerprint);
            self.ids.insert(id, Usage::Reserved);
            return Adopted::Ambiguous;
        }
        self.adopted.insert(fingerprint, Some(id));
        self.ids.insert(id, Usage::Adopted(fingerprint));
        Adopted::Kept
    }

    /// The switch has an id of an unknown key: it is not assigned before [`Ids::forget_unclaimed`].
    pub fn reserve(&mut self, id: u32) {
        match self.ids.get(&id) {
            Some(Usage::Adopted(fingerprint)) => self.disown(*fingerprint),
            Some(_) => {}
            None => drop(self.ids.insert(id, Usage::Reserved)),
        }
    }

    /// The id of a key; assigns one if it has none.
    pub fn assign(&mut self, key: &K) -> Result<u32, Exhausted> {
        let id = match self.keys.get(key) {
            Some(id) => *id,
            None => self.claim(key).or_else(|| self.probe(key)).ok_or(Exhausted { range: self.range.clone() })?,
        };
        self.ids.insert(id, Usage::Live(key.clone()));
        self.keys.insert(key.clone(), id);
        Ok(id)
    }

    /// The id that is assigned to a key.
    pub fn get(&self, key: &K) -> Option<u32> {
        let id = *self.keys.get(key)?;
        matches!(self.ids.get(&id), Some(Usage::Live(_))).then_some(id)
    }

    /// The key of an id: the one that it is assigned to, or that released it and may still have flows in the switch.
    pub fn key(&self, id: u32) -> Option<&K> {
        match self.ids.get(&id)? {
            Usage::Live(key) | Usage::Retiring(key) => Some(key),
            Usage::Adopted(_) | Usage::Reserved => None,
        }
    }

    /// Whether an id is assigned, retiring, adopted or reserved.
    pub fn is_known(&self, id: u32) -> bool {
        self.ids.contains_key(&id)
    }

    /// Releases the id of a key. No other key gets it before [`Ids::retired`]; the same key can.
    pub fn release(&mut self, key: &K) -> Option<u32> {
        let id = self.get(key)?;
        self.ids.insert(id, Usage::Retiring(key.clone()));
        Some(id)
    }

    /// The released ids that wait for [`Ids::retired`].
    pub fn retiring(&self) -> impl Iterator<Item = u32> + '_ {
        self.ids.iter().filter(|(_, usage)| matches!(usage, Usage::Retiring(_))).map(|(id, _)| *id)
    }

    /// No flow in the switch uses a released id any more. Returns whether the id was waiting for that.
    pub fn retired(&mut self, id: u32) -> bool {
        let Some(Usage::Retiring(key)) = self.ids.get(&id) else { return false };
        self.keys.remove(key);
        self.ids.remove(&id);
        true
    }

    /// Unclaimed flows have been deleted from the switch: adopted ids that no key has claimed become free.
    pub fn forget_unclaimed(&mut self) {
        self.ids.retain(|_, used| matches!(used, Usage::Live(_) | Usage::Retiring(_)));
        self.adopted.clear();
    }

    /// Takes the id that was adopted for a key.
    fn claim(&mut self, key: &K) -> Option<u32> {
        // The fingerprint stays taken: another id that is adopted with it belongs to another key.
        let place = self.adopted.get_mut(&(key.stable_hash() & self.fingerprint))?;
        place.take()
    }

    /// The first free id, from the one that the key hashes to.
    fn probe(&self, key: &K) -> Option<u32> {
        let (start, end) = (*self.range.start(), *self.range.end());
        let count = u64::from(end.checked_sub(start)?) + 1;
        let offset = u32::try_from(key.stable_hash() % count).unwrap_or_default();
        let first = start + offset;
        (first..=end).chain(start..first).find(|id| !self.ids.contains_key(id))
    }

    /// Makes the id that was adopted with a fingerprint impossible to claim.
    fn disown(&mut self, fingerprint: u64) {
        if let Some(id) = self.adopted.insert(fingerprint, None).flatten() {
            self.ids.insert(id, Usage::Reserved);
        }
    }
}

#[cfg(test)]
mod tests;
