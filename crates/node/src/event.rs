//! Inputs of the brain.

use std::net::IpAddr;

use openflow::port::Port;
use types::node::Node;
use types::service::{EndpointSlice, Service};
use types::{Mac, ObjectName};

/// A change of a Kubernetes object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change<T> {
    /// The object was added or modified.
    Set(T),
    /// The object was deleted.
    Gone(ObjectName),
}

/// Input sources that must finish their initial sync.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A Node was set or deleted, possibly this one.
    Node(Change<Node>),
    /// A Service was set or deleted.
    Service(Change<Box<Service>>),
    /// An EndpointSlice was set or deleted.
    EndpointSlice(Change<EndpointSlice>),
    /// A Pod is attached to the bridge, or will be with this port number, or has a new port.
    Attached(Interface),
    /// The interface with this name was detached.
    Detached(String),
    /// No controller is deployed in this cluster: Pods need not wait for policies.
    Unpoliced,
    /// A controller is deployed but has not sent anything yet: new Pods wait for it.
    Policed,
    /// A source has finished its initial sync.
    Synced(Source),
}
