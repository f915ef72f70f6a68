//! Waiting for a condition: the only place where a test may sleep.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Default timeout: long enough for any working operation, even on a loaded machine.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Environment variable with a factor for all timeouts, for machines that are slow by design, such as an emulated one.
const FACTOR: &str = "TESTKIT_TIMEOUT_FACTOR";

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Polls `condition` until it returns a value, which is returned; fails after `timeout`, naming `what`.
///
/// The condition is polled at least once, and once more after the timeout. A condition that can never become true
/// returns `Some(Err(..))`, and the caller writes `until(..)??`.
pub fn until<T>(what: impl Display, timeout: Duration, mut condition: impl FnMut() -> Option<T>) -> Result<T> {
    let (start, timeout) = (Instant::now(), scaled(timeout));
    let mut pause = FIRST_PAUSE;
    loop {
        let last = start.elapsed() >= timeout;
        if let Some(value) = condition() {
            return Ok(value);
        }
        if last {
            bail!("waited {:.1} s in vain for {what}", start.elapsed().as_secs_f64());
        }
        rest(pause.min(timeout.saturating_sub(start.elapsed())));
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}

/// The timeout on this machine: longer than `usual` where the environment variable `TESTKIT_TIMEOUT_FACTOR` is set.
pub fn scaled(usual: Duration) -> Duration {
    usual * std::env::var(FACTOR).ok().and_then(|factor| factor.parse().ok()).unwrap_or(1)
}

/// Sleeps for this long: for periodic load, not to wait for a condition. Parking is not enough: a thread that was unparked
/// before returns at once.
pub fn rest(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "this is the one place where tests sleep")]
    thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_returned_as_soon_as_there_is_one() {
        let mut asked = 0;
        let value = until("the third time", TIMEOUT, || {
            asked += 1;
            (asked == 3).then_some("done")
        });
        assert_eq!(value.unwrap(), "done");
        assert_eq!(asked, 3);
    }

    #[test]
    fn a_timeout_names_the_condition_and_the_duration() {
        let error = until("a miracle", Duration::from_millis(20), || None::<()>).unwrap_err();
        let text = error.to_string();
        // The duration depends on the load of the machine.
        let waited = text.strip_prefix("waited ").and_then(|rest| rest.strip_suffix(" s in vain for a miracle"));
        assert!(waited.is_some_and(|seconds| seconds.parse::<f64>().is_ok()), "{text}");
    }

    #[test]
    fn a_thread_that_was_unparked_before_still_sleeps() {
        let (start, time) = (Instant::now(), Duration::from_millis(20));
        thread::current().unpark();
        rest(time);
        assert!(start.elapsed() >= time);
    }

    #[test]
    fn with_a_timeout_of_zero_the_condition_is_polled_once() {
        assert_eq!(until("now", Duration::ZERO, || Some(1)).unwrap(), 1);
    }
}
