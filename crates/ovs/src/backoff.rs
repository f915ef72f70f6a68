//! Exponential backoff between connection attempts.

use std::time::Duration;

/// Exponential backoff: delays double from `min` to `max`, each with a jitter of up to a quarter less.
///
/// The jitter is a hash of the seed and the number of the attempt, so the same backoff gives the same delays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    seed: u64,
    attempt: u32,
}

impl Backoff {
    /// The first delay is about `min`; none is longer than `max`.
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, seed: 0, attempt: 0 }
    }

    /// The same with another jitter, so that many clients of one server do not reconnect at once.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.min.saturating_mul(2u32.saturating_pow(self.attempt)).min(self.max);
        let jitter = mix(self.seed ^ u64::from(self.attempt)) % 256;
        self.attempt = self.attempt.saturating_add(1);
        // At most 255/1024 off.
        delay - delay / 1024 * u32::try_from(jitter).unwrap_or_default()
    }

    /// The number of attempts since the start or the last reset.
    pub fn attempts(&self) -> u32 {
        self.attempt
    }

    /// Whether the last attempt is worth a log line: the first, second, fourth, eighth and so on are.
    pub fn is_news(&self) -> bool {
        self.attempt.is_power_of_two()
    }

    /// Starts again from `min`, after a successful attempt.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

/// The finaliser of splitmix64: every bit of the input changes about half of the result.
fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_and_start_again_after_a_reset() {
        let (min, max) = (Duration::from_millis(100), Duration::from_secs(5));
        let mut backoff = Backoff::new(min, max);
        let delays: Vec<_> = (0..10).map(|_| backoff.next_delay()).collect();
        for (attempt, delay) in delays.iter().enumerate() {
            let full = max.min(min * (1 << attempt));
            assert!(*delay <= full && *delay >= full * 3 / 4, "{attempt}: {delay:?}");
        }
        backoff.reset();
        assert_eq!(backoff.next_delay(), delays[0]);
        assert_eq!(backoff.attempts(), 1);
    }

    #[test]
    fn seeds_give_different_delays() {
        let first = |seed| Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).seeded(seed).next_delay();
        assert!((1..20).any(|seed| first(seed) != first(0)));
    }

    proptest! {
        #[test]
        fn no_delay_is_longer_than_the_maximum(min in 0..100_000u64, max in 0..100_000u64, seed: u64, attempts in 0..80) {
            let mut backoff = Backoff::new(Duration::from_millis(min), Duration::from_millis(max)).seeded(seed);
            for _ in 0..attempts {
                prop_assert!(backoff.next_delay() <= Duration::from_millis(max));
            }
        }
    }
}
