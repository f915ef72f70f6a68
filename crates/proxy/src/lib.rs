//! Services and EndpointSlices to what clients connect to and where that leads.
//!
//! *Role.* [`compute`] looks at one Service and its slices and says, for a Node, which frontends there are and which endpoints
//! stand behind each.
//!
//! *Invariants.* The result depends on the objects, not on their order. A value that cannot be understood is an error that names
//! object and field, and the rest of the Service still works; but for the ranges of clients, of which one that cannot be
//! understood lets nobody in.
//!
//! *Not here.* Flows and groups (crate `pipeline`). A second, incremental computation: one Service is the unit, as nothing
//! depends on two, so what changes is computed again as a whole.

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

/// What Kubernetes counts without being told: three hours.
const DEFAULT_AFFINITY_SECONDS: u32 = 10800;
/// What the switch can count, 18 hours; Kubernetes allows up to a day. 0 would be for ever, which nobody can ask for.
const AFFINITY_SECONDS: std::ops::RangeInclusive<u32> = 1..=65535;

/// Where connections can go.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Whether it is on this Node.
    pub is_local: bool,
    /// The Pod that it is, if it is one.
    pub pod: Option<ObjectName>,
}

/// What a client connects to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FrontendKind {
    /// A cluster IP.
    ClusterIp(IpAddr),
    /// A port of the Node.
    NodePort {
        /// Whether of its IPv6 addresses.
        ipv6: bool,
    },
    /// A load balancer's address, or another external one.
    External(IpAddr),
}

/// One way into a port of a Service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Frontend {
    /// What the client connects to.
    pub kind: FrontendKind,
    /// The port.
    pub port: u16,
    /// Whether only endpoints on this Node are meant; clients within the cluster may still use all if the frontend is external.
    pub local_only: bool,
    /// The clients that may use it; all without it.
    pub clients: Option<BTreeSet<IpNet>>,
}

/// A port of a Service in one family.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ServicePort {
    /// The Service.
    pub service: ObjectName,
    /// The name of the port, empty if it has none.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// Whether of IPv6.
    pub ipv6: bool,
    /// How long a client keeps its endpoint, in seconds; what a switch can count.
    pub affinity: Option<u32>,
    /// The ways in. These lists are in order and name each once; a cluster has thousands of ports, and sets have room to spare.
    pub frontends: Box<[Frontend]>,
    /// Where they lead if any Node will do.
    pub endpoints: Box<[Endpoint]>,
    /// Where they lead if only this Node will do. Not always some of [`ServicePort::endpoints`]: one that is about to end
    /// takes connections while it is the only one here, though others elsewhere are ready.
    pub local_endpoints: Box<[Endpoint]>,
    /// All endpoints that answer, wherever they are and whether or not they get new connections from here: what a
    /// connection that there is may go on to.
    pub serving: Box<[SocketAddr]>,
}

impl ServicePort {
    /// All endpoints that connections can go to.
    pub fn reachable(&self) -> BTreeSet<&Endpoint> {
        self.endpoints.iter().chain(&self.local_endpoints).collect()
    }

    /// Whether the Service has endpoints at all: then a frontend that leads to none here drops connections, as somebody else
    /// may take them, and otherwise it refuses them.
    pub fn is_served(&self) -> bool {
        !self.serving.is_empty()
    }
}

/// A port of the Node that tells a load balancer whether to send connections here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HealthCheck {
    /// The port.
    pub port: u16,
    /// How many endpoints on this Node are ready.
    pub local_endpoints: usize,
}

/// All that follows from a Service.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Computed {
    /// Its ports.
    pub ports: BTreeSet<ServicePort>,
    /// What its load balancer asks.
    pub health_check: Option<HealthCheck>,
    /// What could not be understood.
    pub errors: Vec<InvalidField>,
}

/// Looks at a Service and its slices from a Node. A Service without an address of its own, or that somebody else serves, is
/// left alone.
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
            let candidates = candidates(slices.clone(), port, ipv6, viewpoint.node, &mut computed.errors);
            ready_here
                .extend(candidates.iter().filter(|c| c.is_ready() && c.endpoint.is_local).map(Candidate::address));
            let uses = |local: bool| {
                let uses =
                    |f: &Frontend| f.local_only == local || !local && !matches!(f.kind, FrontendKind::ClusterIp(_));
                frontends.iter().any(uses)
            };
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
    // An address that two ports have in common is wrong once.
    computed.errors.dedup();
    computed
}

/// In order, each once.
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
