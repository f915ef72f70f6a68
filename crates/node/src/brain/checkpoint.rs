//! Checkpoints: the state of the brain as events, for recordings that drop old events.
//!
//! The desired state depends on current inputs, so current inputs are enough, as at a restart of the agent. The rest is history,
//! listed in [`Resume`].

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::Brain;
use crate::event::{Change, ControllerEvent, Event, PortEvent, Source, SwitchEvent, Time};

/// History that the current inputs do not determine.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Resume {
    /// The number of the last attempt to connect to the controller.
    pub attempt: u64,
    /// The connected replica of the controller, and since when.
    pub controller: Option<(SocketAddr, Time)>,
    /// Whether the cluster has no controller.
    pub without_controller: bool,
    /// The interfaces whose Pods the controller has seen once.
    pub admitted: BTreeSet<String>,
    /// Ports of Pods that appeared in OVSDB without a call.
    pub adopted: BTreeSet<String>,
    /// The last requested OpenFlow port.
    pub last_number: Option<u16>,
    /// Whether CNI calls are accepted.
    pub is_open: bool,
}

impl Brain {
    /// Events after which a new brain is as this one; `None` while a call, a commit or a connect is in progress.
    pub fn checkpoint(&self) -> Option<Vec<Event>> {
        let discovery = self.controller.discovery_if_quiet()?.clone();
        if !self.is_settled() || !self.is_synced() || !self.is_idle() || !self.attachments.adds.is_empty() {
            return None;
        }
        let nodes = self.nodes.values().cloned().map(|node| Event::Node(Change::Set(node)));
        let services = self.services.all_services().cloned().map(|it| Event::Service(Change::Set(it)));
        let slices = self.services.all_slices().map(|slice| Event::EndpointSlice(Change::Set(slice)));
        let rows = self.attachments.rows.values().cloned().map(|row| Event::Port(PortEvent::Set(Box::new(row))));
        let synced = [Source::Nodes, Source::Services, Source::EndpointSlices, Source::Interfaces].map(Event::Synced);
        let groups = self.switch.owned_groups().map(|(group, _)| group).collect();
        let flows = self.switch.desired_flows().collect();
        let listed =
            [SwitchEvent::Up(0), SwitchEvent::Groups(groups), SwitchEvent::Flows(flows), SwitchEvent::Listed(Ok(()))];
        let has_policies = self.policy_version > 0;
        let policies = has_policies.then(|| ControllerEvent::Restored(Some(self.policies.replica().snapshot())));
        let events = listed.into_iter().map(Event::Switch).chain(nodes).chain(services).chain(slices).chain(rows);
        let controller = policies.into_iter().chain([ControllerEvent::Discovered(discovery)]).map(Event::Controller);
        Some(events.chain(synced).chain(controller).chain([Event::Resume(Box::new(self.history()))]).collect())
    }

    fn history(&self) -> Resume {
        let adopted = self.attachments.pods.iter().filter(|(_, entry)| !entry.is_expected);
        let (attempt, controller) = self.controller.position();
        Resume {
            attempt,
            controller,
            without_controller: self.without_controller,
            admitted: self.admitted.clone(),
            adopted: adopted.map(|(name, _)| name.clone()).collect(),
            last_number: self.attachments.numbers.last(),
            is_open: self.attachments.is_open,
        }
    }

    pub(super) fn resume(&mut self, resume: Resume) {
        self.controller.resume(resume.attempt, resume.controller);
        self.without_controller = resume.without_controller;
        for name in resume.admitted {
            self.admit(&name);
        }
        for name in resume.adopted {
            if let Some(entry) = self.attachments.pods.get_mut(&name) {
                entry.is_expected = false;
            }
        }
        self.attachments.numbers.resume(resume.last_number);
        self.attachments.is_open = resume.is_open;
    }
}
