//! Pods of this Node: their ports in OVSDB, and the CNI calls that attach and detach them.

mod add;
mod delete;

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use types::host::PodLink;

use super::Brain;
use crate::attachments::{
    Add, AddStep, Addresses, AttachmentId, CALL_TIMEOUT, CallId, CniError, CniErrorKind, Connect, PodEntry, Prepared,
};
use crate::database::{Assigned, BridgeSpec, Desired, PodPort, PortRow};
use crate::effect::{Effect, Notice};
use crate::event::{CniEvent, PortEvent, Source, Time};
use add::fail;

/// Hint for operators if the switch does not respond.
const OVS_HINT: &str = "is ovs-vswitchd running? See the log of antrea-agent";

impl Brain {
    /// The ports of Pods that are attached, or about to be.
    pub fn pod_ports(&self) -> impl Iterator<Item = &PodPort> {
        self.attachments.pods.values().map(|entry| &*entry.port)
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
        let pods = pods.map(|entry| (entry.port.name.clone(), (Arc::clone(&entry.port), entry.requested))).collect();
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
            let entry = PodEntry { port: Arc::new(port), requested, is_in_bridge: true, is_expected };
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
                    if let Some(port) = self.attachments.pods.get(&name).map(|entry| Arc::clone(&entry.port)) {
                        let id = AttachmentId { container: port.container.clone(), device: port.device.clone() };
                        self.delete_ports(now, id, [(name, Some(port.netns.clone()))].into(), None, Addresses::Flush);
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

    fn reply(&mut self, call: CallId, outcome: Result<Option<PodLink>, CniError>) {
        self.effects.push(Effect::Reply { call, outcome });
    }
}
