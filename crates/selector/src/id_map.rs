//! Maps whose keys are ids.

use std::hash::{BuildHasherDefault, Hasher};

/// A map from ids. Ids are not chosen by users, so the hash needs no key.
pub type IdMap<K, V> = hashbrown::HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Hashes a few small numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number.unsigned_abs() as u64);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        // A table uses the lowest and the highest bits; the best mixed bits of a product are the highest.
        self.0 ^ self.0 >> 32
    }
}
