//! CNI calls as state machines: the order of the steps of ADD and DEL, their rollback, and removals that outlive a call.
//!
//! ```text
//!  ADD: release of the same attachment ends -> allocate addresses -> conflicting removals end
//!         -> create the veth         -> port in OVSDB -> OpenFlow port assigned ─┐
//!         -> flows in the switch     -> old connections flushed ─────────────────┴-> reply, announce
//!  DEL: flows and port out -> delete the veth, reply -> flows out of the switch -> flush, release addresses
//! ```
//!
//! The steps of both lines of ADD run at the same time: the flows need only the requested OpenFlow port. If a step fails, the call
//! waits for steps that are still running, and then does what DEL does. DEL replies before the veth is deleted and before the addresses
//! are released, because a Pod without a port is disconnected; a later ADD waits for removals of what it is about to use.

mod interface_name;
mod numbers;

pub use interface_name::interface_name;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use openflow::port::Port;
use serde::{Deserialize, Serialize};
use types::ObjectName;
use types::backoff::Backoff;
use types::host::PodLink;

use crate::database::{Assigned, PodPort, PortRow};
use crate::event::Time;
use numbers::Numbers;

/// How long a call may take.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Identifies a CNI call in progress.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
pub struct CallId(pub u64);

/// An interface of a container: what ADD creates and DEL removes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
pub struct AttachmentId {
    /// Container ID of the Pod's sandbox.
    pub container: String,
    /// Name of the interface in the Pod.
    pub device: String,
}

impl fmt::Display for AttachmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interface {} of container {}", self.device, self.container)
    }
}

/// The parameters of ADD.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct AddRequest {
    /// The attachment to create.
    pub id: AttachmentId,
    /// Namespace and name of the Pod.
    pub pod: ObjectName,
    /// UID of the Pod; empty if the runtime does not pass it.
    pub uid: String,
    /// Path of the Pod's network namespace.
    pub netns: String,
    /// MTU of the Pod's interface, if the network configuration has one.
    pub mtu: Option<u32>,
}

/// Why a CNI call failed.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct CniError {
    /// What the runtime can do about it.
    pub kind: CniErrorKind,
    /// What went wrong, with the name of the object.
    pub message: String,
    /// What to look at; empty if there is nothing to add.
    pub hint: String,
}

/// Classes of CNI errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum CniErrorKind {
    /// No address could be allocated.
    Ipam,
    /// The interface could not be connected.
    Interface,
    /// The same call may succeed later.
    TryAgain,
}

impl CniError {
    pub(crate) fn new(kind: CniErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: String::new() }
    }

    /// The error of every call before [`crate::CniEvent::Open`], and of ADD until the agent is ready.
    pub fn not_ready() -> Self {
        let hint = "antrea-agent waits for Open vSwitch, the Kubernetes API or antrea-controller; see its log";
        Self::try_again("the network of this Node is not ready", hint)
    }

    pub(crate) fn try_again(message: impl Into<String>, hint: &str) -> Self {
        Self { kind: CniErrorKind::TryAgain, message: message.into(), hint: hint.to_owned() }
    }
}

/// A Pod that is attached, or about to be.
#[derive(Debug)]
pub(crate) struct PodEntry {
    pub(crate) port: Arc<PodPort>,
    pub(crate) requested: Option<u16>,
    /// Whether OVSDB should have the port: its veth exists.
    pub(crate) is_in_bridge: bool,
    /// Whether the port is added again when another program removes it. Not if it appeared without a call.
    pub(crate) is_expected: bool,
}

/// An ADD in progress.
#[derive(Debug)]
pub(crate) struct Add {
    pub(crate) request: AddRequest,
    pub(crate) deadline: Time,
    pub(crate) step: AddStep,
}

/// What an ADD waits for.
#[derive(Debug)]
pub(crate) enum AddStep {
    /// The addresses of an earlier attachment with the same ID are being released.
    Release,
    /// Addresses from the IPAM store, of which this many attachments were being released when they were requested.
    Addresses(usize),
    /// All addresses are in use, but this many attachments are being released.
    FreeAddress(usize),
    /// The same attachment exists: is its veth as it should be?
    Check(PodPort, PodLink),
    /// The removal of a veth with the same name or in the same network namespace.
    Removals(PodPort, PodLink),
    /// The veth, the OpenFlow port, flows, and connections.
    Connect(Box<Connect>),
}

/// The last step of an ADD.
#[derive(Debug)]
pub(crate) struct Connect {
    pub(crate) port: PodPort,
    pub(crate) link: PodLink,
    /// Whether the veth is complete. A call does not end before.
    pub(crate) has_veth: bool,
    /// The round in which the flows were desired, with this OpenFlow port.
    pub(crate) desired_in: Option<(u64, Port)>,
    pub(crate) addresses: Prepared,
    pub(crate) failure: Option<CniError>,
}

/// Whether old connections of a Pod's addresses are flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Prepared {
    No,
    Running,
    Done,
}

/// A DEL, or a rollback.
#[derive(Debug)]
pub(crate) struct Delete {
    pub(crate) id: AttachmentId,
    /// The call to answer, and what ADD failed with.
    pub(crate) reply: Option<(CallId, Option<CniError>)>,
    pub(crate) deadline: Time,
    /// Ports to remove, each with the Pod's network namespace if it is known.
    pub(crate) ports: BTreeMap<String, Option<String>>,
    pub(crate) addresses: Addresses,
    /// The first round without the flows.
    pub(crate) round: u64,
    /// The ports are removed, and addresses without connections are being released.
    pub(crate) is_releasing: bool,
}

/// What happens to the addresses of a deleted attachment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Addresses {
    /// The attachment is created again with them.
    Keep,
    /// It had a port: the switch may track their connections.
    Flush,
    /// It had no port: there are no connections, or the next ADD flushes them.
    Release,
}

/// The release of an attachment's addresses, after its ports are removed.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) state: ReleaseState,
    pub(crate) backoff: Backoff,
    pub(crate) flush: bool,
}

/// What a release waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReleaseState {
    /// The flows of the Pod must leave the switch, in this round: they could create a flushed connection again.
    Flows(u64),
    Running,
    RetryAt(Time),
}

impl Release {
    pub(crate) fn new(state: ReleaseState, flush: bool) -> Self {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
        Self { state, backoff, flush }
    }
}

/// All calls in progress, the Pods of this Node, and the ports that OVSDB has.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    pub(crate) is_open: bool,
    pub(crate) pods: BTreeMap<String, PodEntry>,
    pub(crate) rows: BTreeMap<String, PortRow>,
    pub(crate) adds: BTreeMap<CallId, Add>,
    pub(crate) deletes: Vec<Delete>,
    /// Veths that are being deleted, each with the Pod's network namespace if it is known.
    pub(crate) removals: BTreeMap<String, Option<String>>,
    pub(crate) releases: BTreeMap<AttachmentId, Release>,
    pub(crate) numbers: Numbers,
    /// Unusable interfaces that have been logged.
    pub(crate) reported: BTreeSet<String>,
    /// Increases whenever the desired ports may have changed.
    pub(crate) version: u64,
}

impl Attachments {
    /// The OpenFlow port of a Pod: the assigned one, or the requested one until then.
    pub(crate) fn number(&self, name: &str) -> Option<u16> {
        let assigned = self.rows.get(name).and_then(|row| row.assigned.port());
        assigned.or_else(|| self.pods.get(name)?.requested)
    }

    /// What the switch says of a Pod's interface.
    pub(crate) fn assigned(&self, name: &str) -> &Assigned {
        self.rows.get(name).map_or(&Assigned::Pending, |row| &row.assigned)
    }

    /// A free OpenFlow port to request; `None` if all are in use.
    pub(crate) fn reserve(&mut self) -> Option<u16> {
        let rows = self.rows.values().flat_map(|row| [row.requested, row.assigned.port()]);
        // A removed port is added again with the same OpenFlow port.
        let pods = self.pods.values().map(|pod| pod.requested);
        let taken = rows.chain(pods).flatten().collect();
        self.numbers.reserve(&taken)
    }

    /// Names of ports that are being removed.
    pub(crate) fn removed(&self) -> BTreeSet<String> {
        self.deletes.iter().flat_map(|delete| delete.ports.keys().cloned()).collect()
    }

    pub(crate) fn is_being_removed(&self, name: &str) -> bool {
        self.deletes.iter().any(|delete| delete.ports.contains_key(name))
    }

    /// The ports of an attachment.
    pub(crate) fn ports_of<'a>(&'a self, id: &'a AttachmentId) -> impl Iterator<Item = &'a PodPort> {
        self.pods
            .values()
            .map(|entry| &*entry.port)
            .filter(|port| port.container == id.container && port.device == id.device)
    }

    /// Whether a new veth has to wait for the removal of another: with the same name, or in the same network namespace.
    pub(crate) fn conflicts(&self, name: &str, netns: &str) -> bool {
        self.removals.iter().any(|(removed, of)| removed == name || of.as_deref() == Some(netns))
            || self.is_being_removed(name)
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        let adds = self.adds.values().map(|add| add.deadline);
        let deletes = self.deletes.iter().filter(|delete| delete.reply.is_some()).map(|delete| delete.deadline);
        let releases = self.releases.values().filter_map(|release| match release.state {
            ReleaseState::RetryAt(at) => Some(at),
            ReleaseState::Flows(_) | ReleaseState::Running => None,
        });
        adds.chain(deletes).chain(releases).min()
    }
}
