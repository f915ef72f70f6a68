//! Computes the frontends and endpoints of Services for a Node.
//!
//! *Role.* [`compute`] takes one Service and its EndpointSlices, and returns the frontends that a Node serves and the
//! endpoints of each.
//!
//! *Invariants.* The result depends on the objects, not on their order. An invalid value is an error that names the
//! object and the field; the rest of the Service still works. Source ranges fail closed: if one is invalid, only
//! clients in the valid ones are allowed.
//!
//! *Not here.* Flows and groups (crate `pipeline`). An incremental computation: nothing depends on two Services, so a
//! Service that changes is computed again as a whole.

mod endpoints;
mod frontends;
mod viewpoint;

pub use viewpoint::{Serving, Viewpoint};

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use types::meta::Protocol;
use types::service::{EndpointSlice, Service};
use types::{InvalidField, ObjectName};

use endpoints::{Candidate, candidates, choose};
use frontends::{Addresses, frontends};

/// The default of Kubernetes: three hours.
const DEFAULT_AFFINITY_SECONDS: u32 = 10800;
/// The range of a switch's idle timeout, 18 hours; Kubernetes allows up to a day. 0, which would mean no timeout,
/// cannot be set.
const AFFINITY_SECONDS: std::ops::RangeInclusive<u32> = 1..=65535;

/// An address and port that a Service forwards to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint {
    /// Address of the endpoint, the destination after DNAT; a Service port has endpoints of its own family only.
    pub address: IpAddr,
    /// Target port, as in the EndpointSlice.
    pub port: u16,
    /// Whether this is a Pod behind a port of this Node's switch, which may be its own client (hairpin).
    pub is_local_pod: bool,
}

/// The destination of a client's connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrontendKind {
    /// A cluster IP of the Service.
    ClusterIp(IpAddr),
    /// A port of the Node, on all its addresses of a family.
    NodePort {
        /// Whether on the Node's IPv6 addresses.
        ipv6: bool,
    },
    /// An external IP, or an address of a load balancer.
    External(IpAddr),
}

impl FrontendKind {
    /// Whether clients outside of the cluster use it.
    pub fn is_external(self) -> bool {
        !matches!(self, Self::ClusterIp(_))
    }
}

/// An address and port at which a port of a Service is reached.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Frontend {
    /// Kind of destination and, except for NodePorts, its address.
    pub kind: FrontendKind,
    /// Port that clients connect to.
    pub port: u16,
    /// Traffic policy `Local`: use local endpoints only. Clients within the cluster use all endpoints of an external
    /// frontend.
    pub local_only: bool,
    /// Clients that may use the frontend; all clients if `None`.
    pub clients: Option<BTreeSet<IpNet>>,
}

/// A port of a Service in one address family.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServicePort {
    /// Name of the Service.
    pub service: ObjectName,
    /// Name of the port, empty if it has none.
    pub name: String,
    /// Transport protocol of clients and endpoints.
    pub protocol: Protocol,
    /// Whether frontends and endpoints have IPv6 addresses.
    pub ipv6: bool,
    /// Session affinity: seconds for which a client keeps its endpoint, limited to what a switch can count.
    pub affinity: Option<u32>,
    /// Frontends. This list and the others are sorted and without duplicates; slices take less memory than sets, and a
    /// cluster has thousands of ports.
    pub frontends: Box<[Frontend]>,
    /// Endpoints for traffic policy `Cluster`.
    pub endpoints: Box<[Endpoint]>,
    /// Endpoints for traffic policy `Local`. Not always a subset of [`ServicePort::endpoints`]: a terminating endpoint
    /// is used while it is the only one on this Node, even if other Nodes have ready ones.
    pub local_endpoints: Box<[Endpoint]>,
    /// All serving endpoints of the cluster, with or without new connections from this Node: existing connections to
    /// them are kept.
    pub serving: Box<[SocketAddr]>,
}

impl ServicePort {
    /// Endpoints of either traffic policy.
    pub fn reachable(&self) -> BTreeSet<&Endpoint> {
        self.endpoints.iter().chain(&self.local_endpoints).collect()
    }

    /// Whether the Service has any serving endpoints. A frontend without an endpoint on this Node then drops
    /// connections, because another Node may accept them; otherwise it rejects them.
    pub fn is_served(&self) -> bool {
        !self.serving.is_empty()
    }
}

/// A port of the Node where a load balancer asks whether the Node has endpoints of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HealthCheck {
    /// `healthCheckNodePort` of the Service.
    pub port: u16,
    /// Number of ready endpoints on this Node.
    pub local_endpoints: usize,
}

/// The result of [`compute`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Computed {
    /// One entry for each port and family with a cluster IP.
    pub ports: BTreeSet<ServicePort>,
    /// Set for load balancers with `externalTrafficPolicy: Local`.
    pub health_check: Option<HealthCheck>,
    /// Invalid fields of the Service and its slices.
    pub errors: Vec<InvalidField>,
}

/// Computes a Service and its slices for a Node. The result is empty for a Service without a cluster IP or of another
/// proxy.
pub fn compute<'a>(
    service: &Service,
    slices: impl IntoIterator<Item = &'a EndpointSlice> + Clone,
    viewpoint: &Viewpoint<'_>,
) -> Computed {
    let mut computed = Computed::default();
    let spec = &service.spec;
    if !viewpoint.serves(service) {
        return computed;
    }
    let addresses = Addresses::of(service, viewpoint.serving, &mut computed.errors);
    let affinity = affinity(service);
    let mut local_ready = 0;
    for ipv6 in [false, true] {
        let mut ready_here: BTreeSet<IpAddr> = BTreeSet::new();
        for port in &spec.ports {
            let frontends = frontends(spec, port, &addresses, ipv6);
            if frontends.is_empty() {
                continue;
            }
            let candidates = candidates(slices.clone(), port, ipv6, viewpoint, &mut computed.errors);
            ready_here.extend(candidates.iter().filter(|c| c.is_ready() && c.is_local).map(Candidate::address));
            let uses = |local: bool| frontends.iter().any(|f| f.local_only == local || !local && f.kind.is_external());
            let chosen = choose(&candidates, viewpoint, uses(false), uses(true));
            computed.ports.insert(ServicePort {
                service: service.metadata.object_name(),
                name: port.name.clone(),
                protocol: port.protocol,
                ipv6,
                affinity,
                frontends,
                endpoints: chosen.anywhere,
                local_endpoints: chosen.here,
                serving: ordered(candidates.iter().map(Candidate::socket)),
            });
        }
        local_ready = local_ready.max(ready_here.len());
    }
    let asked =
        spec.kind == "LoadBalancer" && spec.external_traffic_policy == "Local" && spec.health_check_node_port != 0;
    computed.health_check =
        asked.then_some(HealthCheck { port: spec.health_check_node_port, local_endpoints: local_ready });
    // Two ports report the same invalid address.
    computed.errors.dedup();
    computed
}

/// The values sorted and without duplicates.
fn ordered<T: Ord>(all: impl Iterator<Item = T>) -> Box<[T]> {
    let mut all: Vec<T> = all.collect();
    all.sort();
    all.dedup();
    all.into()
}

fn affinity(service: &Service) -> Option<u32> {
    let spec = &service.spec;
    (spec.session_affinity == "ClientIP").then(|| {
        let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
        let seconds = config.and_then(|config| config.timeout_seconds).unwrap_or(DEFAULT_AFFINITY_SECONDS);
        seconds.clamp(*AFFINITY_SECONDS.start(), *AFFINITY_SECONDS.end())
    })
}

#[cfg(test)]
mod tests;
