//! A hash that is the same on every machine and in every version: ids derived from it live in the switch.

/// FNV-1a with 64 bits and a finaliser, so that any bits of the result can be used.
#[derive(Clone, Debug)]
pub struct StableHasher(u64);

impl Default for StableHasher {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl StableHasher {
    /// Adds bytes to the hashed input.
    pub fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    /// The hash of all bytes that were written.
    pub fn finish(&self) -> u64 {
        // The finaliser of splitmix64.
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
}

/// A key with a hash that never changes; `std::hash::Hash` promises nothing across versions and machines.
pub trait StableKey {
    /// Writes the key. Different keys of a type write different bytes, and none writes a prefix of another.
    fn feed(&self, hash: &mut StableHasher);

    /// The hash of this key and nothing else.
    fn stable_hash(&self) -> u64 {
        let mut hash = StableHasher::default();
        self.feed(&mut hash);
        hash.finish()
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl StableKey for $number {
            fn feed(&self, hash: &mut StableHasher) {
                hash.write(&self.to_be_bytes());
            }
        }
    )*};
}
numbers!(u8 u16 u32 u64 u128);

impl StableKey for str {
    fn feed(&self, hash: &mut StableHasher) {
        (self.len() as u64).feed(hash);
        hash.write(self.as_bytes());
    }
}

impl StableKey for String {
    fn feed(&self, hash: &mut StableHasher) {
        self.as_str().feed(hash);
    }
}

impl<T: StableKey + ?Sized> StableKey for &T {
    fn feed(&self, hash: &mut StableHasher) {
        T::feed(self, hash);
    }
}

impl<A: StableKey, B: StableKey> StableKey for (A, B) {
    fn feed(&self, hash: &mut StableHasher) {
        self.0.feed(hash);
        self.1.feed(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_first_release() {
        // Ids in switches depend on these: never change them.
        assert_eq!(StableHasher::default().finish(), 0xf52a_15e9_a9b5_e89b);
        assert_eq!("default/web".stable_hash(), 0x8d4d_088a_6f9d_7d57);
        assert_eq!(("default".to_owned(), 7u32).stable_hash(), 0xcb59_15fa_b880_b531);
    }

    #[test]
    fn the_boundary_between_strings_changes_the_hash() {
        assert_ne!(("ab", "c").stable_hash(), ("a", "bc").stable_hash());
    }
}
