//! Convergence of the switch: list its flows after a connect, commit the difference, and retry with backoff.

use std::time::Duration;

use delta::{Failure, Message, Patch, Rejected};
use openflow::flow::Flow;
use types::backoff::Backoff;

use super::Brain;
use crate::effect::{Effect, Notice};
use crate::event::{CommitError, Event, Source, SwitchEvent, Time};

/// The connection to the switch, and the request in progress.
#[derive(Debug)]
pub(super) struct Convergence {
    is_connected: bool,
    request: Option<Request>,
    backoff: Backoff,
    retry_at: Option<Time>,
    /// Why the last request failed.
    problem: Option<String>,
    /// Version of the policies whose flows are in the switch.
    enforced: u64,
    /// Number of the last comparison of desired and actual state.
    round: u64,
    /// The last round whose changes are all in the switch, but for what it rejected.
    installed: u64,
}

#[derive(Debug)]
enum Request {
    List,
    Commit { patch: Patch, round: u64, policy_version: u64 },
}

impl Default for Convergence {
    fn default() -> Self {
        Self {
            is_connected: false,
            request: None,
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(5)),
            retry_at: None,
            problem: None,
            enforced: 0,
            round: 0,
            installed: 0,
        }
    }
}

impl Convergence {
    pub(super) fn wake_at(&self) -> Option<Time> {
        self.retry_at.filter(|_| self.is_connected && self.request.is_none())
    }

    pub(super) fn is_installed(&self, round: u64) -> bool {
        self.installed >= round
    }
}

impl Brain {
    /// The messages of the bundle to commit, after [`Effect::Commit`].
    pub fn bundle(&self) -> impl Iterator<Item = Message<'_>> {
        let patch = match &self.convergence.request {
            Some(Request::Commit { patch, .. }) => Some(patch),
            _ => None,
        };
        patch.into_iter().flat_map(|patch| self.switch.messages(patch))
    }

    /// Whether everything desired is in the switch, but for what it rejected.
    pub fn is_settled(&self) -> bool {
        self.is_installed(self.round())
    }

    /// Number of the last comparison of desired and actual state. It increases with every step.
    pub fn round(&self) -> u64 {
        self.convergence.round
    }

    /// Whether everything that was desired in a round is in the switch, but for what it rejected. Changes since then may not be:
    /// without end, they would never settle.
    pub fn is_installed(&self, round: u64) -> bool {
        self.convergence.is_installed(round)
    }

    /// Version of the policies, if their flows are in the switch.
    pub(super) fn enforced_version(&self) -> Option<u64> {
        Some(self.convergence.enforced).filter(|version| *version > 0 && *version == self.policy_version)
    }

    /// Whether every source has finished its initial sync, and the switch has been listed: Pods can be attached.
    pub fn is_ready(&self) -> bool {
        self.is_synced() && !self.switch.needs_resync()
    }

    /// Whether flows and groups have reached the switch since it connected, and nothing keeps later changes from doing so.
    ///
    /// # Errors
    /// What is missing.
    pub fn switch_state(&self) -> Result<(), String> {
        match &self.convergence {
            Convergence { is_connected: false, .. } => Err("not connected to ovs-vswitchd".to_owned()),
            Convergence { problem: Some(problem), .. } => Err(problem.clone()),
            Convergence { installed: 0, .. } => Err("the first flows are not installed yet".to_owned()),
            _ => Ok(()),
        }
    }

    pub(super) fn switch_event(&mut self, now: Time, event: SwitchEvent) {
        match event {
            SwitchEvent::Up(_) => {
                // The switch may be another one, with any flows: list it again.
                self.convergence.is_connected = true;
                self.convergence.request = None;
                self.convergence.retry_at = None;
                self.convergence.problem = None;
                self.convergence.installed = 0;
                self.convergence.enforced = 0;
                self.convergence.backoff.reset();
                self.switch.begin_resync();
                self.switch.retry();
            }
            SwitchEvent::Down => self.convergence.is_connected = false,
            SwitchEvent::Groups(groups) => {
                for group in groups {
                    // Differences are repaired by the next bundle.
                    let _ = self.switch.observe_group(group);
                }
            }
            SwitchEvent::Flows(flows) => flows.iter().for_each(|flow| self.observe_flow(flow)),
            SwitchEvent::Listed(outcome) => {
                self.convergence.request = None;
                match outcome {
                    Ok(()) => {
                        self.convergence.problem = None;
                        self.end_resync();
                    }
                    Err(problem) => self.retry_later(now, "list flows and groups", problem),
                }
            }
            SwitchEvent::Committed(outcome) => {
                let is_commit = |request: &mut Request| matches!(request, Request::Commit { .. });
                let Some(Request::Commit { patch, round, policy_version }) =
                    self.convergence.request.take_if(is_commit)
                else {
                    return;
                };
                match outcome {
                    Ok(()) => {
                        self.switch.committed(patch);
                        self.convergence.problem = None;
                        self.convergence.installed = round;
                        self.convergence.enforced = policy_version;
                        self.convergence.backoff.reset();
                    }
                    Err(error) => {
                        let (failure, is_rejected) = failure(&error);
                        self.switch.failed(patch, failure);
                        match is_rejected {
                            true => self.log(Notice::Rejected { problem: error.to_string() }),
                            false => self.retry_later(now, "commit a bundle", error.to_string()),
                        }
                    }
                }
            }
        }
    }

    /// Requests a list of the switch if a resync is due, or a commit of the difference to the desired state.
    pub(super) fn converge(&mut self, now: Time) {
        self.convergence.round += 1;
        let Convergence { is_connected, request, retry_at, round, .. } = &mut self.convergence;
        if !*is_connected || request.is_some() || retry_at.is_some_and(|at| now < at) {
            return;
        }
        *retry_at = None;
        if self.switch.needs_resync() {
            self.switch.begin_resync();
            *request = Some(Request::List);
            self.effects.push(Effect::List);
        } else if let Some(patch) = self.switch.patch() {
            *request = Some(Request::Commit { patch, round: *round, policy_version: self.policy_version });
            self.effects.push(Effect::Commit);
        } else {
            self.convergence.installed = *round;
            self.convergence.enforced = self.policy_version;
        }
    }

    fn observe_flow(&mut self, flow: &Flow) {
        self.policies.observe(flow);
        // Differences are repaired by the next bundle.
        let _ = self.switch.observe_flow(flow);
    }

    fn end_resync(&mut self) {
        self.switch.end_resync();
        self.policies.observed();
        self.handle(Event::Synced(Source::Switch));
    }

    fn retry_later(&mut self, now: Time, what: &'static str, problem: String) {
        let delay = self.convergence.backoff.next_delay();
        self.convergence.retry_at = Some(now + delay);
        self.convergence.problem = Some(format!("cannot {what}: {problem}"));
        let is_news = self.convergence.backoff.is_news();
        self.log(Notice::SwitchRetry { what, problem, delay, is_news });
    }
}

fn failure(error: &CommitError) -> (Failure, bool) {
    match error {
        CommitError::NotCommitted(_) => (Failure::NotCommitted, false),
        CommitError::OutcomeUnknown(_) => (Failure::Unknown, false),
        CommitError::Rejected { index, reason } => {
            (Failure::Rejected(vec![Rejected { index: *index, reason: reason.clone() }]), true)
        }
    }
}
