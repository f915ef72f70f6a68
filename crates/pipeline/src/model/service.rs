//! Services as AntreaProxy sees them: the frontends and endpoints of crate `proxy`, with groups.

use std::collections::BTreeSet;

use proxy::{Endpoint, Frontend};

use super::Protocol;

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

/// How long a client keeps its endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Affinity {
    /// In seconds; the switch limits it to 65535.
    pub seconds: u32,
}

/// A frontend and the groups that serve it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceFrontend {
    /// The address and port that clients connect to.
    pub frontend: Frontend,
    /// Protocol of the Service port.
    pub protocol: Protocol,
    /// The group of endpoints; `None` if there are none.
    pub group: Option<u32>,
    /// Without endpoints: whether connections are dropped, as other Nodes have endpoints, or rejected.
    pub drops: bool,
    /// Another group for clients in the cluster, which `externalTrafficPolicy: Local` does not restrict.
    pub in_cluster_group: Option<u32>,
    /// How long a client keeps its endpoint.
    pub affinity: Option<Affinity>,
}
