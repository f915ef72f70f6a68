//! Services, as a Node balances them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::Protocol;

/// Where a Service's connections can go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Whether it is a Pod on this Node, which may be its own client.
    pub is_local_pod: bool,
}

/// Endpoints of which one is chosen for each connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceGroup {
    /// The number that flows know the group by.
    pub id: u32,
    /// The endpoints, at most [`ServiceGroup::MAX_ENDPOINTS`].
    pub endpoints: EndpointSet,
    /// Whether the choice is remembered.
    pub affinity: bool,
}

/// Endpoints in order.
pub type EndpointSet = BTreeSet<Endpoint>;

impl ServiceGroup {
    /// Open vSwitch 3.1 aborts when it lists groups of more than about a thousand buckets.
    pub const MAX_ENDPOINTS: usize = 800;
}

/// What a client connects to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrontendKind {
    /// A cluster IP.
    ClusterIp(IpAddr),
    /// A port of the Node, in one family.
    NodePort {
        /// Whether of its IPv6 addresses.
        ipv6: bool,
    },
    /// A load balancer's address, or another external one.
    External(IpAddr),
}

/// How long a client keeps its endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Affinity {
    /// In seconds; the switch cannot count beyond 65535.
    pub seconds: u32,
}

/// One way into a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frontend {
    /// What the client connects to.
    pub kind: FrontendKind,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// The group of endpoints; without one, nobody takes connections here.
    pub group: Option<u32>,
    /// Whether connections that no group takes are dropped, as there are endpoints elsewhere; otherwise they are refused.
    pub drops: bool,
    /// Another group for clients within the cluster, which a policy of local endpoints does not bind.
    pub in_cluster_group: Option<u32>,
    /// Whether the client's address may be lost on the way to an endpoint on another Node.
    pub snat: bool,
    /// How long a client keeps its endpoint.
    pub affinity: Option<Affinity>,
    /// The clients that may use it; all without it.
    pub clients: Option<BTreeSet<IpNet>>,
}
