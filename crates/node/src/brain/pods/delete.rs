//! CNI DEL and rollback: removes ports and veths, and releases addresses when the switch has forgotten them.

use std::collections::BTreeMap;

use super::OVS_HINT;
use crate::attachments::{
    Addresses, AttachmentId, CALL_TIMEOUT, CallId, CniError, Delete, Release, ReleaseState, interface_name,
};
use crate::brain::Brain;
use crate::effect::{Effect, Notice};
use crate::event::Time;

impl Brain {
    /// Removes whatever exists of an attachment.
    pub(super) fn delete(
        &mut self,
        now: Time,
        id: AttachmentId,
        pod: Option<&str>,
        reply: Option<(CallId, Option<CniError>)>,
    ) {
        // An interrupted call may have left a veth without a port.
        let mut ports: BTreeMap<String, Option<String>> =
            pod.map(|pod| (interface_name(pod, &id.container), None)).into_iter().collect();
        let attached: BTreeMap<_, _> =
            self.attachments.ports_of(&id).map(|port| (port.name.clone(), Some(port.netns.clone()))).collect();
        let addresses = if attached.is_empty() { Addresses::Release } else { Addresses::Flush };
        ports.extend(attached);
        self.delete_ports(now, id, ports, reply, addresses);
    }

    pub(super) fn delete_ports(
        &mut self,
        now: Time,
        id: AttachmentId,
        ports: BTreeMap<String, Option<String>>,
        reply: Option<(CallId, Option<CniError>)>,
        addresses: Addresses,
    ) {
        for name in ports.keys() {
            self.forget_pod(name);
        }
        let (deadline, round) = (now + CALL_TIMEOUT, self.round() + 1);
        self.attachments.deletes.push(Delete { id, reply, deadline, ports, addresses, round, is_releasing: false });
    }

    pub(super) fn released(&mut self, now: Time, id: &AttachmentId, outcome: Result<(), CniError>) {
        let Some(release) = self.attachments.releases.get_mut(id) else { return };
        let waits = |delete: &Delete| delete.is_releasing && delete.id == *id;
        let waiting = self.attachments.deletes.extract_if(.., |delete| waits(delete));
        let replies: Vec<_> = waiting.filter_map(|delete| delete.reply).collect();
        match &outcome {
            Err(problem) if release.flush => {
                release.state = ReleaseState::RetryAt(now + release.backoff.next_delay());
                let (problem, is_news) = (problem.to_string(), release.backoff.is_news());
                self.log(Notice::NotReleased { id: id.clone(), problem, is_news });
            }
            // A DEL of the runtime repeats it.
            _ => _ = self.attachments.releases.remove(id),
        }
        for (call, error) in replies {
            self.reply(call, error.map_or(outcome.clone().map(|()| None), Err));
        }
    }

    pub(super) fn advance_deletes(&mut self, now: Time) {
        let mut remaining = Vec::new();
        for mut delete in std::mem::take(&mut self.attachments.deletes) {
            if delete.is_releasing {
                remaining.push(delete);
            } else if delete.ports.keys().any(|name| self.attachments.rows.contains_key(name)) {
                if now >= delete.deadline
                    && let Some((call, error)) = delete.reply.take()
                {
                    let late = || {
                        let message = format!("Open vSwitch did not remove {} within {CALL_TIMEOUT:?}", delete.id);
                        CniError::try_again(message, OVS_HINT)
                    };
                    self.reply(call, Err(error.unwrap_or_else(late)));
                }
                remaining.push(delete);
            } else {
                remaining.extend(self.ports_are_gone(delete));
            }
        }
        self.attachments.deletes.append(&mut remaining);
    }

    /// The ports of an attachment are out of OVSDB: deletes its veths, and begins to release its addresses.
    fn ports_are_gone(&mut self, mut delete: Delete) -> Option<Delete> {
        for (name, netns) in std::mem::take(&mut delete.ports) {
            if !self.attachments.removals.contains_key(&name) {
                self.effects.push(Effect::DeleteVeth(name.clone()));
                self.attachments.removals.insert(name, netns);
            }
        }
        self.attachments.version += 1;
        let releases = &mut self.attachments.releases;
        match delete.addresses {
            Addresses::Keep => {}
            Addresses::Flush => {
                let flows = ReleaseState::Flows(delete.round);
                releases.entry(delete.id.clone()).or_insert_with(|| Release::new(flows, true));
            }
            // A release in progress is left alone.
            Addresses::Release if releases.contains_key(&delete.id) => {}
            Addresses::Release => {
                releases.insert(delete.id.clone(), Release::new(ReleaseState::Running, false));
                self.effects.push(Effect::Release { id: delete.id.clone(), flush: false });
                delete.is_releasing = true;
                return Some(delete);
            }
        }
        if let Some((call, error)) = delete.reply {
            self.reply(call, error.map_or(Ok(None), Err));
        }
        None
    }

    pub(super) fn advance_releases(&mut self, now: Time) {
        for (id, release) in &mut self.attachments.releases {
            let is_due = match release.state {
                ReleaseState::Flows(round) => self.convergence.is_installed(round),
                ReleaseState::Running => false,
                ReleaseState::RetryAt(at) => at <= now,
            };
            if is_due {
                release.state = ReleaseState::Running;
                self.effects.push(Effect::Release { id: id.clone(), flush: release.flush });
            }
        }
    }
}
