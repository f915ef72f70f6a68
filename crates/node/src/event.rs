//! Inputs of the brain, in one type that can be recorded and replayed.
//!
//! Events have no secrets: tokens, keys and certificates stay in the rim.

pub(crate) mod wire;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use openflow::flow::Flow;
use openflow::group::Group;
use openflow::port::Port;
use policy::Waiting;
use serde::{Deserialize, Serialize};
use types::control::Batch;
use types::network_policy::NetworkPolicy;
use types::node::Node;
use types::service::{EndpointSlice, Service};
use types::{Mac, ObjectName};

use crate::attachments::{AddRequest, AttachmentId, CallId, CniError};
use crate::brain::Resume;
use crate::database::PortRow;

/// Time since the agent's start.
pub type Time = Duration;

/// A change of a Kubernetes object.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Change<T> {
    /// The object was added or modified.
    Set(T),
    /// The object was deleted.
    Gone(ObjectName),
}

/// Input sources that must finish their initial sync.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize, Serialize)]
pub enum Source {
    /// Watch of Node objects.
    Nodes,
    /// Watch of Service objects.
    Services,
    /// Watch of EndpointSlice objects.
    EndpointSlices,
    /// The Pod interfaces on the bridge.
    Interfaces,
    /// The policies and groups from the controller.
    Policies,
    /// The flows and groups that the switch had when the agent connected.
    Switch,
}

impl Source {
    /// All sources; each must be in sync before a sweep.
    pub const ALL: [Source; 6] =
        [Source::Nodes, Source::Services, Source::EndpointSlices, Source::Interfaces, Source::Policies, Source::Switch];

    /// Whether Services need it to be rendered. Nodes are needed for their zones, which select endpoints.
    pub(crate) fn needed_for_services(self) -> bool {
        matches!(self, Source::Nodes | Source::Services | Source::EndpointSlices)
    }
}

/// The interface of a Pod on the bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Interface name on the host.
    pub name: String,
    /// Namespace and name of the Pod.
    pub pod: ObjectName,
    /// UID of the Pod; empty if the runtime did not pass it.
    pub uid: String,
    /// OpenFlow port on the bridge.
    pub port: Port,
    /// MAC of the Pod.
    pub mac: Mac,
    /// The Pod's addresses, at most one for each family.
    pub addresses: Vec<IpAddr>,
}

/// An input of the brain.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Event {
    /// A Node was set or deleted, possibly this one.
    Node(Change<Node>),
    /// A Service was set or deleted.
    Service(Change<Box<Service>>),
    /// An EndpointSlice was set or deleted.
    EndpointSlice(Change<EndpointSlice>),
    /// A source has finished its initial sync.
    Synced(Source),
    /// From the stream of the controller.
    Controller(ControllerEvent),
    /// From the connection to the switch.
    Switch(SwitchEvent),
    /// From the bridge's rows in OVSDB.
    Port(PortEvent),
    /// A CNI call, or the result of one of its effects.
    Cni(CniEvent),
    /// A checkpoint of a recording: history of the brain that recorded it.
    Resume(Box<Resume>),
    /// A wake-up time has come.
    Tick,
}

/// What is known of the controller's objects in the Kubernetes API.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub struct Discovery {
    /// Whether the initial sync is complete.
    pub is_synced: bool,
    /// Whether the cluster has a controller, running or not.
    pub is_deployed: bool,
    /// Whether there is a policy snapshot on disk, readable or not: then the cluster has had a controller.
    pub has_snapshot: bool,
    /// Addresses of ready replicas, sorted.
    pub addresses: Vec<SocketAddr>,
}

/// An event of the stream from the controller. Events of an earlier attempt to connect are ignored.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[expect(missing_docs, reason = "the fields are named after what they are")]
pub enum ControllerEvent {
    /// The controller's objects in the Kubernetes API have changed.
    Discovered(Discovery),
    /// The stream is established.
    Connected { attempt: u64 },
    /// The attempt failed, or the stream ended.
    Disconnected { attempt: u64, reason: String },
    /// Policies arrived on the stream.
    Batch { attempt: u64, batch: Batch },
    /// The snapshot on disk was read; `None` if there is none, or it is not usable.
    Restored(Option<Batch>),
    /// The Kubernetes API was asked for a waiting Pod and the policies of its namespace.
    ReadPolicies { pod: ObjectName, outcome: Result<(Waiting, Vec<NetworkPolicy>), String> },
}

/// An event of the switch.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum SwitchEvent {
    /// Connected; the number of the connection.
    Up(u64),
    /// The connection was lost.
    Down,
    /// Some of the groups that the switch has.
    Groups(#[serde(with = "wire::groups")] Vec<Group>),
    /// Some of the flows that the switch has.
    Flows(#[serde(with = "wire::flows")] Vec<Flow>),
    /// All groups and flows were listed, or listing them failed.
    Listed(Result<(), String>),
    /// The bundle was committed, or why not.
    Committed(Result<(), CommitError>),
}

/// Why a bundle was not committed.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, thiserror::Error)]
pub enum CommitError {
    /// The switch is as before.
    #[error("{0}")]
    NotCommitted(String),
    /// The switch may have committed it.
    #[error("{0}")]
    OutcomeUnknown(String),
    /// The switch rejected one message, and committed none.
    #[error("the switch rejected message {index} of the bundle: {reason}")]
    #[expect(missing_docs, reason = "the names say it")]
    Rejected { index: usize, reason: String },
}

/// A change of the bridge's ports in OVSDB.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum PortEvent {
    /// A port was added or changed.
    Set(Box<PortRow>),
    /// The port with this name was removed.
    Gone(String),
    /// The port with this name cannot be written; the reconciler retries.
    #[expect(missing_docs, reason = "the names say it")]
    Failed { name: String, problem: String },
}

/// A CNI call, or the result of one of its effects.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[expect(missing_docs, reason = "the fields are named after what they are")]
pub enum CniEvent {
    /// The leftovers of earlier calls are collected: calls are accepted from now on.
    Open,
    /// The runtime calls ADD.
    Add { call: CallId, request: Box<AddRequest> },
    /// The runtime calls DEL. The name of the Pod may be unknown.
    Delete { call: CallId, id: AttachmentId, pod: Option<String> },
    /// The runtime, or the collection of leftovers, knows that these ports are not in use.
    Collect(Vec<String>),
    /// The IPAM store has allocated addresses, or why not.
    Allocated { call: CallId, outcome: Result<Vec<IpAddr>, AllocationError> },
    /// The veth of an attached Pod was compared with its description.
    Checked { call: CallId, is_same: bool },
    /// The host end of the veth exists, so that it can be added to the bridge.
    VethCreated { call: CallId },
    /// The veth is complete, with addresses and routes in the Pod, or why not.
    VethAttached { call: CallId, outcome: Result<(), String> },
    /// Old connections of the addresses are flushed, or why not.
    AddressesPrepared { call: CallId, outcome: Result<(), String> },
    /// The veth with this name is deleted, or why not.
    VethDeleted { name: String, outcome: Result<(), String> },
    /// The addresses of an attachment are released, or why not.
    Released { id: AttachmentId, outcome: Result<(), CniError> },
}

/// Why no address was allocated.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize, thiserror::Error)]
pub enum AllocationError {
    /// All addresses are in use.
    #[error("{0}")]
    Full(String),
    /// The IPAM store cannot be used.
    #[error("{0}")]
    Store(String),
}
