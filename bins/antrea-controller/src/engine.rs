//! The task that owns the brain. Everybody else sends it what happens, and takes what is to be told.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use policy::{Brain, Event, Subscription, Superseded};
use telemetry::metrics::Histogram;
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::warn;
use types::control::{Batch, Report};

use crate::complaints::Complaint;
use crate::status::Reports;

/// Events that wait for the brain; whoever has more waits.
const WAITING: usize = 1024;
/// Questions of agents that wait.
const QUESTIONS: usize = 4096;

/// What the task holds.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) brain: Brain,
    pub(crate) reports: Reports,
}

/// What is counted.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) policies: AtomicU64,
    pub(crate) pods: AtomicU64,
    pub(crate) policy_took: Histogram,
    pub(crate) pod_took: Histogram,
    pub(crate) streams: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        let bounds = &[1, 2, 5, 10, 50, 100, 500, 1000];
        let zero = || AtomicU64::new(0);
        Self {
            policies: zero(),
            pods: zero(),
            policy_took: Histogram::new(bounds),
            pod_took: Histogram::new(bounds),
            streams: zero(),
            batches: zero(),
            refused: zero(),
        }
    }
}

type Look = Box<dyn FnOnce(&State) + Send>;

enum Question {
    Subscribe(String, oneshot::Sender<Feed>),
    Take(Subscription, oneshot::Sender<Result<Option<Batch>, Superseded>>),
    Report(String, Vec<Report>),
    Look(Look),
}

/// A way to the task.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    events: mpsc::Sender<Event>,
    questions: mpsc::Sender<Question>,
    /// Not bounded: a feed that ends cannot wait, and there are no more of these than there were feeds.
    ended: mpsc::UnboundedSender<(String, Subscription)>,
    pub(crate) counters: Arc<Counters>,
}

/// What one agent is told.
#[derive(Debug)]
pub(crate) struct Feed {
    engine: Engine,
    node: String,
    subscription: Subscription,
    ready: Arc<Notify>,
}

impl Engine {
    /// Starts the task. Problems with policies go to `complaints`, as far as it takes them.
    pub(crate) fn start(complaints: mpsc::Sender<Complaint>) -> Self {
        let (events, incoming) = mpsc::channel(WAITING);
        let (questions, asked) = mpsc::channel(QUESTIONS);
        let (ended, endings) = mpsc::unbounded_channel();
        let engine = Self { events, questions, ended, counters: Arc::default() };
        let task = Task {
            state: State::default(),
            waiting: HashMap::new(),
            agents: HashMap::new(),
            complaints,
            engine: engine.clone(),
        };
        tokio::spawn(task.run(incoming, asked, endings));
        engine
    }

    /// Tells what has happened.
    pub(crate) async fn tell(&self, event: Event) {
        // It ends with the program only.
        let _ = self.events.send(event).await;
    }

    /// A Node listens from now on.
    pub(crate) async fn subscribe(&self, node: &str) -> Option<Feed> {
        let (reply, answer) = oneshot::channel();
        self.questions.send(Question::Subscribe(node.to_owned(), reply)).await.ok()?;
        answer.await.ok()
    }

    /// Takes what an agent reports.
    pub(crate) async fn report(&self, node: &str, reports: Vec<Report>) {
        let _ = self.questions.send(Question::Report(node.to_owned(), reports)).await;
    }

    /// Looks at what the task holds.
    pub(crate) async fn look<T: Send + 'static>(&self, look: impl FnOnce(&State) -> T + Send + 'static) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let look = Box::new(move |state: &State| drop(reply.send(look(state))));
        self.questions.send(Question::Look(look)).await.ok()?;
        answer.await.ok()
    }
}

impl api::control::server::Feed for Feed {
    async fn next(&mut self) -> Option<Batch> {
        loop {
            let (reply, answer) = oneshot::channel();
            self.engine.questions.send(Question::Take(self.subscription.clone(), reply)).await.ok()?;
            match answer.await.ok()? {
                Ok(Some(batch)) => {
                    self.engine.counters.batches.fetch_add(1, Ordering::Relaxed);
                    return Some(batch);
                }
                Ok(None) => self.ready.notified().await,
                Err(Superseded) => return None,
            }
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let _ = self.engine.ended.send((self.node.clone(), self.subscription.clone()));
    }
}

struct Task {
    state: State,
    /// Who listens, by the number of the subscription: wakes whoever waits for something to take.
    waiting: HashMap<u64, Arc<Notify>>,
    /// The subscription of each Node that listens.
    agents: HashMap<String, u64>,
    complaints: mpsc::Sender<Complaint>,
    engine: Engine,
}

impl Task {
    async fn run(
        mut self,
        mut events: mpsc::Receiver<Event>,
        mut questions: mpsc::Receiver<Question>,
        mut endings: mpsc::UnboundedReceiver<(String, Subscription)>,
    ) {
        loop {
            tokio::select! {
                Some(event) = events.recv() => {
                    self.step(event);
                    // What has come meanwhile is told together.
                    while let Ok(event) = events.try_recv() {
                        self.step(event);
                    }
                }
                Some(question) = questions.recv() => self.answer(question),
                Some((node, subscription)) = endings.recv() => self.end(&node, &subscription),
                else => return,
            }
            for subscription in self.state.brain.take_ready() {
                if let Some(ready) = self.waiting.get(&subscription.number()) {
                    ready.notify_one();
                }
            }
        }
    }

    fn step(&mut self, event: Event) {
        let counters = &self.engine.counters;
        let (count, took) = match &event {
            Event::Policy(_) | Event::PolicyGone(_) => (&counters.policies, &counters.policy_took),
            _ => (&counters.pods, &counters.pod_took),
        };
        let start = Instant::now();
        let of = match &event {
            Event::Policy(policy) => Some((policy.metadata.object_name(), policy.metadata.uid.clone())),
            Event::PolicyGone(name) => {
                self.state.reports.forget(name);
                None
            }
            _ => None,
        };
        let problems = self.state.brain.step(event);
        took.observe(start.elapsed());
        count.fetch_add(1, Ordering::Relaxed);
        for problem in &problems {
            warn!("{problem}");
        }
        if let Some((policy, uid)) = of.filter(|_| !problems.is_empty()) {
            // The log has it, whether or not anybody writes it to the cluster.
            let _ = self.complaints.try_send(Complaint { policy, uid });
        }
    }

    fn answer(&mut self, question: Question) {
        match question {
            Question::Subscribe(node, reply) => {
                let subscription = self.state.brain.subscribe(&node);
                let ready = Arc::new(Notify::new());
                self.waiting.insert(subscription.number(), Arc::clone(&ready));
                let old = self.agents.insert(node.clone(), subscription.number());
                if let Some(old) = old.and_then(|old| self.waiting.get(&old)) {
                    // It finds that there is another one.
                    old.notify_one();
                }
                self.state.reports.connected(&node);
                self.engine.counters.streams.fetch_add(1, Ordering::Relaxed);
                let engine = self.engine.clone();
                // A feed that nobody takes ends by itself.
                drop(reply.send(Feed { engine, node, subscription, ready }));
            }
            Question::Take(subscription, reply) => drop(reply.send(self.state.brain.take(&subscription))),
            Question::Report(node, reports) => self.state.reports.take(&self.state.brain, &node, reports),
            Question::Look(look) => look(&self.state),
        }
    }

    fn end(&mut self, node: &str, subscription: &Subscription) {
        self.state.brain.unsubscribe(subscription);
        self.waiting.remove(&subscription.number());
        if self.agents.get(node) == Some(&subscription.number()) {
            self.agents.remove(node);
            self.state.reports.disconnected(node);
        }
        self.engine.counters.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
