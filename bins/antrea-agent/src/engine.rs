//! The one owner of the brain: takes events, and makes the switch hold what follows from them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use delta::{Failure, Message, Rejected};
use node::{Brain, Event, Owner};
use openflow::flow::FlowRequest;
use openflow::packet::PacketIn2;
use ovs::backoff::Backoff;
use ovs::switch::{BundleError, Events, RequestError, Switch};
use policy::OutOfStep;
use telemetry::metrics::Histogram;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, info, warn};
use types::control::Batch;
use types::network_policy::NetworkPolicy;
use types::pod::Pod;

/// How many commands wait; whoever has one more waits with it.
const QUEUE: usize = 1024;
/// How many events are taken before the switch is told.
const BATCH: usize = 4096;

/// What can be asked of the engine.
enum Command {
    /// Something happened.
    Event(Event),
    /// Tell when the switch holds all that an owner wants.
    Installed(Owner, oneshot::Sender<Result<(), String>>),
    /// The controller says this; if `first`, it counts only where nothing was said before.
    Enforce { batch: Batch, first: bool, sender: oneshot::Sender<Result<(), OutOfStep>> },
    /// While there is no controller: a Pod that waits for it, and the policies of its namespace.
    Presume(Box<Pod>, Vec<NetworkPolicy>),
    /// Look at the brain.
    Look(Box<dyn FnOnce(&Brain) + Send>),
}

/// How far the engine has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Progress {
    /// The version of what the host should hold.
    pub(crate) host_version: u64,
    /// Whether the switch holds what it should, and every source has been in sync: Pods can be attached.
    pub(crate) ready: bool,
    /// The version of policies that the switch enforces.
    pub(crate) enforced: u64,
    /// Pods that wait until the controller has seen them.
    pub(crate) held: usize,
    /// The versions of what is said of Services.
    pub(crate) services: node::Versions,
}

/// What the switch was told since the start.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Flows and groups that were added or replaced.
    pub(crate) added: AtomicU64,
    /// Flows and groups that were removed.
    pub(crate) deleted: AtomicU64,
    /// Flows and groups that it refused.
    pub(crate) refused: AtomicU64,
    /// How long a bundle took.
    pub(crate) took: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        let took = Histogram::new(&[1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000]);
        Self { added: zero(), deleted: zero(), refused: zero(), took }
    }
}

/// A handle to the engine.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    commands: mpsc::Sender<Command>,
    progress: watch::Receiver<Progress>,
}

/// The engine has ended, and with it the agent.
#[derive(Debug, thiserror::Error)]
#[error("the agent is stopping")]
pub(crate) struct Stopped;

impl Engine {
    /// Starts the engine. What the switch sends of packets goes to `packets`, as far as somebody takes them.
    pub(crate) fn start(
        brain: Brain,
        switch: Switch,
        events: Events,
        counters: Arc<Counters>,
        packets: mpsc::Sender<Box<PacketIn2>>,
    ) -> Self {
        let (commands, queue) = mpsc::channel(QUEUE);
        let (sender, progress) = watch::channel(Progress::default());
        let worker = Worker {
            brain,
            switch,
            queue,
            progress: sender,
            counters,
            packets,
            told: false,
            complained: BTreeSet::new(),
            waiters: Vec::new(),
            enforced: 0,
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(5)),
            retry_at: None,
        };
        tokio::spawn(worker.run(events));
        Self { commands, progress }
    }

    /// Something happened.
    pub(crate) async fn tell(&self, event: Event) {
        // Fails only when the agent stops, and then nobody has to know.
        let _ = self.commands.send(Command::Event(event)).await;
    }

    /// The controller says this of policies.
    pub(crate) async fn enforce(&self, batch: Batch) -> Result<(), OutOfStep> {
        self.send_policies(batch, false).await
    }

    /// This is what the controller said some time ago; it counts if nothing newer was said.
    pub(crate) async fn enforce_remembered(&self, batch: Batch) -> Result<(), OutOfStep> {
        self.send_policies(batch, true).await
    }

    async fn send_policies(&self, batch: Batch, first: bool) -> Result<(), OutOfStep> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.commands.send(Command::Enforce { batch, first, sender }).await;
        // Fails only when the agent stops.
        receiver.await.unwrap_or(Ok(()))
    }

    /// There is no controller: a Pod that waits for it is judged by the policies of its namespace.
    pub(crate) async fn presume(&self, pod: Pod, policies: Vec<NetworkPolicy>) {
        let _ = self.commands.send(Command::Presume(Box::new(pod), policies)).await;
    }

    /// Waits until the switch holds all that an owner wants; says why, if it refuses to.
    pub(crate) async fn installed(&self, owner: Owner) -> Result<(), String> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.commands.send(Command::Installed(owner, sender)).await;
        receiver.await.unwrap_or_else(|_| Err(Stopped.to_string()))
    }

    /// Looks at the brain.
    pub(crate) async fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&Brain) -> R + Send + 'static,
    ) -> Result<R, Stopped> {
        let (sender, receiver) = oneshot::channel();
        let look = Box::new(move |brain: &Brain| _ = sender.send(look(brain)));
        let _ = self.commands.send(Command::Look(look)).await;
        receiver.await.map_err(|_| Stopped)
    }

    /// How far it has got, to be looked at or waited for.
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
    packets: mpsc::Sender<Box<PacketIn2>>,
    /// Whether something has happened since the problems were last looked at.
    told: bool,
    /// The problems that the log has.
    complained: BTreeSet<String>,
    /// Who waits until the switch holds what an owner wants.
    waiters: Vec<(Owner, oneshot::Sender<Result<(), String>>)>,
    /// The version of policies that the switch enforces.
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
                    self.command(command);
                    for _ in 1..BATCH {
                        let Ok(command) = self.queue.try_recv() else { break };
                        self.command(command);
                    }
                    if std::mem::take(&mut self.told) {
                        self.complain();
                    }
                }
                event = events.next() => match event {
                    Some(ovs::switch::Event::Up { epoch, .. }) => {
                        info!(epoch, "connected to the switch");
                        connected = true;
                        self.restart();
                    }
                    Some(ovs::switch::Event::Down { reason }) => {
                        warn!(reason, "the connection to the switch is lost; trying again until it is back");
                        connected = false;
                    }
                    // One that nobody has time for is lost, as on any network; it will come again.
                    Some(ovs::switch::Event::Message(openflow::message::Message::PacketIn2(packet))) => {
                        let _ = self.packets.try_send(packet);
                    }
                    // Nothing is asked of the switch that it would answer later.
                    Some(ovs::switch::Event::Message(_) | ovs::switch::Event::Missed) => {}
                    None => return,
                },
                () = sleep_until(self.retry_at) => {}
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Event(event) => {
                self.told = true;
                self.brain.handle(event);
            }
            Command::Installed(owner, sender) => self.waiters.push((owner, sender)),
            Command::Enforce { batch, first, sender } => {
                self.told = true;
                let known = self.brain.policy_version() > 0;
                let outcome = if first && known { Ok(()) } else { self.brain.enforce(&batch) };
                let _ = sender.send(outcome);
            }
            Command::Presume(pod, policies) => {
                self.told = true;
                self.brain.presume(*pod, &policies);
            }
            Command::Look(look) => look(&self.brain),
        }
    }

    /// The switch may be another one, and hold anything.
    fn restart(&mut self) {
        self.brain.switch().begin_resync();
        self.brain.switch().retry();
        self.backoff.reset();
        self.retry_at = None;
    }

    /// Lists the switch if that is due, and sends what is missing.
    async fn converge(&mut self) {
        if self.brain.switch().needs_resync() {
            self.brain.switch().begin_resync();
            if let Err(error) = self.list().await {
                return self.try_later("list the switch", &error);
            }
            self.brain.end_resync();
        }
        while let Some(patch) = self.brain.switch().patch() {
            let started = Instant::now();
            let state = self.brain.switch();
            let is_delete = |message: &Message<'_>| matches!(message, Message::FlowDelete(_) | Message::GroupDelete(_));
            let deleted = state.messages(&patch, patch.bundle()).filter(is_delete).count() as u64;
            let added = patch.len() as u64 - deleted;
            // There are no meters, so the bundle is all of it.
            let result = self.switch.commit(state.messages(&patch, patch.bundle())).await;
            let took = started.elapsed();
            match result {
                Ok(()) => {
                    self.brain.switch().committed(patch);
                    self.counters.added.fetch_add(added, Ordering::Relaxed);
                    self.counters.deleted.fetch_add(deleted, Ordering::Relaxed);
                    self.counters.took.observe(took);
                    debug!(added, deleted, ?took, "the switch was told");
                    self.backoff.reset();
                }
                Err(error) => {
                    let failure = failure(&error, patch.bundle().start);
                    let refused = matches!(failure, Failure::Rejected(_));
                    self.brain.switch().failed(patch, failure);
                    if !refused {
                        return self.try_later("change the switch", &error);
                    }
                    self.counters.refused.fetch_add(1, Ordering::Relaxed);
                    warn!(%error, "left out of the switch; the rest follows");
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
        info!(groups, flows, "the switch was listed");
        Ok(())
    }

    fn try_later(&mut self, what: &str, error: &dyn std::fmt::Display) {
        let delay = self.backoff.next_delay();
        if self.backoff.is_news() {
            warn!(%error, ?delay, "cannot {what}; trying again");
        } else {
            debug!(%error, ?delay, "cannot {what}; trying again");
        }
        self.retry_at = Some(Instant::now() + delay);
    }

    /// Tells those who wait that the switch holds what they wait for.
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
            let refused = rejections.iter().find(|rejection| rejection.owners.contains(&owner));
            // Whoever does not wait any more does not need the answer.
            let _ = sender.send(match refused {
                Some(rejection) => Err(format!("the switch refuses {}: {}", rejection.subject, rejection.reason)),
                None => Ok(()),
            });
        }
    }

    /// Says what cannot be done as it was asked, once.
    fn complain(&mut self) {
        let problems: BTreeSet<String> = self.brain.problems().iter().map(ToString::to_string).collect();
        for problem in problems.difference(&self.complained) {
            warn!("{problem}");
        }
        self.complained = problems;
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

fn failure(error: &BundleError, start: usize) -> Failure {
    match error {
        BundleError::Disconnected(_) | BundleError::Refused(_) => Failure::NotCommitted,
        BundleError::OutcomeUnknown(_) => Failure::Unknown,
        BundleError::Rejected { index, error } => {
            Failure::Rejected(vec![Rejected { index: start + index, reason: error.to_string() }])
        }
        BundleError::TooLong { index, error } => {
            Failure::Rejected(vec![Rejected { index: start + index, reason: error.to_string() }])
        }
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
