//! Numbers that live in the switch: conjunction ids, group ids.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::hash::StableKey;

/// Gives each key a number that it keeps: across changes of other keys, and across restarts.
///
/// A key's number follows from its [`StableKey`]; where that is taken, from the next that is free. After a restart
/// [`Ids::adopt`] tells which numbers the switch knows, together with fingerprints of their keys (that travel in cookies),
/// so that a key gets the very number it had, and no number gets a second meaning while flows with the first may live.
#[derive(Clone, Debug)]
pub struct Ids<K> {
    range: RangeInclusive<u32>,
    fingerprint: u64,
    numbers: BTreeMap<u32, Use<K>>,
    /// Keys that have a number, or had and may get it back.
    keys: BTreeMap<K, u32>,
    /// The adopted number of each fingerprint; `None` if there were several, so that nobody knows which is whose.
    adopted: BTreeMap<u64, Option<u32>>,
}

#[derive(Clone, Debug)]
enum Use<K> {
    /// It is the number of a key.
    Live(K),
    /// It was, and flows with it may still be in the switch.
    Retiring(K),
    /// It is in the switch, for a key with this fingerprint.
    Adopted(u64),
    /// It is in the switch, and nobody knows what for.
    Reserved,
}

/// What became of a number that the switch knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Adopted {
    /// It is kept for its key.
    Kept,
    /// It is out of range, and no number that is given out here can be confused with it.
    OutOfRange,
    /// It cannot be told whose it is; nobody gets it before [`Ids::forget_unclaimed`].
    Ambiguous,
    /// It has been given to another key already: flows of two keys share it. Adopt first, then assign.
    Clash,
}

/// Every number is taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("all numbers from {} to {} are taken", .range.start(), .range.end())]
pub struct Exhausted {
    /// The numbers that there are.
    pub range: RangeInclusive<u32>,
}

impl<K: StableKey + Ord + Clone> Ids<K> {
    /// Gives out numbers of a range; fingerprints have so many bits (1 to 64: as many as fit into a cookie; two keys with
    /// one fingerprint cannot be told apart after a restart).
    pub fn new(range: RangeInclusive<u32>, fingerprint_bits: u32) -> Self {
        let fingerprint = u64::MAX >> 64u32.saturating_sub(fingerprint_bits).min(63);
        Self { range, fingerprint, numbers: BTreeMap::new(), keys: BTreeMap::new(), adopted: BTreeMap::new() }
    }

    /// What stands for a key in the switch: the low bits of its hash.
    pub fn fingerprint(&self, key: &K) -> u64 {
        key.stable_hash() & self.fingerprint
    }

    /// The switch knows a number; its key has this fingerprint. Saying it again changes nothing.
    pub fn adopt(&mut self, id: u32, fingerprint: u64) -> Adopted {
        if !self.range.contains(&id) {
            return Adopted::OutOfRange;
        }
        let fingerprint = fingerprint & self.fingerprint;
        match self.numbers.get(&id) {
            Some(Use::Live(key) | Use::Retiring(key)) if self.fingerprint(key) == fingerprint => return Adopted::Kept,
            Some(Use::Live(_) | Use::Retiring(_)) => return Adopted::Clash,
            Some(Use::Adopted(known)) if *known == fingerprint => return Adopted::Kept,
            Some(Use::Adopted(_) | Use::Reserved) => {
                self.reserve(id);
                self.disown(fingerprint);
                return Adopted::Ambiguous;
            }
            None => {}
        }
        if self.adopted.contains_key(&fingerprint) {
            self.disown(fingerprint);
            self.numbers.insert(id, Use::Reserved);
            return Adopted::Ambiguous;
        }
        self.adopted.insert(fingerprint, Some(id));
        self.numbers.insert(id, Use::Adopted(fingerprint));
        Adopted::Kept
    }

    /// The switch knows a number, and it cannot be told whose it is: nobody gets it before [`Ids::forget_unclaimed`].
    pub fn reserve(&mut self, id: u32) {
        match self.numbers.get(&id) {
            Some(Use::Adopted(fingerprint)) => self.disown(*fingerprint),
            Some(_) => {}
            None => drop(self.numbers.insert(id, Use::Reserved)),
        }
    }

    /// The number of a key, which it has from now on if it had none.
    pub fn assign(&mut self, key: &K) -> Result<u32, Exhausted> {
        let id = match self.keys.get(key) {
            Some(id) => *id,
            None => self.claim(key).or_else(|| self.probe(key)).ok_or(Exhausted { range: self.range.clone() })?,
        };
        self.numbers.insert(id, Use::Live(key.clone()));
        self.keys.insert(key.clone(), id);
        Ok(id)
    }

    /// The number that a key has.
    pub fn get(&self, key: &K) -> Option<u32> {
        let id = *self.keys.get(key)?;
        matches!(self.numbers.get(&id), Some(Use::Live(_))).then_some(id)
    }

    /// The key that has a number, or had it and may still have flows in the switch.
    pub fn key(&self, id: u32) -> Option<&K> {
        match self.numbers.get(&id)? {
            Use::Live(key) | Use::Retiring(key) => Some(key),
            Use::Adopted(_) | Use::Reserved => None,
        }
    }

    /// Whether a number is somebody's, or may be.
    pub fn is_known(&self, id: u32) -> bool {
        self.numbers.contains_key(&id)
    }

    /// A key needs its number no more. Nobody else gets it before [`Ids::retired`]; the key itself does.
    pub fn release(&mut self, key: &K) -> Option<u32> {
        let id = self.get(key)?;
        self.numbers.insert(id, Use::Retiring(key.clone()));
        Some(id)
    }

    /// The numbers that were released and wait for [`Ids::retired`].
    pub fn retiring(&self) -> impl Iterator<Item = u32> + '_ {
        self.numbers.iter().filter(|(_, used)| matches!(used, Use::Retiring(_))).map(|(id, _)| *id)
    }

    /// Nothing in the switch uses a released number any more. Says whether it was waiting for that.
    pub fn retired(&mut self, id: u32) -> bool {
        let Some(Use::Retiring(key)) = self.numbers.get(&id) else { return false };
        self.keys.remove(key);
        self.numbers.remove(&id);
        true
    }

    /// What nobody wanted has been swept from the switch: adopted numbers that nobody has claimed are free.
    pub fn forget_unclaimed(&mut self) {
        self.numbers.retain(|_, used| matches!(used, Use::Live(_) | Use::Retiring(_)));
        self.adopted.clear();
    }

    /// The number that was adopted for a key.
    fn claim(&mut self, key: &K) -> Option<u32> {
        // Claimed once, the fingerprint stays taken: what else is adopted with it belongs to somebody else.
        let place = self.adopted.get_mut(&(key.stable_hash() & self.fingerprint))?;
        place.take()
    }

    /// The first free number from the one that the key's hash points to.
    fn probe(&self, key: &K) -> Option<u32> {
        let (start, end) = (*self.range.start(), *self.range.end());
        let count = u64::from(end.checked_sub(start)?) + 1;
        let offset = u32::try_from(key.stable_hash() % count).unwrap_or_default();
        let first = start + offset;
        (first..=end).chain(start..first).find(|id| !self.numbers.contains_key(id))
    }

    /// Nobody can claim the number that was adopted with a fingerprint.
    fn disown(&mut self, fingerprint: u64) {
        if let Some(id) = self.adopted.insert(fingerprint, None).flatten() {
            self.numbers.insert(id, Use::Reserved);
        }
    }
}

#[cfg(test)]
mod tests;
