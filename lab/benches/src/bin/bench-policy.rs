//! The controller's computation at upstream's scales: time and memory of a full computation, cost of one change.
//!
//! Upstream's fifth scale needs ExternalEntities and Antrea's own policies, which are not implemented.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use benches::memory::Counting;
use benches::scales::{NODES, Scale};
use benches::streams::{AGENTS, Streams, be_agents};
use benches::{Figure, Goal, percentile, progress, report};
use policy::{Brain, Event, Kind, Replica, Stats, Subscription};

#[global_allocator]
static MEMORY: Counting = Counting::new();

const ROUNDS: u32 = 5;
/// Number of measured changes of each kind at each scale.
const CHANGES: u32 = 2000;

struct Case {
    scale: Scale,
    /// Upstream's figures, recorded once on a similar machine, not measured here.
    upstream: &'static str,
    /// Number of AppliedToGroups, AddressGroups and policies.
    expected: (usize, usize, usize),
    names: Names,
    time: Option<f64>,
    heap: Option<f64>,
    pod: Option<f64>,
}

struct Names {
    time: &'static str,
    heap: &'static str,
    pod: [&'static str; 3],
    policy: [&'static str; 3],
}

macro_rules! names {
    ($scale:literal) => {
        Names {
            time: concat!($scale, "-time"),
            heap: concat!($scale, "-heap"),
            pod: [concat!($scale, "-pod-p50"), concat!($scale, "-pod-p99"), concat!($scale, "-pod-patches")],
            policy: [
                concat!($scale, "-policy-p50"),
                concat!($scale, "-policy-p99"),
                concat!($scale, "-policy-patches"),
            ],
        }
    };
}

fn cases() -> [Case; 5] {
    let none = (None, None, None);
    let case = |scale, upstream, expected, names, (time, heap, pod)| Case {
        scale,
        upstream,
        expected,
        names,
        time,
        heap,
        pod,
    };
    [
        case(
            Scale::SmallNamespaces,
            "10.1 s, 2133 MB",
            (75_000, 50_000, 75_000),
            names!("s1"),
            (Some(0.5), Some(250.0), Some(20.0)),
        ),
        case(Scale::LargeNamespaces, "3.7 s, 2677 MB", (10_100, 10_000, 10_100), names!("s2"), none),
        case(Scale::OneNamespace, "6.0 s, 2187 MB", (1, 1, 10_000), names!("s3"), (Some(0.2), None, None)),
        case(Scale::PolicyPerPod, "84.4 s, 1601 MB", (10_000, 10_000, 10_000), names!("s4"), (Some(0.2), None, None)),
        case(Scale::AcrossNamespaces, "no record", (10_000, 1_000, 10_000), names!("s6"), none),
    ]
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [AGENTS, address, nodes] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return be_agents(address, nodes);
    }
    for case in cases() {
        progress(&format!("{:?}; upstream, recorded: {}", case.scale, case.upstream));
        let times = (0..ROUNDS).map(|_| from_nothing(case.scale));
        // The computation is single-threaded and waits for nothing: other load can only slow it down, so the minimum
        // counts.
        figure(case.names.time, "s", times.min().unwrap_or_default().as_secs_f64(), case.time);

        // Only what the brain keeps of the objects is counted.
        let before = MEMORY.live();
        MEMORY.reset_peak();
        let mut brain = Brain::default();
        follow(&mut brain, case.scale);
        figure(case.names.heap, "MB", megabytes(MEMORY.peak().saturating_sub(before)), case.heap);
        let Stats { applied_to_groups, address_groups, policies, .. } = brain.stats();
        ensure!((applied_to_groups, address_groups, policies) == case.expected, "not the scale: {:?}", brain.stats());

        let before = MEMORY.live();
        let mut agents = Agents::subscribe(&mut brain)?;
        measure(&mut brain, &mut agents, case.names.pod, case.pod, |n| case.scale.new_pod(n))?;
        measure(&mut brain, &mut agents, case.names.policy, None, |n| case.scale.new_policy(n))?;
        if case.scale == Scale::SmallNamespaces {
            // All batches were taken and all new objects deleted: the rest is the cost of a subscription.
            let bytes = MEMORY.live().saturating_sub(before).saturating_sub(agents.replica_bytes);
            figure("agent-bytes", "B", per_agent(bytes), Some(2000.0));
            figure("agent-snapshot", "ms", agents.snapshot_time.as_secs_f64() * 1e3 / f64::from(NODES), None);
        }
        agents.check(&mut brain)?;
        if case.scale == Scale::SmallNamespaces {
            stream(brain)?;
        }
    }
    Ok(())
}

/// Memory of an agent with a real stream that has received everything, mostly for TLS and HTTP/2.
fn stream(mut brain: Brain) -> Result<()> {
    progress(&format!("{NODES} agents on streams of their own, in another process"));
    for n in 0..NODES {
        let subscription = brain.subscribe(&format!("Node-{n}"));
        brain.unsubscribe(&subscription);
    }
    let before = MEMORY.live();
    MEMORY.count_sizes(true);
    let mut streams = Streams::listen(brain)?;
    let start = Instant::now();
    streams.follow(NODES)?;
    let took = start.elapsed();
    // Batches that are being sent do not count: wait until memory no longer changes.
    let (mut last, mut same) = (0, 0);
    let settled = || {
        let now = MEMORY.live();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        (same > 20).then_some(())
    };
    testkit::wait::until("all batches to be sent", Duration::from_secs(60), settled)?;
    let bytes = MEMORY.live().saturating_sub(before);
    figure("stream-bytes", "B", per_agent(bytes), Some(2000.0));
    figure("stream-all", "s", took.as_secs_f64(), None);
    MEMORY.count_sizes(false);
    progress(&format!("an agent's pieces of memory: {}", pieces()));
    streams.end()?;
    Ok(())
}

/// Sizes of at least 200 bytes that every agent has.
fn pieces() -> String {
    let each = |(size, count): (usize, isize)| {
        let count = count.checked_div_euclid(isize::try_from(NODES).ok()?)?;
        (count > 0 && size >= 200).then(|| format!("{count} of {size} B"))
    };
    MEMORY.sizes().filter_map(each).collect::<Vec<_>>().join(", ")
}

fn figure(name: &'static str, unit: &'static str, ours: f64, goal: Option<f64>) {
    report(&Figure { name, unit, ours, peer: None, goal: goal.map(Goal::Ours) });
}

/// Feeds the objects to the brain, as a watch does. Returns the time that the brain took.
fn follow(brain: &mut Brain, scale: Scale) -> Duration {
    let mut took = Duration::ZERO;
    for event in scale.events() {
        let start = Instant::now();
        brain.step(event);
        took += start.elapsed();
    }
    for kind in [Kind::Namespace, Kind::Pod, Kind::Policy] {
        brain.step(Event::Synced(kind));
    }
    took
}

fn from_nothing(scale: Scale) -> Duration {
    follow(&mut Brain::default(), scale)
}

/// Applies changes one after the other, and measures the time until each is in the outboxes. Then all agents take them.
fn measure<const EVENTS: usize>(
    brain: &mut Brain,
    agents: &mut Agents,
    [p50, p99, patches]: [&'static str; 3],
    goal: Option<f64>,
    change: impl Fn(u32) -> [Event; EVENTS],
) -> Result<()> {
    let mut times = Vec::new();
    let before = agents.changes;
    for event in (0..CHANGES).flat_map(change) {
        let start = Instant::now();
        brain.step(event);
        times.push(start.elapsed());
        agents.take(brain)?;
    }
    figure(p50, "us", percentile(&times, 50).as_secs_f64() * 1e6, goal);
    figure(p99, "us", percentile(&times, 99).as_secs_f64() * 1e6, goal);
    figure(patches, "", (agents.changes - before) / count(times.len()), None);
    Ok(())
}

/// An agent on every Node, each with a subscription; one of them keeps a replica.
struct Agents {
    all: Vec<Subscription>,
    replica: Replica,
    replica_bytes: usize,
    snapshot_time: Duration,
    /// Number of sent changes.
    changes: f64,
}

impl Agents {
    fn subscribe(brain: &mut Brain) -> Result<Self> {
        let all: Vec<Subscription> = (0..NODES).map(|n| brain.subscribe(&format!("Node-{n}"))).collect();
        let (mut replica, mut replica_bytes, mut snapshot_time) = (Replica::default(), 0, Duration::ZERO);
        brain.take_ready();
        for (n, agent) in all.iter().enumerate() {
            let start = Instant::now();
            let batch = brain.take(agent)?.context("an agent without a snapshot")?;
            snapshot_time += start.elapsed();
            ensure!(batch.snapshot);
            if n == 0 {
                let before = MEMORY.live();
                replica.apply(&batch)?;
                replica_bytes = MEMORY.live().saturating_sub(before);
            }
        }
        Ok(Self { all, replica, replica_bytes, snapshot_time, changes: 0.0 })
    }

    /// Takes the batches of all agents that have one.
    fn take(&mut self, brain: &mut Brain) -> Result<()> {
        for agent in brain.take_ready() {
            let batch = brain.take(&agent)?.context("an agent that is ready has something to take")?;
            self.changes += count(batch.changes.len());
            if self.all.first() == Some(&agent) {
                self.replica.apply(&batch)?;
            }
        }
        Ok(())
    }

    /// A replica that received every change must equal a fresh snapshot.
    fn check(&self, brain: &mut Brain) -> Result<()> {
        let mut fresh = Replica::default();
        let subscription = brain.subscribe("Node-0");
        fresh.apply(&brain.take(&subscription)?.context("no snapshot")?)?;
        ensure!(fresh == self.replica, "the replica of an agent differs from a snapshot");
        Ok(())
    }
}

fn per_agent(bytes: usize) -> f64 {
    count(bytes) / f64::from(NODES)
}

fn megabytes(bytes: usize) -> f64 {
    count(bytes) / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn count(n: usize) -> f64 {
    n as f64
}
