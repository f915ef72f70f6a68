//! The task that owns the brain. Other tasks send it events, take batches from it, and query it. An overview of its state is
//! published beside the queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use policy::{Controller, ControllerEffect, ControllerEvent, Event, StreamId, Superseded};
use telemetry::metrics::Histogram;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::warn;
use types::control::{Batch, Report};

use crate::policy_events::PolicyWarning;

mod overview;

use overview::Activity;
pub(crate) use overview::{Overview, ReadError};

const EVENT_QUEUE: usize = 1024;
/// How long a reader of the API waits for the brain.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_QUEUE: usize = 4096;

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

type Query = Box<dyn FnOnce(&Controller) + Send>;

enum Request {
    Subscribe(String, oneshot::Sender<Feed>),
    Take(StreamId, oneshot::Sender<Result<Option<Batch>, Superseded>>),
    Report(String, Vec<Report>),
    Query(Query),
}

impl Request {
    fn name(&self) -> &'static str {
        match self {
            Self::Subscribe(..) => "the subscription of an agent",
            Self::Take(..) => "a batch for an agent",
            Self::Report(..) => "a report of an agent",
            Self::Query(_) => "a query",
        }
    }
}

/// A handle of the task.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    events: mpsc::Sender<Event>,
    requests: mpsc::Sender<Request>,
    /// Unbounded: `drop` of a feed cannot wait, and each feed sends one message.
    ended: mpsc::UnboundedSender<StreamId>,
    overview: watch::Receiver<Overview>,
    pub(crate) counters: Arc<Counters>,
}

/// The batches for one agent.
#[derive(Debug)]
pub(crate) struct Feed {
    engine: Engine,
    stream: StreamId,
    ready: Arc<Notify>,
}

impl Engine {
    /// Starts the task. Policies with invalid fields are sent to `warnings` while it has room.
    pub(crate) fn start(warnings: mpsc::Sender<PolicyWarning>) -> Self {
        let (events, incoming) = mpsc::channel(EVENT_QUEUE);
        let (requests, incoming_requests) = mpsc::channel(REQUEST_QUEUE);
        let (ended, ended_feeds) = mpsc::unbounded_channel();
        let (publisher, overview) = watch::channel(Overview::default());
        let engine = Self { events, requests, ended, overview, counters: Arc::default() };
        let task = Task {
            controller: Controller::default(),
            feeds: HashMap::new(),
            last_stream: 0,
            warnings,
            overview: publisher,
            engine: engine.clone(),
        };
        tokio::spawn(task.run(incoming, incoming_requests, ended_feeds));
        engine
    }

    /// Sends an event; waits while the queue is full.
    pub(crate) async fn send(&self, event: Event) {
        // The task ends with the program only.
        let _ = self.events.send(event).await;
    }

    pub(crate) async fn subscribe(&self, node: &str) -> Option<Feed> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Subscribe(node.to_owned(), reply)).await.ok()?;
        answer.await.ok()
    }

    /// Stores reports of an agent.
    pub(crate) async fn report(&self, node: &str, reports: Vec<Report>) {
        let _ = self.requests.send(Request::Report(node.to_owned(), reports)).await;
    }

    /// The current overview. Never waits for the brain.
    pub(crate) fn overview(&self) -> Result<Overview, ReadError> {
        if self.events.is_closed() { Err(ReadError::Stopped) } else { Ok(*self.overview.borrow()) }
    }

    /// Reads the state between two events, for a client that does not wait long.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Controller) -> T + Send + 'static,
    ) -> Result<T, ReadError> {
        self.read_within(READ_TIMEOUT, query).await
    }

    async fn read_within<T: Send + 'static>(
        &self,
        timeout: Duration,
        query: impl FnOnce(&Controller) -> T + Send + 'static,
    ) -> Result<T, ReadError> {
        match tokio::time::timeout(timeout, self.query(query)).await {
            Ok(found) => found.ok_or(ReadError::Stopped),
            Err(_) => Err(self.overview()?.busy(tokio::time::Instant::now())),
        }
    }

    /// Reads the state between two events.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Controller) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let query = Box::new(move |state: &Controller| {
            // A client that has given up needs no result.
            if !reply.is_closed() {
                drop(reply.send(query(state)));
            }
        });
        self.requests.send(Request::Query(query)).await.ok()?;
        answer.await.ok()
    }
}

impl api::control::server::Feed for Feed {
    async fn next(&mut self) -> Option<Batch> {
        loop {
            let (reply, answer) = oneshot::channel();
            self.engine.requests.send(Request::Take(self.stream, reply)).await.ok()?;
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
        let _ = self.engine.ended.send(self.stream);
    }
}

struct Task {
    controller: Controller,
    /// Wakes the feed that waits for a batch.
    feeds: HashMap<StreamId, Arc<Notify>>,
    last_stream: u64,
    warnings: mpsc::Sender<PolicyWarning>,
    overview: watch::Sender<Overview>,
    engine: Engine,
}

impl Task {
    async fn run(
        mut self,
        mut events: mpsc::Receiver<Event>,
        mut requests: mpsc::Receiver<Request>,
        mut ended_feeds: mpsc::UnboundedReceiver<StreamId>,
    ) {
        loop {
            tokio::select! {
                Some(event) = events.recv() => {
                    self.step(event);
                    // Events that are already queued go into the same batches. Their number is limited, so that requests do not
                    // wait for the end of a flood of events.
                    for _ in 1..EVENT_QUEUE {
                        let Ok(event) = events.try_recv() else { break };
                        self.step(event);
                    }
                }
                Some(request) = requests.recv() => self.answer(request),
                Some(stream) = ended_feeds.recv() => self.close(stream),
                else => return,
            }
            for effect in self.controller.take_effects() {
                self.carry_out(effect);
            }
            self.publish();
        }
    }

    fn begin(&self, what: &'static str) {
        self.overview.send_modify(|overview| overview.activity = Some(Activity::start(what)));
    }

    /// Publishes the state; nothing is worked on.
    fn publish(&self) {
        let (brain, agents) = (self.controller.brain(), self.controller.reports().connected_nodes().len());
        let is_synced = brain.is_synced();
        self.overview.send_replace(Overview { stats: brain.stats(), is_synced, agents, activity: None });
    }

    fn step(&mut self, event: Event) {
        self.begin(overview::name(&event));
        let counters = &self.engine.counters;
        let (count, took) = match &event {
            Event::Policy(_) | Event::PolicyGone(_) => (&counters.policies, &counters.policy_took),
            _ => (&counters.pods, &counters.pod_took),
        };
        let start = Instant::now();
        self.controller.step(ControllerEvent::Cluster(event));
        took.observe(start.elapsed());
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn carry_out(&self, effect: ControllerEffect) {
        match effect {
            // The feed takes a batch, or notices that it was replaced.
            ControllerEffect::Send(stream) | ControllerEffect::Close(stream) => {
                if let Some(feed) = self.feeds.get(&stream) {
                    feed.notify_one();
                }
            }
            ControllerEffect::Log(problem) => warn!("{problem}"),
            // The log has it even if no Event is written.
            ControllerEffect::Warn { policy, uid } => _ = self.warnings.try_send(PolicyWarning { policy, uid }),
        }
    }

    fn answer(&mut self, request: Request) {
        self.begin(request.name());
        match request {
            Request::Subscribe(node, reply) => {
                self.last_stream += 1;
                let (stream, ready) = (StreamId(self.last_stream), Arc::new(Notify::new()));
                self.feeds.insert(stream, Arc::clone(&ready));
                self.controller.step(ControllerEvent::StreamOpened { stream, node });
                self.engine.counters.streams.fetch_add(1, Ordering::Relaxed);
                // A feed that is not received is dropped, which closes the stream.
                drop(reply.send(Feed { engine: self.engine.clone(), stream, ready }));
            }
            Request::Take(stream, reply) => drop(reply.send(self.controller.take(stream))),
            Request::Report(node, reports) => self.controller.step(ControllerEvent::Reported { node, reports }),
            Request::Query(query) => query(&self.controller),
        }
    }

    fn close(&mut self, stream: StreamId) {
        self.controller.step(ControllerEvent::StreamClosed(stream));
        self.feeds.remove(&stream);
        self.engine.counters.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests;
