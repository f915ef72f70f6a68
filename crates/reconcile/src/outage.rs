//! Which failures are worth a log line.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, info, warn};
use types::backoff::Backoff;

/// Different failures that are logged in one outage: a failure with a number in it could be a new one each time.
const MAX_LOGGED: usize = 16;

/// The attempts since the last success.
#[derive(Debug)]
pub(crate) struct Outage {
    backoff: Backoff,
    began: Option<Instant>,
    logged: BTreeSet<String>,
}

impl Outage {
    pub(crate) fn new((min, max): (Duration, Duration)) -> Self {
        Self { backoff: Backoff::new(min, max), began: None, logged: BTreeSet::new() }
    }

    /// Logs failures, each as a warning once per outage, and returns the delay before the next attempt.
    pub(crate) fn failed(&mut self, what: &str, failures: &[String]) -> Duration {
        self.began.get_or_insert_with(Instant::now);
        let delay = self.backoff.next_delay();
        for failure in failures {
            if self.logged.len() < MAX_LOGGED && self.logged.insert(failure.clone()) {
                warn!(error = failure, "cannot reconcile {what}; retrying");
            } else {
                debug!(
                    error = failure,
                    attempts = self.backoff.attempts(),
                    ?delay,
                    "cannot reconcile {what}; retrying"
                );
            }
        }
        delay
    }

    /// Ends an outage, if there is one, and logs it.
    pub(crate) fn succeeded(&mut self, what: &str) {
        if let Some(began) = self.began.take() {
            info!(attempts = self.backoff.attempts(), outage = ?began.elapsed(), "{what} reconciled after failures");
            self.backoff.reset();
            self.logged.clear();
        }
    }
}
