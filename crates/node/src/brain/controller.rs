//! The controller's stream: policies that arrive on it, reports, and policies from elsewhere during an outage.

use std::collections::BTreeSet;

use types::ObjectName;
use types::control::Batch;

use super::Brain;
use crate::effect::{Effect, Notice};
use crate::event::{ControllerEvent, Time};

impl Brain {
    /// The replica of the controller that this Node is connected to.
    pub fn controller(&self) -> Option<std::net::SocketAddr> {
        self.controller.connected_to()
    }

    pub(super) fn controller_event(&mut self, now: Time, event: ControllerEvent) {
        match event {
            ControllerEvent::Discovered(discovery) => {
                if discovery.is_deployed {
                    self.controller_deployed();
                } else if discovery.is_synced && !discovery.has_snapshot {
                    self.controller_absent();
                }
                self.controller.discovered(now, discovery, &mut self.effects);
            }
            ControllerEvent::Connected { attempt } if self.controller.is_current(attempt) => {
                self.controller.connected(now, &mut self.effects);
            }
            ControllerEvent::Disconnected { attempt, reason } if self.controller.is_current(attempt) => {
                self.controller.disconnected(now, reason, &mut self.effects);
            }
            ControllerEvent::Batch { attempt, batch } if self.controller.is_current(attempt) => {
                self.received(now, &batch);
            }
            // Of an earlier stream.
            ControllerEvent::Connected { .. }
            | ControllerEvent::Disconnected { .. }
            | ControllerEvent::Batch { .. }
            | ControllerEvent::Restored(None) => {}
            ControllerEvent::Restored(Some(batch)) => self.restored(&batch),
            ControllerEvent::ReadPolicies { pod, outcome } => {
                let is_news = self.controller.evaluated(now, &pod);
                match outcome {
                    // The controller's own policies are on the way.
                    Ok(_) if self.controller.connected_to().is_some() => {}
                    Ok((waiting, policies)) => {
                        if self.evaluate_locally(waiting, &policies) {
                            self.log(Notice::EvaluatedLocally { pod, policies: policies.len() });
                        }
                    }
                    Err(reason) => self.log(Notice::PodWaits { pod, reason, is_news }),
                }
            }
        }
    }

    /// A batch that is out of step ends the stream: the next one begins with a snapshot.
    fn received(&mut self, now: Time, batch: &Batch) {
        match self.enforce(batch) {
            Ok(()) => self.effects.push(Effect::SaveSnapshot),
            Err(error) => self.controller.end_stream(now, error.to_string(), &mut self.effects),
        }
    }

    /// The snapshot on disk counts only until the controller has sent something.
    fn restored(&mut self, batch: &Batch) {
        if self.policy_version > 0 {
            return;
        }
        let notice = match self.enforce(batch) {
            Ok(()) => Notice::RestoredSnapshot { changes: batch.changes.len() },
            Err(error) => Notice::SnapshotRejected { problem: error.to_string() },
        };
        self.log(notice);
    }

    /// Connects, reads the snapshot, evaluates Pods and reports, as far as they are due.
    pub(super) fn advance_controller(&mut self, now: Time) {
        self.controller.advance(now, &mut self.effects);
        if self.policy_version == 0 && self.controller.restores(now) {
            self.effects.push(Effect::RestoreSnapshot);
        }
        if self.controller.evaluates(now) && self.is_ready() {
            let waiting: Vec<(ObjectName, String)> =
                self.held().map(|interface| (interface.pod.clone(), interface.uid.clone())).collect();
            self.controller.begin_evaluation(waiting.iter().map(|(pod, _)| pod.clone()).collect::<BTreeSet<_>>());
            self.effects.extend(waiting.into_iter().map(|(pod, uid)| Effect::ReadPolicies { pod, uid }));
        }
        if let Some(version) = self.enforced_version()
            && self.controller.reports(now, version)
        {
            let news = self.controller.news(now, version, self.reports());
            if !news.is_empty() {
                self.effects.push(Effect::Report(news));
            }
        }
    }

    pub(super) fn controller_wake_at(&self) -> Option<Time> {
        let has_waiting = self.is_ready() && self.held().next().is_some();
        self.controller.wake_at(self.policy_version > 0, has_waiting, self.enforced_version())
    }
}
