//! What probes and metrics read beside the queue: they must not wait for the brain.

use std::time::Duration;

use policy::{Event, Stats};
use tokio::time::Instant;

/// A brain that works on one thing for this long is taken for stuck, and the replica is restarted.
const STUCK: Duration = Duration::from_secs(60);

/// A copy of numbers of the engine's state, and what the engine does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Overview {
    pub(crate) stats: Stats,
    /// Whether all kinds have been listed.
    pub(crate) is_synced: bool,
    /// Number of Nodes whose agents are connected.
    pub(crate) agents: usize,
    /// `None` while the engine waits for input.
    pub(crate) activity: Option<Activity>,
}

/// What the engine works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Activity {
    pub(crate) what: &'static str,
    pub(crate) since: Instant,
}

impl Activity {
    pub(crate) fn start(what: &'static str) -> Self {
        Self { what, since: Instant::now() }
    }
}

/// Why a read has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("the policy engine has stopped")]
    Stopped,
    #[error("the policy engine is busy with {what}, for {} ms so far; try again later", .lasts.as_millis())]
    Busy { what: &'static str, lasts: Duration },
}

impl Overview {
    /// The error of a read that has waited too long.
    pub(super) fn busy(&self, now: Instant) -> ReadError {
        match self.activity {
            Some(Activity { what, since }) => ReadError::Busy { what, lasts: now.duration_since(since) },
            None => ReadError::Busy { what: "earlier requests", lasts: Duration::ZERO },
        }
    }

    /// Fails if the engine seems to be stuck.
    pub(crate) fn check(&self, now: Instant) -> Result<(), ReadError> {
        match self.activity {
            Some(activity) if now.duration_since(activity.since) >= STUCK => Err(self.busy(now)),
            _ => Ok(()),
        }
    }
}

/// Names an event for [`Activity`].
pub(super) fn name(event: &Event) -> &'static str {
    match event {
        Event::Policy(_) | Event::PolicyGone(_) => "a NetworkPolicy event",
        Event::Pod(_) | Event::PodGone(_) => "a Pod event",
        Event::Namespace(_) | Event::NamespaceGone(_) => "a Namespace event",
        Event::AntreaPolicy(_) | Event::AntreaPolicyGone(_) => "an event of an Antrea policy",
        Event::Tier(_) | Event::TierGone(_) => "a Tier event",
        Event::Group(_) | Event::GroupGone(_) => "a Group event",
        Event::ExternalEntity(_) | Event::ExternalEntityGone(_) => "an ExternalEntity event",
        Event::Watched(_) => "the start of a watch",
        Event::Synced(_) => "the end of an initial list",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_works_on_one_thing_for_a_minute_is_not_alive() {
        let mut overview = Overview::default();
        assert_eq!(overview.check(Instant::now() + STUCK), Ok(()), "it waits for input");
        overview.activity = Some(Activity::start("a Pod event"));
        assert_eq!(overview.check(Instant::now() + STUCK / 2), Ok(()));
        let stuck = ReadError::Busy { what: "a Pod event", lasts: STUCK };
        assert_eq!(overview.check(Instant::now() + STUCK), Err(stuck));
    }
}
