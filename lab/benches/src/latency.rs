//! A histogram of latencies.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Buckets for each power of two: a time is known to 2 percent.
const FINE: u64 = 64;
/// Longer times count as 2^32 µs, more than an hour.
const POWERS: usize = 32;

/// Counts times by their length, from several threads at once.
#[derive(Debug)]
pub struct Latencies {
    buckets: Vec<AtomicU64>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { buckets: (0..POWERS * 64).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Latencies {
    /// Adds a time to its bucket.
    pub fn add(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        let power = u64::from(micros.ilog2());
        // The bits after the leading one determine the bucket within the power of two.
        let part = (u128::from(micros - (1 << power)) * u128::from(FINE)) >> power;
        let index = power * FINE + u64::try_from(part).unwrap_or(0);
        let index = usize::try_from(index).unwrap_or(usize::MAX).min(self.buckets.len() - 1);
        if let Some(bucket) = self.buckets.get(index) {
            bucket.fetch_add(1, Relaxed);
        }
    }

    /// Number of times that were added.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// The time in seconds that a part (0.5, 0.99) of all times do not exceed; zero if there are none.
    pub fn quantile(&self, part: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let wanted = self.count() as f64 * part;
        let mut seen = 0.0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
            let (count, index) = (bucket.load(Relaxed) as f64, index as f64);
            seen += count;
            if count > 0.0 && seen >= wanted {
                let power = (index / 64.0).floor();
                return (1.0 + index / 64.0 - power) * power.exp2() / 1e6;
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_added_times() {
        let latencies = Latencies::default();
        assert!(latencies.quantile(0.5).abs() < 1e-9);
        for millis in 1..=1000 {
            latencies.add(Duration::from_millis(millis));
        }
        assert_eq!(latencies.count(), 1000);
        assert!((latencies.quantile(0.5) - 0.5).abs() < 0.01, "{}", latencies.quantile(0.5));
        assert!((latencies.quantile(0.99) - 0.99).abs() < 0.02, "{}", latencies.quantile(0.99));
        latencies.add(Duration::MAX);
        assert!(latencies.quantile(1.0) > 4000.0);
    }
}
