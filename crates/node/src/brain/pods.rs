//! Pods of this Node: their ports in OVSDB, and the CNI calls that attach and detach them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use types::Mac;
use types::host::PodLink;

use super::Brain;
use crate::attachments::{
    Add, AddRequest, AddStep, Addresses, AttachmentId, CALL_TIMEOUT, CallId, CniError, CniErrorKind, Connect, Delete,
    PodEntry, Prepared, Release, ReleaseState, interface_name,
};
use crate::database::{Assigned, BridgeSpec, Desired, PodPort, PortRow};
use crate::effect::{Effect, Notice};
use crate::event::{AllocationError, CniEvent, PortEvent, Source, Time};
use crate::owner::Owner;

/// Hint for operators if the switch does not respond.
const OVS_HINT: &str = "is ovs-vswitchd running? See the log of antrea-agent";

impl Brain {
    /// The ports of Pods that are attached, or about to be.
    pub fn pod_ports(&self) -> impl Iterator<Item = &PodPort> {
        self.attachments.pods.values().map(|entry| &entry.port)
    }

    /// Whether CNI calls are accepted.
    pub fn accepts_calls(&self) -> bool {
        self.attachments.is_open
    }

    /// Whether no veth is being deleted, and no address is being released.
    pub fn is_idle(&self) -> bool {
        let attachments = &self.attachments;
        attachments.deletes.is_empty() && attachments.removals.is_empty() && attachments.releases.is_empty()
    }

    /// The desired state of OVSDB, with this bridge.
    pub fn database(&self, bridge: BridgeSpec) -> Desired {
        let expected = |entry: &&PodEntry| entry.is_in_bridge && entry.is_expected;
        let pods = self.attachments.pods.values().filter(expected);
        let pods = pods.map(|entry| (entry.port.name.clone(), (entry.port.clone(), entry.requested))).collect();
        Desired { bridge, pods, removed: self.attachments.removed() }
    }

    /// Increases whenever [`Brain::database`] may have changed.
    pub fn database_version(&self) -> u64 {
        self.attachments.version
    }

    /// The veth of a Pod.
    pub fn link_of(&self, port: &PodPort, mtu: Option<u32>) -> PodLink {
        let family = |ip: &IpAddr| self.own.families().find(|address| address.pod_cidr.contains(ip));
        let with_prefix = |ip: &IpAddr| IpNet::new(*ip, family(ip)?.pod_cidr.prefix_len()).ok();
        PodLink {
            netns: port.netns.clone().into(),
            container_device: port.device.clone(),
            host_device: port.name.clone(),
            mac: port.mac,
            addresses: port.addresses.iter().filter_map(with_prefix).collect(),
            gateways: port.addresses.iter().filter_map(|ip| Some(family(ip)?.gateway)).collect(),
            routes: Vec::new(),
            mtu: mtu.unwrap_or(self.own.mtu).min(self.own.mtu),
            datapath: self.own.datapath,
        }
    }

    pub(super) fn port_event(&mut self, event: PortEvent) {
        match event {
            PortEvent::Set(row) => self.port_set(*row),
            PortEvent::Gone(name) => {
                self.attachments.rows.remove(&name);
                match self.attachments.pods.get(&name) {
                    Some(entry) if !entry.is_expected => self.forget_pod(&name),
                    Some(entry) if entry.is_in_bridge => {
                        let pod = entry.port.pod.clone();
                        self.log(Notice::PortRemoved { interface: name, pod });
                    }
                    _ => {}
                }
            }
            PortEvent::Failed { name, problem } => {
                let message = format!("cannot add interface {name} to the bridge: {problem}");
                for add in self.attachments.adds.values_mut() {
                    if let AddStep::Connect(connect) = &mut add.step
                        && connect.port.name == name
                    {
                        connect.failure.get_or_insert(CniError::new(CniErrorKind::Interface, message.clone()));
                    }
                }
            }
        }
    }

    fn port_set(&mut self, row: PortRow) {
        let name = row.name.clone();
        if let Some(port) = row.pod.clone().filter(|_| !self.attachments.is_being_removed(&name)) {
            let requested = row.requested.or(row.assigned.port());
            let is_expected = !self.synced.contains(&Source::Interfaces);
            let entry = PodEntry { port, requested, is_in_bridge: true, is_expected };
            match self.attachments.pods.get_mut(&name) {
                // The row does not describe what a call has attached: the reconciler of OVSDB repairs it.
                Some(known) if known.is_expected && !is_expected => {}
                Some(known) => *known = entry,
                None => _ = self.attachments.pods.insert(name.clone(), entry),
            }
        }
        if let (Assigned::Failed(reason), Some(entry)) = (&row.assigned, self.attachments.pods.get(&name))
            && self.attachments.reported.insert(name.clone())
        {
            let (pod, reason) = (entry.port.pod.clone(), reason.clone());
            self.log(Notice::UnusableInterface { interface: name.clone(), pod, reason });
        }
        if row.assigned.port().is_some() {
            self.attachments.reported.remove(&name);
        }
        self.attachments.rows.insert(name.clone(), row);
        self.renumber(&name);
    }

    /// Updates the flows of a Pod whose OpenFlow port may have changed.
    fn renumber(&mut self, name: &str) {
        let (Some(entry), Some(number)) = (self.attachments.pods.get(name), self.attachments.number(name)) else {
            return;
        };
        let interface = entry.port.interface(number);
        if self.interfaces.get(name).is_some_and(|before| before.port != interface.port) {
            self.log(Notice::NewPort { interface: name.to_owned(), port: number });
        }
        self.attached(interface);
    }

    fn forget_pod(&mut self, name: &str) {
        self.attachments.pods.remove(name);
        self.attachments.version += 1;
        self.detached(name);
    }

    pub(super) fn cni_event(&mut self, now: Time, event: CniEvent) {
        match event {
            CniEvent::Open => self.attachments.is_open = true,
            CniEvent::Add { call, request } => {
                if self.attachments.is_open && self.is_ready() {
                    let add = Add { request: *request, deadline: now + CALL_TIMEOUT, step: AddStep::Release };
                    self.attachments.adds.insert(call, add);
                } else {
                    self.reply(call, Err(CniError::not_ready()));
                }
            }
            CniEvent::Delete { call, id, pod } => {
                if self.attachments.is_open {
                    self.delete(now, id, pod.as_deref(), Some((call, None)));
                } else {
                    self.reply(call, Err(CniError::not_ready()));
                }
            }
            CniEvent::Collect(names) => {
                for name in names {
                    if let Some(port) = self.attachments.pods.get(&name).map(|entry| entry.port.clone()) {
                        let id = AttachmentId { container: port.container, device: port.device };
                        self.delete_ports(now, id, [(name, Some(port.netns))].into(), None, Addresses::Flush);
                    }
                }
            }
            CniEvent::Allocated { call, outcome } => self.allocated(now, call, outcome),
            CniEvent::Checked { call, is_same } => self.checked(now, call, is_same),
            CniEvent::VethCreated { call } => {
                if let Some(Connect { port, .. }) = self.connecting(call) {
                    let name = port.name.clone();
                    if let Some(entry) = self.attachments.pods.get_mut(&name) {
                        entry.is_in_bridge = true;
                        self.attachments.version += 1;
                    }
                }
            }
            CniEvent::VethAttached { call, outcome } => {
                if let Some(connect) = self.connecting(call) {
                    connect.has_veth = true;
                    fail(connect, outcome);
                }
            }
            CniEvent::AddressesPrepared { call, outcome } => {
                if let Some(connect) = self.connecting(call) {
                    connect.addresses = Prepared::Done;
                    fail(connect, outcome);
                }
            }
            CniEvent::VethDeleted { name, outcome } => {
                self.attachments.removals.remove(&name);
                if let Err(problem) = outcome {
                    self.log(Notice::VethNotDeleted { interface: name, problem });
                }
            }
            CniEvent::Released { id, outcome } => self.released(now, &id, outcome),
        }
    }

    fn connecting(&mut self, call: CallId) -> Option<&mut Connect> {
        match &mut self.attachments.adds.get_mut(&call)?.step {
            AddStep::Connect(connect) => Some(connect),
            _ => None,
        }
    }

    fn allocated(&mut self, now: Time, call: CallId, outcome: Result<Vec<IpAddr>, AllocationError>) {
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
        let before = self.attachments.pods.get(&port.name).map(|entry| entry.port == port);
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
    fn checked(&mut self, now: Time, call: CallId, is_same: bool) {
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

    /// Removes whatever exists of an attachment.
    fn delete(&mut self, now: Time, id: AttachmentId, pod: Option<&str>, reply: Option<(CallId, Option<CniError>)>) {
        // An interrupted call may have left a veth without a port.
        let mut ports: BTreeMap<String, Option<String>> =
            pod.map(|pod| (interface_name(pod, &id.container), None)).into_iter().collect();
        let attached: BTreeMap<_, _> =
            self.attachments.ports_of(&id).map(|port| (port.name.clone(), Some(port.netns.clone()))).collect();
        let addresses = if attached.is_empty() { Addresses::Release } else { Addresses::Flush };
        ports.extend(attached);
        self.delete_ports(now, id, ports, reply, addresses);
    }

    fn delete_ports(
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
        let deadline = now + CALL_TIMEOUT;
        self.attachments.deletes.push(Delete { id, reply, deadline, ports, addresses, is_releasing: false });
    }

    fn released(&mut self, now: Time, id: &AttachmentId, outcome: Result<(), CniError>) {
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

    /// Continues calls, as far as what they wait for is there; returns whether flows may have changed.
    pub(super) fn advance_attachments(&mut self, now: Time) -> bool {
        let calls: Vec<CallId> = self.attachments.adds.keys().copied().collect();
        let mut has_changed = false;
        for call in calls {
            has_changed |= self.advance_add(now, call);
        }
        self.advance_deletes(now);
        self.advance_releases(now);
        has_changed
    }

    fn advance_add(&mut self, now: Time, call: CallId) -> bool {
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
        let connect =
            Connect { port: port.clone(), link: link.clone(), has_veth: false, addresses: Prepared::No, failure: None };
        add.step = AddStep::Connect(Box::new(connect));
        add.deadline = now + CALL_TIMEOUT;
        let name = port.name.clone();
        self.attachments
            .pods
            .insert(name.clone(), PodEntry { port, requested, is_in_bridge: false, is_expected: true });
        self.renumber(&name);
        self.effects.push(Effect::CreateVeth { call, link });
    }

    /// Whether flows have changed.
    fn advance_connect(&mut self, now: Time, call: CallId) -> bool {
        let Some(Add { request, deadline, step: AddStep::Connect(connect) }) = self.attachments.adds.get(&call) else {
            return false;
        };
        let Connect { port, link, has_veth, addresses, failure } = &**connect;
        let (has_veth, addresses) = (*has_veth, *addresses);
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
        let is_installed = self.is_settled() && self.interfaces.contains_key(&port.name) && !self.is_held(&owner);
        if !is_installed {
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
        if !self.is_settled() {
            return None;
        }
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

    fn advance_deletes(&mut self, now: Time) {
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
            Addresses::Flush => _ = releases.entry(delete.id.clone()).or_insert_with(|| Release::new(true)),
            // A release in progress is left alone.
            Addresses::Release if releases.contains_key(&delete.id) => {}
            Addresses::Release => {
                releases.insert(delete.id.clone(), Release { state: ReleaseState::Running, ..Release::new(false) });
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

    fn advance_releases(&mut self, now: Time) {
        if !self.is_settled() {
            return;
        }
        for (id, release) in &mut self.attachments.releases {
            let is_due = match release.state {
                ReleaseState::Settle => true,
                ReleaseState::Running => false,
                ReleaseState::RetryAt(at) => at <= now,
            };
            if is_due {
                release.state = ReleaseState::Running;
                self.effects.push(Effect::Release { id: id.clone(), flush: release.flush });
            }
        }
    }

    fn reply(&mut self, call: CallId, outcome: Result<Option<PodLink>, CniError>) {
        self.effects.push(Effect::Reply { call, outcome });
    }
}

fn fail(connect: &mut Connect, outcome: Result<(), String>) {
    if let Err(problem) = outcome {
        connect.failure.get_or_insert(CniError::new(CniErrorKind::Interface, problem));
    }
}
