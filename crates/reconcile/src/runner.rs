//! Decides when passes run, and what their results mean.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use crate::outage::Outage;
use crate::{Ended, Pass, Settings, Source, Status, Target};

/// Reconciles until the source ends.
pub async fn run<T, S>(mut target: T, mut source: S, settings: Settings)
where
    T: Target,
    S: Source<Desired = T::Desired>,
{
    // There is nothing to compare with before the first version.
    if source.changed().await.is_err() {
        return;
    }
    let mut record = Record { outage: Outage::new(settings.backoff), status: Status::default(), settings };
    loop {
        let Ok((version, desired)) = source.read().await else { return };
        let pass = target.reconcile(desired).await;
        let next = record.passed(target.name(), version, &pass);
        target.report(&record.status);
        if wait(&mut target, &mut source, next, settings.collect).await.is_err() {
            return;
        }
    }
}

/// The time of the next pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Next {
    not_before: Instant,
    /// If nothing changes before.
    due: Option<Instant>,
}

/// What the passes so far mean.
#[derive(Debug)]
struct Record {
    settings: Settings,
    outage: Outage,
    status: Status,
}

impl Record {
    fn passed<C: std::fmt::Debug, F: std::fmt::Display>(
        &mut self,
        name: &str,
        version: u64,
        pass: &Pass<C, F>,
    ) -> Next {
        self.status.passes += 1;
        self.log_changes(name, version, pass);
        let failures: Vec<String> = pass.failures.iter().map(|failure| format!("{failure:#}")).collect();
        self.status.failure = failures.first().cloned();
        let (min_delay, period) = (self.settings.backoff.0, self.settings.period);
        let delay = if failures.is_empty() {
            self.outage.succeeded(name);
            if pass.incomplete {
                Some(pass.again.unwrap_or(min_delay))
            } else {
                self.status.version = Some(version);
                earliest(pass.again, period)
            }
        } else {
            Some(self.outage.failed(name, &failures))
        };
        let now = Instant::now();
        Next { not_before: now + pass.pause, due: delay.map(|delay| now + delay.max(pass.pause)) }
    }

    fn log_changes<C: std::fmt::Debug, F>(&mut self, name: &str, version: u64, pass: &Pass<C, F>) {
        let drifted = self.status.version == Some(version);
        if drifted {
            self.status.drift_repaired += pass.changes.len() as u64;
        }
        for change in &pass.changes {
            if drifted {
                warn!(?change, "{name} drifted; repaired");
            } else {
                debug!(?change, "applied a {name} change");
            }
        }
        for change in &pass.scheduled {
            debug!(?change, "applied a {name} change");
        }
        let expected = pass.scheduled.len() + if drifted { 0 } else { pass.changes.len() };
        if expected > 0 {
            info!(changes = expected, version, "applied {name} changes");
        }
    }
}

fn earliest<M: Ord>(one: Option<M>, other: Option<M>) -> Option<M> {
    one.into_iter().chain(other).min()
}

/// Waits until a pass is due: for a new version at once, for changes of the actual state after they were collected.
async fn wait<T, S>(target: &mut T, source: &mut S, next: Next, collect: Duration) -> Result<(), Ended>
where
    T: Target,
    S: Source<Desired = T::Desired>,
{
    let Next { not_before, mut due } = next;
    let mut has_new_version = false;
    loop {
        tokio::select! {
            // The version is read by the pass, so the source would report it again until then.
            changed = source.changed(), if !has_new_version => {
                changed?;
                has_new_version = true;
                due = earliest(due, Some(Instant::now().max(not_before)));
            }
            () = target.changed() => due = earliest(due, Some((Instant::now() + collect).max(not_before))),
            () = at(due) => return Ok(()),
        }
    }
}

async fn at(due: Option<Instant>) {
    match due {
        // A timer has a resolution of a millisecond, also for a moment that has passed.
        Some(due) if due <= Instant::now() => {}
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
