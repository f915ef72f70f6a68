//! An object of any kind.

use crate::network_policy::NetworkPolicy;
use crate::node::{Namespace, Node};
use crate::pod::Pod;
use crate::service::{EndpointSlice, Service};

/// An object of one of the kinds that the programs watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Object {
    /// Labels for namespace selectors.
    Namespace(Namespace),
    /// Addresses and Pod CIDRs.
    Node(Node),
    /// Addresses, labels and named ports.
    Pod(Box<Pod>),
    /// Cluster IPs, ports and traffic policies.
    Service(Box<Service>),
    /// Endpoints of a Service, in one address family.
    EndpointSlice(EndpointSlice),
    /// Only the upstream kind, `networking.k8s.io/v1`.
    NetworkPolicy(Box<NetworkPolicy>),
}
