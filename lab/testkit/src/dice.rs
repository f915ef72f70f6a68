//! Random choices that a seed repeats.

/// Numbers that follow from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number of the sequence.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
            mixed = (mixed ^ mixed >> shift).wrapping_mul(factor);
        }
        mixed ^ mixed >> 31
    }

    /// A number less than this one, which counts as 1 at least.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.number() % limit).unwrap_or_default()
    }

    /// The next number, as a byte.
    pub fn byte(&mut self) -> u8 {
        self.number().to_be_bytes()[0]
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of these; there has to be one.
    pub fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// Some of them: none, all, or anything between.
    pub fn some<T: Clone>(&mut self, of: &[T], percent: usize) -> Vec<T> {
        of.iter().filter(|_| self.percent(percent)).cloned().collect()
    }
}
