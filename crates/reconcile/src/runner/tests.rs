//! The runner with a target in memory, in paused time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::field::{Field, Visit};
use tracing::{Level, span};

use super::*;
use crate::Latest;

const SETTINGS: Settings = Settings {
    period: Some(Duration::from_secs(60)),
    collect: Duration::from_millis(50),
    backoff: (Duration::from_secs(1), Duration::from_secs(8)),
};

type TestPass = Pass<&'static str, &'static str>;

/// Replies with the planned passes, then with passes that find nothing.
struct Planned {
    passes: Arc<Mutex<VecDeque<TestPass>>>,
    /// The desired state of each pass, and the time since the start.
    seen: mpsc::UnboundedSender<(u32, Duration)>,
    changes: mpsc::UnboundedReceiver<()>,
    status: watch::Sender<Status>,
    start: Instant,
}

impl Target for Planned {
    type Desired = u32;
    type Change = &'static str;
    type Failure = &'static str;

    fn name(&self) -> &'static str {
        "test state"
    }

    async fn reconcile(&mut self, desired: u32) -> TestPass {
        self.seen.send((desired, self.start.elapsed())).unwrap();
        self.passes.lock().unwrap().pop_front().unwrap_or_default()
    }

    async fn changed(&mut self) {
        if self.changes.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }

    fn report(&mut self, status: &Status) {
        self.status.send_replace(status.clone());
    }
}

struct World {
    desired: watch::Sender<u32>,
    seen: mpsc::UnboundedReceiver<(u32, Duration)>,
    change: mpsc::UnboundedSender<()>,
    status: watch::Receiver<Status>,
    task: JoinHandle<()>,
}

impl World {
    fn start(passes: impl Into<VecDeque<TestPass>>) -> Self {
        let ((seen, seen_by), (change, changes)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let ((status, status_of), (desired, versions)) = (watch::channel(Status::default()), watch::channel(1));
        let passes = Arc::new(Mutex::new(passes.into()));
        let target = Planned { passes, seen, changes, status, start: Instant::now() };
        let task = tokio::spawn(run(target, Latest::new(versions), SETTINGS));
        Self { desired, seen: seen_by, change, status: status_of, task }
    }

    /// The desired state and the time of the next pass, in milliseconds. Paused time advances to it.
    async fn pass(&mut self) -> (u32, u128) {
        let (desired, at) = self.seen.recv().await.unwrap();
        (desired, at.as_millis())
    }

    async fn status(&mut self, passes: u64) -> Status {
        self.status.wait_for(|status| status.passes == passes).await.unwrap().clone()
    }
}

fn failed(failure: &'static str) -> TestPass {
    Pass::failed(failure)
}

fn changed(change: &'static str) -> TestPass {
    Pass { changes: vec![change], ..Pass::default() }
}

#[tokio::test(start_paused = true)]
async fn a_failure_backs_off_until_a_pass_succeeds_and_then_the_period_counts() {
    let mut world = World::start([failed("full"), failed("full"), failed("full"), Pass::default(), failed("full")]);
    let mut times = Vec::new();
    for _ in 0..6 {
        times.push(world.pass().await.1);
    }
    let delays: Vec<u128> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let expected = [750..=1000, 1500..=2000, 3000..=4000, 60_000..=60_000, 750..=1000];
    assert!(delays.iter().zip(&expected).all(|(delay, range)| range.contains(delay)), "{delays:?}");
}

#[tokio::test(start_paused = true)]
async fn a_version_is_applied_only_after_a_pass_without_failures() {
    let unfinished = Pass { incomplete: true, ..changed("half") };
    let mut world = World::start([failed("full"), unfinished, Pass::default()]);
    let status = world.status(1).await;
    assert_eq!((status.version, status.failure.as_deref()), (None, Some("full")));
    let status = world.status(2).await;
    assert_eq!((status.version, status.failure), (None, None));
    assert_eq!(world.status(3).await.version, Some(1));
    world.desired.send_replace(2);
    let status = world.status(4).await;
    assert_eq!((status.version, status.drift_repaired), (Some(2), 0));
}

#[tokio::test(start_paused = true)]
async fn changes_for_an_applied_version_are_drift_and_others_are_not() {
    let both = Pass { scheduled: vec!["rotated"], ..changed("put back") };
    let unfinished = Pass { incomplete: true, ..changed("first half") };
    let mut world = World::start([changed("first"), both, Pass { failures: vec!["no"], ..changed("part") }]);
    assert_eq!(world.status(1).await.drift_repaired, 0, "the first pass for the version");
    assert_eq!(world.status(2).await.drift_repaired, 1, "a scheduled change is no drift");
    assert_eq!(world.status(3).await.drift_repaired, 2, "repaired, even though another part failed");
    let mut world = World::start([unfinished, changed("second half")]);
    assert_eq!(world.status(2).await.drift_repaired, 0, "the version was not applied yet");
}

#[tokio::test(start_paused = true)]
async fn a_new_version_is_applied_without_a_timer() {
    let mut world = World::start([]);
    world.pass().await;
    let between_ticks = Duration::from_micros(1500);
    tokio::time::advance(between_ticks).await;
    world.desired.send_replace(2);
    assert_eq!(world.seen.recv().await, Some((2, between_ticks)));
}

#[tokio::test(start_paused = true)]
async fn bursts_of_changes_are_collected_into_one_pass() {
    let mut world = World::start([]);
    assert_eq!(world.pass().await, (1, 0));
    for _ in 0..100 {
        world.change.send(()).unwrap();
    }
    assert_eq!(world.pass().await, (1, 50));
    assert_eq!(world.pass().await, (1, 60_050), "all changes were part of the pass before");
}

#[tokio::test(start_paused = true)]
async fn a_new_version_does_not_wait_for_the_collection_of_changes() {
    let mut world = World::start([]);
    world.pass().await;
    world.change.send(()).unwrap();
    world.desired.send_replace(2);
    assert_eq!(world.pass().await, (2, 0));
}

#[tokio::test(start_paused = true)]
async fn the_desired_state_is_read_when_the_pass_begins() {
    let mut world = World::start([Pass { pause: Duration::from_secs(5), ..Pass::default() }]);
    assert_eq!(world.pass().await, (1, 0));
    for desired in [2, 3, 4] {
        world.desired.send_replace(desired);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(world.pass().await, (4, 5000), "versions in the pause need one pass only");
}

#[tokio::test(start_paused = true)]
async fn a_pass_can_ask_for_another_one() {
    let again = Pass { again: Some(Duration::from_secs(3)), ..Pass::default() };
    let mut world = World::start([again.clone(), Pass { pause: Duration::from_secs(4), ..again }]);
    let times = [world.pass().await.1, world.pass().await.1, world.pass().await.1, world.pass().await.1];
    assert_eq!(times, [0, 3000, 7000, 67_000], "never within the pause");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_source_ends_the_runner() {
    let mut world = World::start([]);
    world.pass().await;
    drop(world.desired);
    world.task.await.unwrap();
}

thread_local! {
    /// The level and text of the log lines of this thread, which runs one test.
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Collects log lines in [`LINES`].
struct Lines;

impl Lines {
    /// Starts a collection. There is one subscriber for all threads: tracing caches which lines a subscriber wants.
    fn collect() {
        static SUBSCRIBER: OnceLock<()> = OnceLock::new();
        SUBSCRIBER.get_or_init(|| tracing::subscriber::set_global_default(Self).unwrap());
        LINES.take();
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(String);
        impl Visit for Message {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                if ["message", "error", "change"].contains(&field.name()) {
                    self.0 += &format!(" {value:?}");
                }
            }
        }
        let mut message = Message(event.metadata().level().to_string());
        event.record(&mut message);
        LINES.with_borrow_mut(|lines| lines.push(message.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_logged_once_per_outage_and_so_is_the_recovery() {
    Lines::collect();
    let two = Pass { failures: vec!["full", "gone"], ..Pass::default() };
    let mut world =
        World::start([failed("full"), failed("full"), two, Pass::default(), failed("full"), Pass::default()]);
    world.status(6).await;
    let retrying = "WARN cannot reconcile test state; retrying";
    let recovered = "INFO test state reconciled after failures";
    let expected = [
        format!("{retrying} \"full\""),
        format!("{retrying} \"gone\""),
        recovered.into(),
        format!("{retrying} \"full\""),
        recovered.into(),
    ];
    assert_eq!(LINES.take(), expected);
}

#[tokio::test(start_paused = true)]
async fn drift_is_logged_with_what_was_repaired() {
    Lines::collect();
    World::start([changed("a route"), changed("a route")]).status(2).await;
    let expected = ["INFO applied test state changes", "WARN test state drifted; repaired \"a route\""];
    assert_eq!(LINES.take(), expected);
}

#[tokio::test(start_paused = true)]
async fn retry_repeats_until_it_succeeds() {
    let (start, mut left) = (Instant::now(), 3);
    let value = crate::retry("test state", SETTINGS.backoff, || {
        left -= 1;
        std::future::ready(if left == 0 { Ok(7) } else { Err("not yet") })
    });
    assert_eq!(value.await, 7);
    assert!((2250..=3000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
}
