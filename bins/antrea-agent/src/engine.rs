//! Owns the brain: passes events to it, and reconciles the switch with the desired flows and groups.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use delta::{Failure, Message, Rejected};
use node::{Brain, Event, Owner};
use openflow::flow::FlowRequest;
use ovs::backoff::Backoff;
use ovs::switch::{BundleError, Events, RequestError, Switch};
use policy::{OutOfStep, Waiting};
use telemetry::metrics::Histogram;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, info, warn};
use types::control::Batch;
use types::network_policy::NetworkPolicy;

/// Capacity of the command queue; senders wait when it is full.
const QUEUE: usize = 1024;
/// Maximum number of commands that are handled before the next commit.
const BATCH: usize = 4096;

/// Commands for the engine's task.
enum Command {
    Event(Event),
    /// Reply when all flows and groups of an owner are in the switch.
    Installed(Owner, oneshot::Sender<Result<(), String>>),
    /// Enforce a batch. One from disk (`restored`) is ignored if the brain already has policies.
    Enforce {
        batch: Batch,
        restored: bool,
        sender: oneshot::Sender<Result<(), OutOfStep>>,
    },
    /// Without a controller: evaluate the policies of a waiting Pod's namespace.
    EvaluateLocally(Waiting, Vec<NetworkPolicy>),
    /// Run a closure on the brain.
    Query(Box<dyn FnOnce(&Brain) + Send>),
}

/// State of the engine that other tasks wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Progress {
    /// Version of the desired host state.
    pub(crate) host_version: u64,
    /// Every source has finished its initial sync, and the switch has been listed: Pods can be attached.
    pub(crate) ready: bool,
    /// Version of the policies whose flows are in the switch.
    pub(crate) enforced: u64,
    /// Number of Pods that wait for their policies.
    pub(crate) held: usize,
    /// Versions of the desired state of Services.
    pub(crate) services: node::Versions,
}

/// Changes of the switch since the start.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Flows and groups that were added or modified.
    pub(crate) added: AtomicU64,
    /// Flows and groups that were deleted.
    pub(crate) deleted: AtomicU64,
    /// Bundles with a flow or group that the switch rejected.
    pub(crate) rejected: AtomicU64,
    /// Duration of bundle commits.
    pub(crate) took: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        let took = Histogram::new(&[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000]);
        Self { added: zero(), deleted: zero(), rejected: zero(), took }
    }
}

/// Handle to the engine's task.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    commands: mpsc::Sender<Command>,
    progress: watch::Receiver<Progress>,
}

/// The engine's task has ended, since the agent is stopping.
#[derive(Debug, thiserror::Error)]
#[error("the agent is stopping")]
pub(crate) struct Stopped;

impl Engine {
    pub(crate) fn start(brain: Brain, switch: Switch, events: Events, counters: Arc<Counters>) -> Self {
        let (commands, queue) = mpsc::channel(QUEUE);
        let (sender, progress) = watch::channel(Progress::default());
        let worker = Worker {
            brain,
            switch,
            queue,
            progress: sender,
            counters,
            changed: false,
            logged: BTreeSet::new(),
            waiters: Vec::new(),
            enforced: 0,
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(5)),
            retry_at: None,
        };
        tokio::spawn(worker.run(events));
        Self { commands, progress }
    }

    /// Queues an event for the brain.
    pub(crate) async fn send(&self, event: Event) {
        // Fails only when the agent is stopping.
        let _ = self.commands.send(Command::Event(event)).await;
    }

    /// Enforces a batch from the controller.
    pub(crate) async fn enforce(&self, batch: Batch) -> Result<(), OutOfStep> {
        self.send_policies(batch, false).await
    }

    /// Enforces a snapshot from disk, unless the controller has already sent a batch.
    pub(crate) async fn enforce_restored(&self, batch: Batch) -> Result<(), OutOfStep> {
        self.send_policies(batch, true).await
    }

    async fn send_policies(&self, batch: Batch, restored: bool) -> Result<(), OutOfStep> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.commands.send(Command::Enforce { batch, restored, sender }).await;
        // Fails only when the agent is stopping.
        receiver.await.unwrap_or(Ok(()))
    }

    /// Without a controller: evaluates the policies of a waiting Pod's namespace.
    pub(crate) async fn evaluate_locally(&self, pod: Waiting, policies: Vec<NetworkPolicy>) {
        let _ = self.commands.send(Command::EvaluateLocally(pod, policies)).await;
    }

    /// Waits until all flows and groups of an owner are in the switch; fails if the switch rejected one.
    pub(crate) async fn installed(&self, owner: Owner) -> Result<(), String> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.commands.send(Command::Installed(owner, sender)).await;
        receiver.await.unwrap_or_else(|_| Err(Stopped.to_string()))
    }

    /// Runs a closure on the brain, and returns its result.
    pub(crate) async fn query<R: Send + 'static>(
        &self,
        query: impl FnOnce(&Brain) -> R + Send + 'static,
    ) -> Result<R, Stopped> {
        let (sender, receiver) = oneshot::channel();
        let query = Box::new(move |brain: &Brain| _ = sender.send(query(brain)));
        let _ = self.commands.send(Command::Query(query)).await;
        receiver.await.map_err(|_| Stopped)
    }

    /// The engine's state, to be read or waited for.
    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }
}

struct Worker {
    brain: Brain,
    switch: Switch,
    queue: mpsc::Receiver<Command>,
    progress: watch::Sender<Progress>,
    counters: Arc<Counters>,
    /// Whether the brain has changed since its problems were last logged.
    changed: bool,
    /// The problems that have been logged.
    logged: BTreeSet<String>,
    /// Callers that wait in [`Engine::installed`].
    waiters: Vec<(Owner, oneshot::Sender<Result<(), String>>)>,
    /// Version of the policies whose flows are in the switch.
    enforced: u64,
    backoff: Backoff,
    retry_at: Option<Instant>,
}

impl Worker {
    async fn run(mut self, mut events: Events) {
        let mut connected = false;
        loop {
            if connected && self.retry_at.is_none_or(|at| at <= Instant::now()) {
                self.retry_at = None;
                self.converge().await;
            }
            self.report();
            tokio::select! {
                command = self.queue.recv() => {
                    let Some(command) = command else { return };
                    let more = std::iter::from_fn(|| self.queue.try_recv().ok()).take(BATCH - 1);
                    let commands = std::iter::once(command).chain(more).collect();
                    self.commands(commands);
                    if std::mem::take(&mut self.changed) {
                        self.log_problems();
                    }
                }
                event = events.next() => match event {
                    Some(ovs::switch::Event::Up { epoch, .. }) => {
                        info!(epoch, "connected to the switch");
                        connected = true;
                        self.resync_after_reconnect();
                    }
                    Some(ovs::switch::Event::Down { reason }) => {
                        warn!(reason, "lost the connection to the switch; reconnecting");
                        connected = false;
                    }
                    // The agent sends no request whose reply arrives as an event.
                    Some(ovs::switch::Event::Message(_) | ovs::switch::Event::Missed) => {}
                    None => return,
                },
                () = sleep_until(self.retry_at) => {}
            }
        }
    }

    /// Carries out commands that arrived together. Events are handled in groups, up to the next command of another kind.
    fn commands(&mut self, commands: Vec<Command>) {
        let mut events = Vec::new();
        for command in commands {
            if !matches!(command, Command::Event(_)) {
                self.brain.handle_all(events.drain(..));
            }
            self.changed |= !matches!(command, Command::Installed(..) | Command::Query(_));
            match command {
                Command::Event(event) => events.push(event),
                Command::Installed(owner, sender) => self.waiters.push((owner, sender)),
                Command::Enforce { batch, restored, sender } => {
                    let known = self.brain.policy_version() > 0;
                    let outcome = if restored && known { Ok(()) } else { self.brain.enforce(&batch) };
                    let _ = sender.send(outcome);
                }
                Command::EvaluateLocally(pod, policies) => self.brain.presume(pod, &policies),
                Command::Query(query) => query(&self.brain),
            }
        }
        self.brain.handle_all(events);
    }

    /// After a reconnect the switch may be another one, with any flows: list it again.
    fn resync_after_reconnect(&mut self) {
        self.brain.switch().begin_resync();
        self.brain.switch().retry();
        self.backoff.reset();
        self.retry_at = None;
    }

    /// Lists the switch if a resync is due, and commits the difference to the desired state.
    async fn converge(&mut self) {
        if self.brain.switch().needs_resync() {
            self.brain.switch().begin_resync();
            if let Err(error) = self.list().await {
                return self.try_later("list flows and groups", &error);
            }
            self.brain.end_resync();
        }
        while let Some(patch) = self.brain.switch().patch() {
            let started = Instant::now();
            let state = self.brain.switch();
            let is_delete = |message: &Message<'_>| matches!(message, Message::FlowDelete(_) | Message::GroupDelete(_));
            let deleted = state.messages(&patch).filter(is_delete).count() as u64;
            let added = patch.len() as u64 - deleted;
            let result = self.switch.commit(state.messages(&patch)).await;
            let took = started.elapsed();
            match result {
                Ok(()) => {
                    self.brain.switch().committed(patch);
                    self.counters.added.fetch_add(added, Ordering::Relaxed);
                    self.counters.deleted.fetch_add(deleted, Ordering::Relaxed);
                    self.counters.took.observe(took);
                    debug!(added, deleted, ?took, "committed a bundle");
                    self.backoff.reset();
                }
                Err(error) => {
                    let failure = failure(&error);
                    let rejected = matches!(failure, Failure::Rejected(_));
                    self.brain.switch().failed(patch, failure);
                    if !rejected {
                        return self.try_later("commit a bundle", &error);
                    }
                    self.counters.rejected.fetch_add(1, Ordering::Relaxed);
                    warn!(%error, "the switch rejected a flow or group; continuing without it");
                }
            }
        }
        self.enforced = self.brain.policy_version();
        self.answer();
    }

    async fn list(&mut self) -> Result<(), RequestError> {
        let (mut groups, mut flows) = (0u64, 0u64);
        let mut dump = self.switch.dump_groups().await?;
        while let Some(group) = dump.next().await? {
            groups += 1;
            let _ = self.brain.switch().observe_group(group);
        }
        let mut dump = self.switch.dump_flows(FlowRequest::default()).await?;
        while let Some(stats) = dump.next().await? {
            flows += 1;
            let _ = self.brain.observe_flow(&stats.flow);
        }
        info!(groups, flows, "listed flows and groups of the switch");
        Ok(())
    }

    fn try_later(&mut self, what: &str, error: &dyn std::fmt::Display) {
        let delay = self.backoff.next_delay();
        if self.backoff.is_news() {
            warn!(%error, ?delay, "cannot {what}; retrying");
        } else {
            debug!(%error, ?delay, "cannot {what}; retrying");
        }
        self.retry_at = Some(Instant::now() + delay);
    }

    /// Answers the callers of [`Engine::installed`] whose flows are in the switch.
    fn answer(&mut self) {
        if self.waiters.is_empty() {
            return;
        }
        let rejections = self.brain.switch().rejections();
        for (owner, sender) in std::mem::take(&mut self.waiters) {
            if self.brain.is_held(&owner) {
                if !sender.is_closed() {
                    self.waiters.push((owner, sender));
                }
                continue;
            }
            let rejected = rejections.iter().find(|rejection| rejection.owners.contains(&owner));
            // Fails if the caller no longer waits.
            let _ = sender.send(match rejected {
                Some(rejection) => Err(format!("the switch rejected {}: {}", rejection.subject, rejection.reason)),
                None => Ok(()),
            });
        }
    }

    /// Logs each new problem once.
    fn log_problems(&mut self) {
        let problems: BTreeSet<String> = self.brain.problems().iter().map(ToString::to_string).collect();
        for problem in problems.difference(&self.logged) {
            warn!("{problem}");
        }
        self.logged = problems;
    }

    fn report(&mut self) {
        let host_version = self.brain.host_version();
        let ready = self.brain.is_synced() && !self.brain.switch().needs_resync();
        let (enforced, held) = (self.enforced, self.brain.held().count());
        let services = self.brain.service_versions();
        self.progress.send_if_modified(|progress| {
            let next = Progress { host_version, ready, enforced, held, services };
            let changed = *progress != next;
            *progress = next;
            changed
        });
    }
}

fn failure(error: &BundleError) -> Failure {
    match error {
        BundleError::Disconnected(_) | BundleError::Refused(_) => Failure::NotCommitted,
        BundleError::OutcomeUnknown(_) => Failure::Unknown,
        BundleError::Rejected { index, error } => {
            Failure::Rejected(vec![Rejected { index: *index, reason: error.to_string() }])
        }
        BundleError::TooLong { index, error } => {
            Failure::Rejected(vec![Rejected { index: *index, reason: error.to_string() }])
        }
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
