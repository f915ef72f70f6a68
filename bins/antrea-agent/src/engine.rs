//! Runs the brain: passes events to it, carries out its effects, and wakes it up in time.
//!
//! One task changes the brain. Others send events to it, and read the brain beside it: also while the messages of a bundle are
//! encoded, which only reads. While the switch commits them, the brain goes on: a DEL does not wait for the switch.

mod recorder;

pub(crate) use recorder::Recorder;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use delta::Message;
use node::{Brain, CommitError, Effect, Event, Level, SwitchEvent};
use openflow::flow::{Flow, FlowRequest};
use ovs::switch::{BundleError, Events, RequestError, Switch};
use telemetry::metrics::Histogram;
use tokio::sync::{RwLock, mpsc, oneshot, watch};
use tracing::{debug, info, warn};

use crate::cni::Cni;
use crate::control::Control;

/// Capacity of the event queue; senders wait when it is full.
const QUEUE: usize = 1024;
/// Maximum number of events that are handled together.
const BATCH: usize = 4096;
/// Maximum number of listed flows or groups in one event.
const LISTED: usize = 256;
/// A task that handles one step for longer than this is not alive.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// An event with its sender, or a question to the task.
#[expect(clippy::large_enum_variant, reason = "nearly all commands are events")]
enum Command {
    /// Handle an event, and reply when that is done.
    Event(Event, Option<oneshot::Sender<()>>),
    /// Reply when everything that is desired now is in the switch.
    Settled(oneshot::Sender<()>),
}

/// Versions of desired state, which other tasks wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) host_version: u64,
    pub(crate) database_version: u64,
    pub(crate) tunnel_version: u64,
    /// Every source has finished its initial sync, and the switch has been listed: Pods can be attached.
    pub(crate) ready: bool,
    /// No veth is being deleted, and no address is being released.
    pub(crate) idle: bool,
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

/// Why the engine's task does not work any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAlive {
    #[error("the task of the brain has ended")]
    Ended,
    #[error("the brain handles an event for {0} s")]
    Busy(u64),
}

/// Handle to the engine's task.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    commands: mpsc::Sender<Command>,
    progress: watch::Receiver<Progress>,
    brain: Arc<RwLock<Brain>>,
    /// When the current step began, in milliseconds since `started`; 0 between steps.
    busy_since: Arc<AtomicU64>,
    started: Instant,
}

/// The engine before its task runs: the tasks for effects need a handle first.
pub(crate) struct Worker {
    brain: Arc<RwLock<Brain>>,
    queue: mpsc::Receiver<Command>,
    progress: watch::Sender<Progress>,
    busy_since: Arc<AtomicU64>,
    started: Instant,
}

impl Engine {
    pub(crate) fn new(brain: Brain) -> (Self, Worker) {
        let (commands, queue) = mpsc::channel(QUEUE);
        let (sender, progress) = watch::channel(Progress::default());
        let (brain, busy_since, started) = (Arc::new(RwLock::new(brain)), Arc::default(), Instant::now());
        let engine =
            Self { commands, progress, brain: Arc::clone(&brain), busy_since: Arc::clone(&busy_since), started };
        (engine, Worker { brain, queue, progress: sender, busy_since, started })
    }

    /// Queues an event for the brain.
    pub(crate) async fn send(&self, event: Event) {
        // Fails only when the agent is stopping.
        let _ = self.commands.send(Command::Event(event, None)).await;
    }

    /// Queues an event from a thread that may block.
    pub(crate) fn send_blocking(&self, event: Event) {
        let _ = self.commands.blocking_send(Command::Event(event, None));
    }

    /// Queues an event, and waits until the brain has handled it.
    pub(crate) async fn deliver(&self, event: Event) {
        let (sender, receiver) = oneshot::channel();
        let _ = self.commands.send(Command::Event(event, Some(sender))).await;
        let _ = receiver.await;
    }

    /// Waits until everything that is desired now is in the switch, but for what it rejects.
    pub(crate) async fn settled(&self) {
        let (sender, receiver) = oneshot::channel();
        let _ = self.commands.send(Command::Settled(sender)).await;
        let _ = receiver.await;
    }

    /// Reads the brain beside its task; a step that is running ends first.
    pub(crate) async fn read<R>(&self, read: impl FnOnce(&Brain) -> R) -> R {
        read(&*self.brain.read().await)
    }

    /// The engine's state, to be read or waited for.
    pub(crate) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Fails if the engine's task does not work any more.
    pub(crate) fn liveness(&self) -> Result<(), NotAlive> {
        if self.commands.is_closed() {
            return Err(NotAlive::Ended);
        }
        let began = self.busy_since.load(Ordering::Relaxed);
        let busy = self.started.elapsed().saturating_sub(Duration::from_millis(began));
        if began > 0 && busy > STEP_TIMEOUT {
            return Err(NotAlive::Busy(busy.as_secs()));
        }
        Ok(())
    }
}

/// What carries out the effects of the brain.
pub(crate) struct Rim {
    pub(crate) switch: Switch,
    pub(crate) control: Control,
    pub(crate) cni: Cni,
    pub(crate) counters: Arc<Counters>,
    pub(crate) recorder: Option<Recorder>,
}

impl Worker {
    /// Starts the task, which runs until the agent stops.
    pub(crate) fn start(self, rim: Rim, events: Events) {
        let Self { brain, queue, progress, busy_since, started } = self;
        let (logged, settling) = (BTreeSet::new(), Vec::new());
        let task = Task { brain, rim, queue, progress, busy_since, started, logged, settling, commit: None };
        tokio::spawn(task.run(events));
    }
}

struct Task {
    brain: Arc<RwLock<Brain>>,
    rim: Rim,
    queue: mpsc::Receiver<Command>,
    progress: watch::Sender<Progress>,
    busy_since: Arc<AtomicU64>,
    started: Instant,
    /// The problems that have been logged.
    logged: BTreeSet<String>,
    /// Callers of [`Engine::settled`], each with the round that it waits for; `None` until the next step.
    settling: Vec<(Option<u64>, oneshot::Sender<()>)>,
    /// The commit in progress.
    commit: Option<Commit>,
}

/// The commit of a bundle, until the switch has replied.
type Commit = Pin<Box<dyn Future<Output = Result<(), CommitError>> + Send>>;

impl Task {
    async fn run(mut self, mut events: Events) {
        loop {
            let wake_at = self.brain.read().await.wake_at().map(|at| self.started + at);
            tokio::select! {
                command = self.queue.recv() => {
                    let Some(command) = command else { return };
                    let more = std::iter::from_fn(|| self.queue.try_recv().ok()).take(BATCH - 1);
                    let commands: Vec<Command> = std::iter::once(command).chain(more).collect();
                    self.commands(commands).await;
                }
                event = events.next() => match event {
                    Some(event) => self.steps(switch_event(event)).await,
                    None => return,
                },
                outcome = committed(&mut self.commit) => {
                    self.steps(vec![Event::Switch(SwitchEvent::Committed(outcome))]).await;
                }
                () = sleep_until(wake_at) => self.steps(vec![Event::Tick]).await,
            }
        }
    }

    /// Handles commands that arrived together in one step.
    async fn commands(&mut self, commands: Vec<Command>) {
        let (mut events, mut delivered) = (Vec::new(), Vec::new());
        for command in commands {
            match command {
                Command::Event(event, done) => {
                    events.push(event);
                    delivered.extend(done);
                }
                Command::Settled(done) => self.settling.push((None, done)),
            }
        }
        self.finish_commits_for_checkpoint().await;
        self.steps(events).await;
        for done in delivered {
            // Fails if the sender no longer waits.
            let _ = done.send(());
        }
    }

    /// There is no checkpoint while a commit is in progress, and under churn one always is.
    async fn finish_commits_for_checkpoint(&mut self) {
        while self.rim.recorder.as_ref().is_some_and(Recorder::needs_checkpoint)
            && let Some(commit) = self.commit.take()
        {
            self.steps(vec![Event::Switch(SwitchEvent::Committed(commit.await))]).await;
        }
    }

    /// Takes a step with events, and further steps with lists of the switch.
    async fn steps(&mut self, mut events: Vec<Event>) {
        loop {
            let mut listed = Vec::new();
            for effect in self.step(events).await {
                match effect {
                    Effect::List => listed.extend(self.list().await),
                    Effect::Commit => self.commit = Some(self.begin_commit().await),
                    effect => self.carry_out(effect),
                }
            }
            if listed.is_empty() {
                return;
            }
            events = listed;
        }
    }

    async fn step(&mut self, events: Vec<Event>) -> Vec<Effect> {
        let now = self.started.elapsed();
        self.busy_since.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
        // The switch causes no problems, and lists of it are many events.
        let affects_problems = events.iter().any(|event| !matches!(event, Event::Switch(_) | Event::Tick));
        let mut brain = self.brain.write().await;
        if let Some(recorder) = &mut self.rim.recorder {
            recorder.record(now, &events, || brain.checkpoint());
        }
        brain.step(now, events);
        let effects = brain.take_effects();
        let progress = Progress {
            host_version: brain.host_version(),
            database_version: brain.database_version(),
            tunnel_version: brain.tunnel_version(),
            ready: brain.is_ready(),
            idle: brain.is_idle(),
            services: brain.service_versions(),
        };
        let problems = affects_problems.then(|| brain.problems());
        for (_, waiting) in
            self.settling.extract_if(.., |(round, _)| brain.is_installed(*round.get_or_insert(brain.round())))
        {
            // Fails if the caller no longer waits.
            let _ = waiting.send(());
        }
        drop(brain);
        self.progress.send_if_modified(|before| std::mem::replace(before, progress) != progress);
        if let Some(problems) = problems {
            self.log_problems(&problems);
        }
        self.busy_since.store(0, Ordering::Relaxed);
        effects
    }

    fn carry_out(&self, effect: Effect) {
        match effect {
            // Carried out by the caller, which waits for them.
            Effect::List | Effect::Commit => {}
            Effect::Log(notice) => match notice.level() {
                Level::Warn => warn!("{notice}"),
                Level::Info => info!("{notice}"),
                Level::Debug => debug!("{notice}"),
            },
            Effect::Connect { attempt, address } => self.rim.control.connect(attempt, address),
            Effect::Disconnect(reason) => self.rim.control.disconnect(&reason),
            Effect::RestoreSnapshot => self.rim.control.restore_snapshot(),
            Effect::SaveSnapshot => self.rim.control.save_snapshot(),
            Effect::Report(reports) => self.rim.control.report(reports),
            Effect::ReadPolicies { pod, uid } => self.rim.control.read_policies(pod, uid),
            Effect::Allocate { call, id } => self.rim.cni.allocate(call, id),
            Effect::CheckVeth { call, link } => self.rim.cni.check_veth(call, link),
            Effect::CreateVeth { call, link } => self.rim.cni.create_veth(call, link),
            Effect::PrepareAddresses { call, addresses } => self.rim.cni.prepare_addresses(call, addresses),
            Effect::Announce(link) => self.rim.cni.announce(link),
            Effect::DeleteVeth(name) => self.rim.cni.delete_veth(name),
            Effect::Release { id, flush } => self.rim.cni.release(id, flush),
            Effect::Reply { call, outcome } => self.rim.cni.reply(call, outcome),
        }
    }

    /// Encodes the brain's bundle, or sends it if it is large. Meanwhile the brain can be read.
    async fn begin_commit(&mut self) -> Commit {
        let counters = Arc::clone(&self.rim.counters);
        let brain = self.brain.read().await;
        let is_delete = |message: &Message<'_>| matches!(message, Message::FlowDelete(_) | Message::GroupDelete(_));
        let (mut added, mut deleted) = (0, 0);
        for message in brain.bundle() {
            *(if is_delete(&message) { &mut deleted } else { &mut added }) += 1;
        }
        let started = Instant::now();
        let bundle = self.rim.switch.bundle(brain.bundle()).await;
        Box::pin(async move {
            let committed = match bundle {
                Ok(bundle) => bundle.commit().await,
                Err(error) => Err(error),
            };
            let outcome = committed.map_err(|error| commit_error(&error));
            let took = started.elapsed();
            match &outcome {
                Ok(()) => {
                    counters.added.fetch_add(added, Ordering::Relaxed);
                    counters.deleted.fetch_add(deleted, Ordering::Relaxed);
                    counters.took.observe(took);
                    debug!(added, deleted, ?took, "committed a bundle");
                }
                Err(CommitError::Rejected { .. }) => _ = counters.rejected.fetch_add(1, Ordering::Relaxed),
                Err(_) => {}
            }
            outcome
        })
    }

    /// Passes the groups and flows of the switch to the brain in parts: together they may be large. Returns the last event.
    async fn list(&mut self) -> Option<Event> {
        if let Some(commit) = self.commit.take() {
            // The brain no longer waits for it, but a bundle that is applied during the list would make the list wrong.
            let _ = commit.await;
        }
        let (groups, flows) = match self.list_all().await {
            Ok(counts) => counts,
            Err(error) => return Some(Event::Switch(SwitchEvent::Listed(Err(error.to_string())))),
        };
        info!(groups, flows, "listed flows and groups of the switch");
        Some(Event::Switch(SwitchEvent::Listed(Ok(()))))
    }

    async fn list_all(&mut self) -> Result<(u64, u64), RequestError> {
        let (mut listed_groups, mut listed_flows) = (0, 0);
        let mut groups = Vec::new();
        let mut dump = self.rim.switch.dump_groups().await?;
        while let Some(group) = dump.next().await? {
            listed_groups += 1;
            groups.push(group);
            if groups.len() == LISTED {
                self.observe(SwitchEvent::Groups(std::mem::take(&mut groups))).await;
            }
        }
        self.observe(SwitchEvent::Groups(groups)).await;
        let mut flows: Vec<Flow> = Vec::new();
        let mut dump = self.rim.switch.dump_flows(FlowRequest::default()).await?;
        while let Some(stats) = dump.next().await? {
            listed_flows += 1;
            flows.push(stats.flow);
            if flows.len() == LISTED {
                self.observe(SwitchEvent::Flows(std::mem::take(&mut flows))).await;
            }
        }
        self.observe(SwitchEvent::Flows(flows)).await;
        Ok((listed_groups, listed_flows))
    }

    /// Passes a part of the list to the brain, which has no effect but those of time.
    async fn observe(&mut self, part: SwitchEvent) {
        for effect in self.step(vec![Event::Switch(part)]).await {
            self.carry_out(effect);
        }
    }

    /// Logs each new problem once.
    fn log_problems(&mut self, problems: &[node::Problem]) {
        let problems: BTreeSet<String> = problems.iter().map(ToString::to_string).collect();
        for problem in problems.difference(&self.logged) {
            warn!("{problem}");
        }
        self.logged = problems;
    }
}

fn switch_event(event: ovs::switch::Event) -> Vec<Event> {
    match event {
        ovs::switch::Event::Up { epoch, .. } => {
            info!(epoch, "connected to the switch");
            vec![Event::Switch(SwitchEvent::Up(epoch))]
        }
        ovs::switch::Event::Down { reason } => {
            warn!(reason, "lost the connection to the switch; reconnecting");
            vec![Event::Switch(SwitchEvent::Down)]
        }
        // The agent sends no request whose reply arrives as an event.
        ovs::switch::Event::Message(_) | ovs::switch::Event::Missed => Vec::new(),
    }
}

fn commit_error(error: &BundleError) -> CommitError {
    match error {
        BundleError::Disconnected(_) | BundleError::Refused(_) => CommitError::NotCommitted(error.to_string()),
        BundleError::OutcomeUnknown(_) => CommitError::OutcomeUnknown(error.to_string()),
        BundleError::Rejected { index, error } => CommitError::Rejected { index: *index, reason: error.to_string() },
        BundleError::TooLong { index, error } => CommitError::Rejected { index: *index, reason: error.to_string() },
    }
}

/// Waits for the end of a commit; for ever if there is none.
async fn committed(commit: &mut Option<Commit>) -> Result<(), CommitError> {
    match commit {
        Some(running) => {
            let outcome = running.await;
            *commit = None;
            outcome
        }
        None => std::future::pending().await,
    }
}

/// Waits until a moment; for ever if there is none.
pub(crate) async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
