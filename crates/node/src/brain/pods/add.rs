//! CNI ADD: allocates addresses, creates the veth, connects it, and rolls back if a step fails.

use std::net::IpAddr;
use std::sync::Arc;

use types::Mac;

use super::OVS_HINT;
use crate::attachments::{
    Add, AddRequest, AddStep, Addresses, AttachmentId, CALL_TIMEOUT, CallId, CniError, CniErrorKind, Connect, PodEntry,
    Prepared, interface_name,
};
use crate::brain::Brain;
use crate::database::{Assigned, PodPort};
use crate::effect::{Effect, Notice};
use crate::event::{AllocationError, Time};
use crate::owner::Owner;

impl Brain {
    pub(super) fn connecting(&mut self, call: CallId) -> Option<&mut Connect> {
        match &mut self.attachments.adds.get_mut(&call)?.step {
            AddStep::Connect(connect) => Some(connect),
            _ => None,
        }
    }

    pub(super) fn allocated(&mut self, now: Time, call: CallId, outcome: Result<Vec<IpAddr>, AllocationError>) {
        let Some(Add { request, step: step @ AddStep::Addresses(_), .. }) = self.attachments.adds.get_mut(&call) else {
            return;
        };
        let addresses = match (outcome, &step) {
            (Ok(addresses), _) => addresses,
            // Addresses of deleted Pods may be released soon.
            (Err(AllocationError::Full(_)), AddStep::Addresses(pending @ 1..)) => {
                *step = AddStep::FreeAddress(*pending);
                return;
            }
            (Err(error), _) => return self.fail_add(now, call, CniError::new(CniErrorKind::Ipam, error.to_string())),
        };
        let Some(first) = addresses.first() else {
            return self.fail_add(now, call, CniError::new(CniErrorKind::Ipam, "this Node has no Pod subnet"));
        };
        let AddRequest { id, pod, uid, netns, mtu } = request.clone();
        let port = PodPort {
            name: interface_name(&pod.name, &id.container),
            container: id.container,
            pod,
            uid,
            mac: Mac::of_ip(*first),
            addresses,
            device: id.device,
            netns,
        };
        let link = self.link_of(&port, mtu);
        let before = self.attachments.pods.get(&port.name).map(|entry| *entry.port == port);
        if before == Some(true) {
            self.effects.push(Effect::CheckVeth { call, link: link.clone() });
            return self.set_step(call, AddStep::Check(port, link));
        }
        if before == Some(false) {
            self.replace(now, &port);
        }
        self.set_step(call, AddStep::Removals(port, link));
    }

    /// A repeated ADD of the same attachment succeeds if the veth is still as it should be.
    pub(super) fn checked(&mut self, now: Time, call: CallId, is_same: bool) {
        let Some(Add { step: AddStep::Check(port, link), .. }) = self.attachments.adds.get(&call) else { return };
        let (port, link) = (port.clone(), link.clone());
        if is_same {
            self.attachments.adds.remove(&call);
            return self.reply(call, Ok(Some(link)));
        }
        // The veth has drifted: create it again.
        self.replace(now, &port);
        self.set_step(call, AddStep::Removals(port, link));
    }

    /// Removes the port with the name of a new one.
    fn replace(&mut self, now: Time, port: &PodPort) {
        let id = AttachmentId { container: port.container.clone(), device: port.device.clone() };
        self.delete_ports(now, id, [(port.name.clone(), None)].into(), None, Addresses::Keep);
    }

    fn set_step(&mut self, call: CallId, step: AddStep) {
        if let Some(add) = self.attachments.adds.get_mut(&call) {
            add.step = step;
        }
    }

    /// Ends an ADD that has created nothing but may have allocated addresses.
    fn fail_add(&mut self, now: Time, call: CallId, error: CniError) {
        if let Some(add) = self.attachments.adds.remove(&call) {
            self.roll_back(now, call, add.request, error);
        }
    }

    fn roll_back(&mut self, now: Time, call: CallId, request: AddRequest, error: CniError) {
        self.log(Notice::RolledBack { pod: request.pod.clone(), problem: error.to_string() });
        self.delete(now, request.id, Some(&request.pod.name), Some((call, Some(error))));
    }

    pub(super) fn advance_add(&mut self, now: Time, call: CallId) -> bool {
        let Some(add) = self.attachments.adds.get(&call) else { return false };
        let is_late = now >= add.deadline;
        let id = &add.request.id;
        match &add.step {
            AddStep::Release if !self.attachments.releases.contains_key(id) => self.allocate(call),
            AddStep::Release if is_late => {
                let message = format!("addresses of container {} are still being released", id.container);
                self.fail_add(now, call, CniError::try_again(message, OVS_HINT));
            }
            AddStep::FreeAddress(pending) if self.attachments.releases.len() < *pending => self.allocate(call),
            AddStep::FreeAddress(_) if is_late => {
                let message = "all Pod addresses are in use, and some are still being released";
                self.fail_add(now, call, CniError::try_again(message, OVS_HINT));
            }
            AddStep::Removals(port, _) if !self.attachments.conflicts(&port.name, &port.netns) => {
                self.connect_pod(now, call);
                return true;
            }
            AddStep::Release
            | AddStep::Addresses(_)
            | AddStep::FreeAddress(_)
            | AddStep::Check(..)
            | AddStep::Removals(..) => {}
            AddStep::Connect(_) => return self.advance_connect(now, call),
        }
        false
    }

    fn allocate(&mut self, call: CallId) {
        let pending = self.attachments.releases.len();
        if let Some(add) = self.attachments.adds.get_mut(&call) {
            add.step = AddStep::Addresses(pending);
            self.effects.push(Effect::Allocate { call, id: add.request.id.clone() });
        }
    }

    /// Starts to create the veth, and installs flows meanwhile.
    fn connect_pod(&mut self, now: Time, call: CallId) {
        let requested = self.attachments.reserve();
        let Some(add) = self.attachments.adds.get_mut(&call) else { return };
        let AddStep::Removals(port, link) = &add.step else { return };
        let (port, link) = (port.clone(), link.clone());
        let connect = Connect {
            port: port.clone(),
            link: link.clone(),
            has_veth: false,
            desired_in: None,
            addresses: Prepared::No,
            failure: None,
        };
        add.step = AddStep::Connect(Box::new(connect));
        add.deadline = now + CALL_TIMEOUT;
        let name = port.name.clone();
        self.attachments
            .pods
            .insert(name.clone(), PodEntry { port: Arc::new(port), requested, is_in_bridge: false, is_expected: true });
        self.renumber(&name);
        self.effects.push(Effect::CreateVeth { call, link });
    }

    /// Whether flows have changed.
    fn advance_connect(&mut self, now: Time, call: CallId) -> bool {
        let Some(Add { request, deadline, step: AddStep::Connect(connect) }) = self.attachments.adds.get(&call) else {
            return false;
        };
        let Connect { port, link, has_veth, desired_in, addresses, failure } = &**connect;
        let (has_veth, desired_in, addresses) = (*has_veth, *desired_in, *addresses);
        let assigned = self.attachments.assigned(&port.name);
        let owner = Owner::Interface(port.name.clone());
        let failure = failure.clone().or_else(|| match assigned {
            Assigned::Failed(reason) => {
                let message = format!("Open vSwitch cannot use interface {}: {reason}", port.name);
                Some(CniError::new(CniErrorKind::Interface, message))
            }
            _ => self.rejected(&owner).or_else(|| (now >= *deadline).then(|| self.late(port))),
        });
        if let Some(error) = failure {
            if !has_veth {
                // It fails when the kernel has ended its part.
                if let Some(connect) = self.connecting(call) {
                    connect.failure = Some(error);
                }
                return false;
            }
            let request = request.clone();
            self.attachments.adds.remove(&call);
            self.roll_back(now, call, request, error);
            return true;
        }
        // The flows of a Pod without policies are not complete.
        let Some(interface) = self.interfaces.get(&port.name).filter(|_| !self.is_held(&owner)) else { return false };
        let desired_in =
            desired_in.filter(|(_, port)| *port == interface.port).unwrap_or((self.round(), interface.port));
        if !self.is_installed(desired_in.0) {
            if let Some(connect) = self.connecting(call) {
                connect.desired_in = Some(desired_in);
            }
            return false;
        }
        if addresses == Prepared::No {
            // Connections of the address belong to the Pod that had it before.
            let effect = Effect::PrepareAddresses { call, addresses: port.addresses.clone() };
            self.effects.push(effect);
            if let Some(connect) = self.connecting(call) {
                connect.addresses = Prepared::Running;
            }
        } else if addresses == Prepared::Done && has_veth && assigned.port().is_some() {
            let link = link.clone();
            self.attachments.adds.remove(&call);
            self.effects.push(Effect::Announce(link.clone()));
            self.reply(call, Ok(Some(link)));
        }
        false
    }

    fn rejected(&self, owner: &Owner) -> Option<CniError> {
        let rejections = self.switch.rejections();
        let rejection = rejections.iter().find(|rejection| rejection.owners.contains(owner))?;
        let message = format!("the switch rejected {}: {}", rejection.subject, rejection.reason);
        Some(CniError::new(CniErrorKind::Interface, message))
    }

    /// The error of a Pod that was not connected in time.
    fn late(&self, port: &PodPort) -> CniError {
        if self.is_held(&Owner::Interface(port.name.clone())) {
            let message =
                format!("antrea-controller did not send the policies of Pod {} within {CALL_TIMEOUT:?}", port.pod);
            let hint = "is antrea-controller running, and can it list the Pod? See the log of antrea-agent";
            return CniError::try_again(message, hint);
        }
        let message = format!("Open vSwitch did not connect interface {} within {CALL_TIMEOUT:?}", port.name);
        CniError::try_again(message, OVS_HINT)
    }
}

pub(super) fn fail(connect: &mut Connect, outcome: Result<(), String>) {
    if let Err(problem) = outcome {
        connect.failure.get_or_insert(CniError::new(CniErrorKind::Interface, problem));
    }
}
