//! The link to antrea-controller: which replica to connect to and when, and what an agent does while there is none.
//!
//! ```text
//!             Discovered            Connected
//!   Idle ───────────────> Connecting ───────> Streaming
//!                          │   ^                 │
//!             Disconnected │   │ time            │ Disconnected
//!                          v   │                 │
//!                         Waiting <──────────────┘
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use delta::StableKey;
use types::ObjectName;
use types::backoff::Backoff;
use types::control::{PolicyName, Report};

use crate::effect::{Effect, Notice};
use crate::event::{Discovery, Time};

/// After a start, how long to wait for the controller before the snapshot on disk is enforced.
const RESTORE_AFTER: Duration = Duration::from_secs(2);
/// How long an outage lasts before Pods are evaluated locally.
const EVALUATE_AFTER: Duration = Duration::from_secs(1);
/// A stream that lasted this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Minimum time between two status reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);

/// State of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// There is no replica to connect to.
    Idle,
    Connecting {
        address: SocketAddr,
    },
    Streaming {
        address: SocketAddr,
        since: Time,
    },
    /// All replicas were tried, or a stream ended soon.
    Waiting {
        until: Time,
    },
}

/// The link to antrea-controller.
#[derive(Debug)]
pub(crate) struct ControllerLink {
    /// Name of this Node: Nodes try replicas in different orders, which spreads them evenly.
    node: String,
    discovery: Discovery,
    state: State,
    attempt: u64,
    /// Replicas that this round has not tried yet.
    untried: VecDeque<SocketAddr>,
    backoff: Backoff,
    has_restored: bool,
    evaluation: Evaluation,
    reports: Reports,
}

/// Local evaluation of policies during an outage.
#[derive(Debug)]
struct Evaluation {
    /// The next round is not before this time.
    next: Time,
    /// Pods whose policies are being read.
    asked: BTreeSet<ObjectName>,
    backoff: Backoff,
}

/// Status reports on the current stream.
#[derive(Debug, Default)]
struct Reports {
    sent: BTreeMap<PolicyName, Report>,
    /// Version of the policies of the last report.
    version: u64,
    not_before: Time,
}

impl ControllerLink {
    pub(crate) fn new(node: &str) -> Self {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10)).seeded(node.stable_hash());
        let evaluation = Evaluation {
            next: EVALUATE_AFTER,
            asked: BTreeSet::new(),
            backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(5)),
        };
        Self {
            node: node.to_owned(),
            discovery: Discovery::default(),
            state: State::Idle,
            attempt: 0,
            untried: VecDeque::new(),
            backoff,
            has_restored: false,
            evaluation,
            reports: Reports::default(),
        }
    }

    /// The replica at the other end of the stream.
    pub(crate) fn connected_to(&self) -> Option<SocketAddr> {
        match self.state {
            State::Streaming { address, .. } => Some(address),
            _ => None,
        }
    }

    /// What is known of the controller, unless an attempt to connect is in progress or waits.
    pub(crate) fn discovery_if_quiet(&self) -> Option<&Discovery> {
        matches!(self.state, State::Idle | State::Streaming { .. }).then_some(&self.discovery)
    }

    /// The last attempt, and the stream.
    pub(crate) fn position(&self) -> (u64, Option<(SocketAddr, Time)>) {
        match self.state {
            State::Streaming { address, since } => (self.attempt, Some((address, since))),
            _ => (self.attempt, None),
        }
    }

    /// Takes over the position of another link. What it has reported is reported again.
    pub(crate) fn resume(&mut self, attempt: u64, stream: Option<(SocketAddr, Time)>) {
        self.attempt = attempt;
        self.state = stream.map_or(State::Idle, |(address, since)| State::Streaming { address, since });
        self.untried.clear();
        self.has_restored = true;
    }

    pub(crate) fn is_current(&self, attempt: u64) -> bool {
        attempt == self.attempt
    }

    /// The controller's objects have changed.
    pub(crate) fn discovered(&mut self, now: Time, discovery: Discovery, effects: &mut Vec<Effect>) {
        self.discovery = discovery;
        let addresses = &self.discovery.addresses;
        match self.state {
            State::Streaming { address, .. } if !addresses.is_empty() && !addresses.contains(&address) => {
                let reason = "its address is no longer a ready endpoint of its Service".to_owned();
                self.end_stream(now, reason, effects);
            }
            State::Idle | State::Waiting { .. } => self.begin_round(now, effects),
            State::Connecting { .. } | State::Streaming { .. } => {}
        }
    }

    /// The stream is established.
    pub(crate) fn connected(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if let State::Connecting { address } = self.state {
            self.state = State::Streaming { address, since: now };
            self.reports = Reports::default();
            effects.push(Effect::Log(Notice::Connected { address }));
        }
    }

    /// The attempt failed, or the stream ended.
    pub(crate) fn disconnected(&mut self, now: Time, reason: String, effects: &mut Vec<Effect>) {
        match self.state {
            State::Connecting { address } => {
                let is_news = self.backoff.is_news();
                effects.push(Effect::Log(Notice::ConnectRetry { address, reason, is_news }));
                self.try_next(now, effects);
            }
            State::Streaming { address, since } => {
                effects.push(Effect::Log(Notice::StreamEnded { address, reason }));
                self.evaluation.next = now + EVALUATE_AFTER;
                if now.saturating_sub(since) >= STABLE_AFTER {
                    self.backoff.reset();
                    self.begin_round(now, effects);
                } else {
                    // The stream broke soon: reconnect with a delay, since many agents may do the same.
                    self.state = State::Waiting { until: now + self.backoff.next_delay() };
                }
            }
            State::Idle | State::Waiting { .. } => {}
        }
    }

    /// Ends the stream from this side.
    pub(crate) fn end_stream(&mut self, now: Time, reason: String, effects: &mut Vec<Effect>) {
        effects.push(Effect::Disconnect(reason.clone()));
        // What this stream still delivers is not of the current attempt.
        self.attempt += 1;
        self.disconnected(now, reason, effects);
    }

    /// Connects again when it is time.
    pub(crate) fn advance(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if matches!(self.state, State::Waiting { until } if until <= now) {
            self.begin_round(now, effects);
        }
    }

    fn begin_round(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.untried = in_order(&self.discovery.addresses, &self.node).collect();
        self.try_next(now, effects);
    }

    fn try_next(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.state = match self.untried.pop_front() {
            Some(address) => {
                self.attempt += 1;
                effects.push(Effect::Connect { attempt: self.attempt, address });
                State::Connecting { address }
            }
            None if self.discovery.addresses.is_empty() => State::Idle,
            None => State::Waiting { until: now + self.backoff.next_delay() },
        };
    }

    /// Whether to read the snapshot on disk, once: no controller has sent policies yet.
    pub(crate) fn restores(&mut self, now: Time) -> bool {
        let is_due = !self.has_restored && now >= RESTORE_AFTER;
        self.has_restored |= is_due;
        is_due
    }

    /// Whether a round of local evaluation begins: during an outage, and not while Pods of an earlier round are being read.
    pub(crate) fn evaluates(&self, now: Time) -> bool {
        self.connected_to().is_none() && self.evaluation.asked.is_empty() && now >= self.evaluation.next
    }

    /// Begins a round of local evaluation.
    pub(crate) fn begin_evaluation(&mut self, pods: BTreeSet<ObjectName>) {
        self.evaluation.asked = pods;
    }

    /// A Pod of the round was read; returns whether a failure is worth a log line.
    pub(crate) fn evaluated(&mut self, now: Time, pod: &ObjectName) -> bool {
        self.evaluation.asked.remove(pod);
        if self.evaluation.asked.is_empty() {
            self.evaluation.next = now + self.evaluation.backoff.next_delay();
        }
        self.evaluation.backoff.attempts() == 0 || self.evaluation.backoff.is_news()
    }

    /// Whether the policies of this version, which are enforced, have to be reported.
    pub(crate) fn reports(&self, now: Time, version: u64) -> bool {
        self.connected_to().is_some() && self.reports.version != version && now >= self.reports.not_before
    }

    /// The reports that the stream has not transmitted yet.
    pub(crate) fn news(&mut self, now: Time, version: u64, reports: Vec<Report>) -> Vec<Report> {
        let is_news = |report: &&Report| self.reports.sent.get(&report.policy) != Some(*report);
        let news = reports.iter().filter(is_news).cloned().collect();
        let sent = reports.into_iter().map(|report| (report.policy.clone(), report)).collect();
        self.reports = Reports { sent, version, not_before: now + REPORT_INTERVAL };
        news
    }

    /// The next time at which something may be due, given whether Pods wait, and the version that can be reported.
    pub(crate) fn wake_at(&self, has_policies: bool, has_waiting: bool, version: Option<u64>) -> Option<Time> {
        let reconnect = match self.state {
            State::Waiting { until } => Some(until),
            _ => None,
        };
        let restore = (!has_policies && !self.has_restored).then_some(RESTORE_AFTER);
        let evaluates = has_waiting && self.connected_to().is_none() && self.evaluation.asked.is_empty();
        let evaluation = evaluates.then_some(self.evaluation.next);
        let is_news = version.is_some_and(|version| self.reports.version != version);
        let reports = self.connected_to().is_some() && is_news;
        let report = reports.then_some(self.reports.not_before);
        [reconnect, restore, evaluation, report].into_iter().flatten().min()
    }
}

/// The replicas, in the order in which a Node should try them.
fn in_order(addresses: &[SocketAddr], node: &str) -> impl Iterator<Item = SocketAddr> {
    let count = addresses.len();
    let first = usize::try_from(node.stable_hash() % (count.max(1) as u64)).unwrap_or_default();
    addresses.iter().copied().cycle().skip(first).take(count)
}

#[cfg(test)]
mod tests;
