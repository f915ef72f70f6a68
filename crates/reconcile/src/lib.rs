//! The loop of every reconciler: observe, compare, apply, back off, report.
//!
//! *Role.* [`run`] makes the actual state of a [`Target`] equal to the desired state of a [`Source`]: after each new version of
//! the desired state, after changes that the target notices, and after a time. It logs, counts drift and reports a [`Status`],
//! the same way for all reconcilers. [`retry`] is for something that has to succeed once.
//!
//! *Invariants.* Only one pass runs at a time. The desired state is read when a pass begins, together with its version. A
//! version is reported as applied only after a pass without failures. Changes in a pass for a version that was already applied
//! are drift: counted, and logged as a warning. A failure is retried with a growing delay, without limit; it is logged as a
//! warning once per outage, and so is the recovery. Nothing is lost if a future of [`run`] is dropped between passes.
//!
//! *Not here.* What the actual state is, and how it is compared and changed: that is the target, in a program.

mod outage;
mod retry;
mod runner;
mod source;

pub use retry::retry;
pub use runner::run;
pub use source::{Ended, Latest, Source};

use std::fmt;
use std::time::Duration;

/// Something with an actual state that is made equal to a desired state.
pub trait Target: Send {
    /// What the actual state should be.
    type Desired: Send;
    /// One applied change, for the log.
    type Change: fmt::Debug + Send;
    /// Why a part of the desired state could not be applied: the object and, if possible, the fix.
    type Failure: fmt::Display + Send;

    /// What is reconciled, such as `host network`, for the log.
    fn name(&self) -> &'static str;

    /// Observes the actual state and applies the difference. Runs to its end, unless the program stops.
    fn reconcile(&mut self, desired: Self::Desired) -> impl Future<Output = Pass<Self::Change, Self::Failure>> + Send;

    /// Completes when the actual state may have changed. The future is dropped when a pass is due for another reason, and must
    /// not lose a change then. Without it, drift is found after [`Settings::period`].
    fn changed(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Receives the status after each pass, to publish it.
    fn report(&mut self, status: &Status) {
        let _ = status;
    }
}

/// The result of one pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pass<C, F> {
    /// Applied changes; drift if this version of the desired state was already applied.
    pub changes: Vec<C>,
    /// Applied changes that were due by time, such as the rotation of a certificate: never drift.
    pub scheduled: Vec<C>,
    /// Parts that could not be applied, or the actual state that could not be read. A pass without any has succeeded.
    pub failures: Vec<F>,
    /// The version does not count as applied yet: there has to be another pass.
    pub incomplete: bool,
    /// Another pass is needed after this time, even if nothing changes.
    pub again: Option<Duration>,
    /// No pass may begin within this time, because passes are expensive.
    pub pause: Duration,
}

impl<C, F> Default for Pass<C, F> {
    fn default() -> Self {
        Self {
            changes: Vec::new(),
            scheduled: Vec::new(),
            failures: Vec::new(),
            incomplete: false,
            again: None,
            pause: Duration::ZERO,
        }
    }
}

impl<C, F> Pass<C, F> {
    /// A pass that has only failed.
    pub fn failed(failure: F) -> Self {
        Self { failures: vec![failure], ..Self::default() }
    }
}

impl<C, F> From<Result<Vec<C>, F>> for Pass<C, F> {
    fn from(outcome: Result<Vec<C>, F>) -> Self {
        match outcome {
            Ok(changes) => Self { changes, ..Self::default() },
            Err(failure) => Self::failed(failure),
        }
    }
}

/// Determines when passes run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Time between passes without any change, for drift that the target does not notice.
    pub period: Option<Duration>,
    /// How long changes of the actual state are collected before a pass. New versions of the desired state do not wait.
    pub collect: Duration,
    /// The first and the longest delay after failures.
    pub backoff: (Duration, Duration),
}

impl Settings {
    /// Passes for new versions only, with the usual backoff.
    pub const ON_CHANGE: Self = Self {
        period: None,
        collect: Duration::from_millis(50),
        backoff: (Duration::from_millis(200), Duration::from_secs(30)),
    };
}

/// The status of a reconciler.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// The version of the desired state that is applied; `None` before the first successful pass.
    pub version: Option<u64>,
    /// The first failure of the last pass.
    pub failure: Option<String>,
    /// Number of repaired differences that another program or an operator has caused.
    pub drift_repaired: u64,
    /// Number of passes since the start.
    pub passes: u64,
}
