//! Any of the objects.

use crate::network_policy::NetworkPolicy;
use crate::node::{Namespace, Node};
use crate::pod::Pod;
use crate::service::{EndpointSlice, Service};

/// An object of one of the kinds that are used here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Object {
    /// A Namespace.
    Namespace(Namespace),
    /// A Node.
    Node(Node),
    /// A Pod.
    Pod(Box<Pod>),
    /// A Service.
    Service(Box<Service>),
    /// Some of a Service's endpoints.
    EndpointSlice(EndpointSlice),
    /// A NetworkPolicy.
    NetworkPolicy(Box<NetworkPolicy>),
}
