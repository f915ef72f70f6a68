//! Services as AntreaProxy sees them: frontends, groups and endpoints.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::Protocol;

/// An address and port that a Service forwards to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint {
    /// Destination address after DNAT.
    pub address: IpAddr,
    /// Destination port after DNAT.
    pub port: u16,
    /// Whether this is a Pod on this Node, which may be its own client (hairpin).
    pub is_local_pod: bool,
}

/// Endpoints of which one is selected for each connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceGroup {
    /// OpenFlow id of the group.
    pub id: u32,
    /// The endpoints, at most [`ServiceGroup::MAX_ENDPOINTS`].
    pub endpoints: EndpointSet,
    /// Whether the selected endpoint is learned (session affinity).
    pub affinity: bool,
}

/// Endpoints in the order of their buckets.
pub type EndpointSet = BTreeSet<Endpoint>;

impl ServiceGroup {
    /// Open vSwitch 3.1 aborts when it lists groups of more than about a thousand buckets.
    pub const MAX_ENDPOINTS: usize = 800;
}

/// The address that a client connects to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrontendKind {
    /// The Service's cluster IP.
    ClusterIp(IpAddr),
    /// A port on the NodePort addresses of one family.
    NodePort {
        /// Whether on the IPv6 addresses.
        ipv6: bool,
    },
    /// A load balancer's address, or another external IP.
    External(IpAddr),
}

/// How long a client keeps its endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Affinity {
    /// In seconds; the switch limits it to 65535.
    pub seconds: u32,
}

/// An address and port at which a Service is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frontend {
    /// The address that the client connects to.
    pub kind: FrontendKind,
    /// Protocol of the Service port.
    pub protocol: Protocol,
    /// Destination port before DNAT.
    pub port: u16,
    /// The group of endpoints; `None` if there are none.
    pub group: Option<u32>,
    /// Without endpoints: whether connections are dropped, as other Nodes have endpoints, or rejected.
    pub drops: bool,
    /// Another group for clients in the cluster, which `externalTrafficPolicy: Local` does not restrict.
    pub in_cluster_group: Option<u32>,
    /// Whether connections from outside get SNAT, so that the client's address is lost.
    pub snat: bool,
    /// How long a client keeps its endpoint.
    pub affinity: Option<Affinity>,
    /// `loadBalancerSourceRanges`; `None`: all clients.
    pub clients: Option<BTreeSet<IpNet>>,
}
