//! The lifecycle of a Pod as a state machine: takes events, returns effects. It has no clock and starts no process.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// Backoff of restarts: doubles with each restart, up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A container that has run for longer starts with the first pause again.
const LONG_ENOUGH: Duration = Duration::from_secs(600);

/// Restart policy of the Pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Restart {
    Always,
    OnFailure,
    Never,
}

/// One container of the Pod.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) is_init: bool,
    pub(crate) has_startup: bool,
    pub(crate) has_readiness: bool,
    pub(crate) state: State,
    pub(crate) restarts: u32,
    pub(crate) last: Option<Exit>,
    pause: Duration,
}

/// State of a container.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum State {
    Waiting,
    /// It cannot be started, for example because the image is unknown.
    Blocked {
        reason: String,
        message: String,
    },
    Starting,
    Running {
        since: Timestamp,
        started: bool,
        ready: bool,
        stopping: bool,
    },
    BackOff {
        until: Timestamp,
        reason: String,
        message: String,
    },
    /// It ended and is not restarted.
    Done(Exit),
}

/// How a container ended.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Exit {
    pub(crate) code: i32,
    pub(crate) since: Timestamp,
    pub(crate) until: Timestamp,
}

/// State of the Pod's network.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Net {
    Absent,
    Connecting,
    /// Connecting failed, and is retried.
    Failed {
        until: Timestamp,
        message: String,
    },
    Up,
    Disconnecting,
    DisconnectFailed {
        until: Timestamp,
        message: String,
    },
    Gone,
}

/// The kinds of probes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Probe {
    Startup,
    Readiness,
    Liveness,
}

/// Inputs of the state machine. Containers have numbers, init containers first.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Event {
    Connected,
    NotConnected(String),
    Disconnected,
    NotDisconnected(String),
    Started(usize),
    NotStarted { slot: usize, reason: String, message: String },
    Exited { slot: usize, code: i32 },
    Probed { slot: usize, probe: Probe, passed: bool },
    Delete,
    Tick,
}

/// Outputs of the state machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    Connect,
    Start(usize),
    Stop(usize),
    Disconnect,
    /// Everything is cleaned up: remove the files and delete the object.
    Forget,
}

/// The lifecycle of one Pod.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Lifecycle {
    policy: Restart,
    pub(crate) net: Net,
    net_pause: Duration,
    pub(crate) slots: Vec<Slot>,
    ending: bool,
    forgotten: bool,
}

impl Slot {
    pub(crate) fn new(name: &str, is_init: bool, has_startup: bool, has_readiness: bool) -> Self {
        let (state, pause) = (State::Waiting, FIRST_PAUSE);
        Self { name: name.to_owned(), is_init, has_startup, has_readiness, state, restarts: 0, last: None, pause }
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, State::Running { ready: true, .. })
    }

    fn is_still(&self) -> bool {
        !matches!(self.state, State::Starting | State::Running { .. })
    }

    fn succeeded(&self) -> bool {
        matches!(&self.state, State::Done(exit) if exit.code == 0)
    }

    fn failed(&self) -> bool {
        matches!(&self.state, State::Done(exit) if exit.code != 0)
    }
}

impl Lifecycle {
    pub(crate) fn new(policy: Restart, slots: Vec<Slot>) -> Self {
        Self { policy, net: Net::Absent, net_pause: FIRST_PAUSE, slots, ending: false, forgotten: false }
    }

    /// Applies an event, and returns the effects to execute.
    pub(crate) fn step(&mut self, now: Timestamp, event: Event) -> Vec<Effect> {
        match event {
            Event::Connected => (self.net, self.net_pause) = (Net::Up, FIRST_PAUSE),
            Event::Disconnected => self.net = Net::Gone,
            Event::NotConnected(message) => self.net = Net::Failed { until: self.net_again(now), message },
            Event::NotDisconnected(message) => self.net = Net::DisconnectFailed { until: self.net_again(now), message },
            Event::Delete => self.ending = true,
            Event::Tick => {}
            Event::Started(slot) => self.started(now, slot),
            Event::NotStarted { slot, reason, message } => self.back_off(now, slot, reason, message),
            Event::Exited { slot, code } => self.exited(now, slot, code),
            Event::Probed { slot, probe, passed } => {
                if let Some(stop) = self.probed(slot, probe, passed) {
                    return vec![stop];
                }
            }
        }
        if self.ending || self.is_over() { self.wind_down(now) } else { self.bring_up(now) }
    }

    /// When to call `step` with [`Event::Tick`].
    pub(crate) fn wake_at(&self) -> Option<Timestamp> {
        let net = match &self.net {
            Net::Failed { until, .. } | Net::DisconnectFailed { until, .. } => Some(*until),
            Net::Absent | Net::Connecting | Net::Up | Net::Disconnecting | Net::Gone => None,
        };
        let slots = self.slots.iter().filter_map(|slot| match &slot.state {
            State::BackOff { until, .. } if !self.ending => Some(*until),
            _ => None,
        });
        slots.chain(net).min()
    }

    /// Whether all init containers have succeeded.
    pub(crate) fn is_initialized(&self) -> bool {
        self.slots.iter().filter(|slot| slot.is_init).all(Slot::succeeded)
    }

    /// Whether all containers are ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.main().all(Slot::is_ready)
    }

    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub(crate) fn phase(&self) -> &'static str {
        let begun = |slot: &Slot| {
            slot.last.is_some() || !matches!(slot.state, State::Waiting | State::Blocked { .. } | State::Starting)
        };
        if self.is_over() {
            if self.main().all(Slot::succeeded) { "Succeeded" } else { "Failed" }
        } else if self.is_initialized() && self.main().all(begun) {
            "Running"
        } else {
            "Pending"
        }
    }

    fn main(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| !slot.is_init)
    }

    /// Whether no container will run again.
    fn is_over(&self) -> bool {
        let dead_init = self.slots.iter().any(|slot| slot.is_init && slot.failed());
        dead_init || (self.is_initialized() && self.main().all(|slot| matches!(slot.state, State::Done(_))))
    }

    fn net_again(&mut self, now: Timestamp) -> Timestamp {
        let pause = self.net_pause;
        self.net_pause = (pause * 2).min(LONGEST_PAUSE);
        now + pause
    }

    fn started(&mut self, now: Timestamp, slot: usize) {
        let Some(slot) = self.slots.get_mut(slot) else { return };
        let started = !slot.has_startup;
        let ready = started && !slot.has_readiness;
        slot.state = State::Running { since: now, started, ready, stopping: false };
    }

    fn back_off(&mut self, now: Timestamp, slot: usize, reason: String, message: String) {
        let Some(slot) = self.slots.get_mut(slot) else { return };
        slot.state = State::BackOff { until: now + slot.pause, reason, message };
        slot.pause = (slot.pause * 2).min(LONGEST_PAUSE);
    }

    fn exited(&mut self, now: Timestamp, index: usize, code: i32) {
        let (policy, ending) = (self.policy, self.ending);
        let Some(slot) = self.slots.get_mut(index) else { return };
        let since = match slot.state {
            State::Running { since, .. } => since,
            _ => now,
        };
        let exit = Exit { code, since, until: now };
        let again = match (policy, slot.is_init) {
            (Restart::Always, false) => true,
            (Restart::Never, _) => false,
            (Restart::OnFailure, _) | (Restart::Always, true) => code != 0,
        };
        if !again || ending {
            slot.state = State::Done(exit);
            return;
        }
        if Duration::try_from(now.duration_since(since)).is_ok_and(|ran| ran > LONG_ENOUGH) {
            slot.pause = FIRST_PAUSE;
        }
        slot.last = Some(exit);
        let message = format!("back-off {}s restarting failed container={}", slot.pause.as_secs(), slot.name);
        self.back_off(now, index, "CrashLoopBackOff".into(), message);
    }

    fn probed(&mut self, index: usize, probe: Probe, passed: bool) -> Option<Effect> {
        let slot = self.slots.get_mut(index)?;
        let State::Running { started, ready, stopping, .. } = &mut slot.state else { return None };
        match (probe, passed) {
            (Probe::Startup, true) => {
                *started = true;
                *ready = !slot.has_readiness;
            }
            (Probe::Readiness, passed) => *ready = passed && *started,
            (Probe::Startup | Probe::Liveness, false) if !*stopping => {
                (*stopping, *ready) = (true, false);
                return Some(Effect::Stop(index));
            }
            (Probe::Startup | Probe::Liveness, _) => {}
        }
        None
    }

    fn bring_up(&mut self, now: Timestamp) -> Vec<Effect> {
        match &self.net {
            Net::Absent => {
                self.net = Net::Connecting;
                return vec![Effect::Connect];
            }
            Net::Failed { until, .. } if *until <= now => {
                self.net = Net::Connecting;
                return vec![Effect::Connect];
            }
            Net::Up => {}
            Net::Failed { .. } | Net::Connecting | Net::Disconnecting | Net::DisconnectFailed { .. } | Net::Gone => {
                return vec![];
            }
        }
        let mut effects = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.is_init && slot.succeeded() {
                continue;
            }
            let due = match &slot.state {
                State::Waiting => true,
                State::BackOff { until, .. } => *until <= now,
                State::Blocked { .. } | State::Starting | State::Running { .. } | State::Done(_) => false,
            };
            if due {
                slot.restarts += u32::from(slot.last.is_some());
                slot.state = State::Starting;
                effects.push(Effect::Start(index));
            }
            if slot.is_init {
                // Later containers wait for an init container.
                break;
            }
        }
        effects
    }

    fn wind_down(&mut self, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let State::Running { stopping, .. } = &mut slot.state
                && !*stopping
            {
                *stopping = true;
                effects.push(Effect::Stop(index));
            }
        }
        if !self.slots.iter().all(Slot::is_still) {
            return effects;
        }
        match &self.net {
            Net::Up => {
                self.net = Net::Disconnecting;
                effects.push(Effect::Disconnect);
            }
            Net::DisconnectFailed { until, .. } if *until <= now => {
                self.net = Net::Disconnecting;
                effects.push(Effect::Disconnect);
            }
            // A failed attempt was undone.
            Net::Absent | Net::Failed { .. } => self.net = Net::Gone,
            Net::Connecting | Net::Disconnecting | Net::DisconnectFailed { .. } | Net::Gone => {}
        }
        if self.net == Net::Gone && self.ending && !self.forgotten {
            self.forgotten = true;
            effects.push(Effect::Forget);
        }
        effects
    }
}

#[cfg(test)]
mod tests;
