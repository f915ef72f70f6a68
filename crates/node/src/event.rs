//! What happens to a Node.

use std::net::IpAddr;

use openflow::port::Port;
use types::node::Node;
use types::service::{EndpointSlice, Service};
use types::{Mac, ObjectName};

/// Something new about an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change<T> {
    /// It is there, and like this.
    Set(T),
    /// It is gone.
    Gone(ObjectName),
}

/// Whence the brain knows what it knows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// The cluster's Nodes.
    Nodes,
    /// Its Services.
    Services,
    /// Their endpoints.
    EndpointSlices,
    /// The Pods that are attached to the bridge.
    Interfaces,
    /// What the controller says of policies.
    Policies,
    /// What the switch held when the agent connected to it.
    Switch,
}

impl Source {
    /// All that have to be in sync before anything is swept.
    pub const ALL: [Source; 6] =
        [Source::Nodes, Source::Services, Source::EndpointSlices, Source::Interfaces, Source::Policies, Source::Switch];

    /// Whether Services cannot be rendered without it. A Node's zone says which endpoints are for it.
    pub(crate) fn tells_of_services(self) -> bool {
        matches!(self, Source::Nodes | Source::Services | Source::EndpointSlices)
    }
}

/// A Pod's end at the bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name on the host.
    pub name: String,
    /// The Pod.
    pub pod: ObjectName,
    /// What tells it from others of its name; empty where the runtime did not say.
    pub uid: String,
    /// Its port on the bridge.
    pub port: Port,
    /// The Pod's Ethernet address.
    pub mac: Mac,
    /// The Pod's addresses, at most one a family.
    pub addresses: Vec<IpAddr>,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// To a Node of the cluster, perhaps this one.
    Node(Change<Node>),
    /// To a Service.
    Service(Change<Box<Service>>),
    /// To some of the endpoints of a Service.
    EndpointSlice(Change<EndpointSlice>),
    /// A Pod is attached to the bridge, or is about to be by this number, or is attached otherwise than before.
    Attached(Interface),
    /// The interface with this name is no longer attached.
    Detached(String),
    /// Nobody enforces policies in this cluster: Pods need not wait for them.
    Unpoliced,
    /// There is somebody who enforces policies, though nothing was heard yet: Pods that come from now on wait.
    Policed,
    /// Everything that a source knows has been said.
    Synced(Source),
}
