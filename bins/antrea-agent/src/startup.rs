//! Progress of the start: what the agent waits for, in its log and on `/readyz`. Probes are answered from the first moment on,
//! so that kubelet does not restart an agent that waits for Open vSwitch or for the Kubernetes API.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telemetry::server::{Answer, Answers};
use tokio::sync::watch;
use tracing::warn;

use crate::rest::Rest;

/// Log what the agent waits for after this time.
pub(crate) const WARN_AFTER: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
enum State {
    Waiting(String),
    Started(Arc<Rest>),
}

/// Sets the state that [`Probes`] reports.
#[derive(Debug)]
pub(crate) struct Startup(watch::Sender<State>);

/// The agent's API: before the end of the start, only probes.
#[derive(Debug)]
pub(crate) struct Probes(watch::Receiver<State>);

impl Startup {
    pub(crate) fn new() -> (Self, Probes) {
        let (sender, receiver) = watch::channel(State::Waiting("the start of the agent".to_owned()));
        (Self(sender), Probes(receiver))
    }

    /// Reports `what` until `work` is done, and logs it if that takes longer than [`WARN_AFTER`].
    pub(crate) async fn waiting_for<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        self.0.send_replace(State::Waiting(what.to_owned()));
        waiting_for(what, work).await
    }

    /// From now on, `rest` answers.
    pub(crate) fn finish(self, rest: Rest) {
        self.0.send_replace(State::Started(Arc::new(rest)));
    }
}

impl Answers for Probes {
    async fn get(&self, path: &str, query: &str) -> Option<Answer> {
        let state = self.0.borrow().clone();
        match (state, path) {
            (State::Started(rest), _) => rest.get(path, query).await,
            (State::Waiting(_), "/healthz" | "/livez") => Some(Answer::health(Ok::<(), &str>(()))),
            (State::Waiting(what), "/readyz") => Some(Answer::health(Err::<(), _>(format!("waiting for {what}")))),
            (State::Waiting(_), _) => None,
        }
    }
}

/// Logs `what` if `work` takes longer than [`WARN_AFTER`].
pub(crate) async fn waiting_for<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    let warn_at = Instant::now() + WARN_AFTER;
    tokio::select! {
        done = &mut work => return done,
        () = tokio::time::sleep_until(warn_at.into()) => warn!("waiting for {what}"),
    }
    work.await
}
