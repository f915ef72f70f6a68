//! Waiting for a condition: the only place where a test may sleep.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Long enough for anything that works, even on a loaded machine; only what is broken takes this long.
pub const PATIENCE: Duration = Duration::from_secs(30);

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Asks `condition` again and again until it gives a value, which is returned; fails after `timeout`, naming `what`.
///
/// The condition is asked at least once, and once more when the time is up. A condition that finds out that it can never
/// hold gives `Some(Err(..))`, and the caller writes `until(..)??`.
pub fn until<T>(what: impl Display, timeout: Duration, mut condition: impl FnMut() -> Option<T>) -> Result<T> {
    let start = Instant::now();
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

/// Does nothing for this long: for a load with a rhythm, not to wait for anything. Parking would not do: a thread that was
/// woken before goes on at once.
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
        let value = until("the third time", PATIENCE, || {
            asked += 1;
            (asked == 3).then_some("done")
        });
        assert_eq!(value.unwrap(), "done");
        assert_eq!(asked, 3);
    }

    #[test]
    fn giving_up_says_what_was_waited_for_and_how_long() {
        let error = until("a miracle", Duration::from_millis(20), || None::<()>).unwrap_err();
        let text = error.to_string();
        // How long it was depends on who else needs the processor.
        let waited = text.strip_prefix("waited ").and_then(|rest| rest.strip_suffix(" s in vain for a miracle"));
        assert!(waited.is_some_and(|seconds| seconds.parse::<f64>().is_ok()), "{text}");
    }

    #[test]
    fn a_thread_that_was_woken_before_rests_all_the_same() {
        let (start, time) = (Instant::now(), Duration::from_millis(20));
        thread::current().unpark();
        rest(time);
        assert!(start.elapsed() >= time);
    }

    #[test]
    fn without_any_time_the_condition_is_still_asked_once() {
        assert_eq!(until("now", Duration::ZERO, || Some(1)).unwrap(), 1);
    }
}
