//! Services and EndpointSlices to what clients connect to and where that leads.
//!
//! *Role.* [`compute`] looks at one Service and its slices and says, for a Node, which frontends there are and which endpoints
//! stand behind each.
//!
//! *Invariants.* The result depends on the objects, not on their order. A value that cannot be understood is an error that names
//! object and field, and the rest of the Service still works.
//!
//! *Not here.* Flows and groups (crate `pipeline`), and the incremental computation, whose result must be this one's.

use std::collections::BTreeSet;
use std::net::IpAddr;

use types::meta::Protocol;
use types::service::{EndpointSlice, Service, SliceEndpoint};
use types::{InvalidField, ObjectName};

/// What Kubernetes counts without being told: three hours.
const DEFAULT_AFFINITY_SECONDS: u32 = 10800;

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
    /// How long a client keeps its endpoint, in seconds.
    pub affinity: Option<u32>,
    /// The ways in.
    pub frontends: BTreeSet<Frontend>,
    /// Where they lead, all Nodes together.
    pub endpoints: BTreeSet<Endpoint>,
}

/// All that follows from a Service.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Computed {
    /// Its ports.
    pub ports: BTreeSet<ServicePort>,
    /// What could not be understood.
    pub errors: Vec<InvalidField>,
}

/// Looks at a Service and its slices, from the Node with this name. A Service without an address of its own is left alone.
pub fn compute<'a>(
    service: &Service,
    slices: impl IntoIterator<Item = &'a EndpointSlice> + Clone,
    node: &str,
) -> Computed {
    let mut computed = Computed::default();
    let spec = &service.spec;
    if spec.kind == "ExternalName" || spec.cluster_ip == "None" {
        return computed;
    }
    let name = service.metadata.object_name();
    let mut address = |kind: &'static str, name: &ObjectName, field: String, text: &str| -> Option<IpAddr> {
        let parsed = text.parse().ok();
        if parsed.is_none() {
            let problem = format!("`{text}` is not an address");
            computed.errors.push(InvalidField { kind, name: name.clone(), field, problem });
        }
        parsed
    };
    let mut of_service = |field: &str, texts: &mut dyn Iterator<Item = &str>| -> Vec<IpAddr> {
        (0..).zip(texts).filter_map(|(n, text)| address("Service", &name, format!("{field}[{n}]"), text)).collect()
    };
    let written = spec.cluster_ips.iter().chain(spec.cluster_ips.is_empty().then_some(&spec.cluster_ip));
    let cluster_ips = of_service("spec.clusterIPs", &mut written.map(String::as_str).filter(|ip| !ip.is_empty()));
    let mut external = of_service("spec.externalIPs", &mut spec.external_ips.iter().map(String::as_str));
    if spec.kind == "LoadBalancer" {
        let ingress = service.status.load_balancer.ingress.iter().map(|ingress| ingress.ip.as_str());
        external.extend(of_service("status.loadBalancer.ingress", &mut ingress.filter(|ip| !ip.is_empty())));
    }
    let affinity = (spec.session_affinity == "ClientIP").then(|| {
        let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
        config.and_then(|config| config.timeout_seconds).unwrap_or(DEFAULT_AFFINITY_SECONDS)
    });
    let external_local = spec.external_traffic_policy == "Local";
    let internal_local = spec.internal_traffic_policy == "Local";
    for port in &spec.ports {
        for ipv6 in [false, true] {
            let mut frontends = BTreeSet::new();
            let of_family = |ip: &&IpAddr| ip.is_ipv6() == ipv6;
            for ip in cluster_ips.iter().filter(of_family) {
                let kind = FrontendKind::ClusterIp(*ip);
                frontends.insert(Frontend { kind, port: port.port, local_only: internal_local });
            }
            if frontends.is_empty() {
                continue;
            }
            for ip in external.iter().filter(of_family) {
                let kind = FrontendKind::External(*ip);
                frontends.insert(Frontend { kind, port: port.port, local_only: external_local });
            }
            if port.node_port != 0 {
                let kind = FrontendKind::NodePort { ipv6 };
                frontends.insert(Frontend { kind, port: port.node_port, local_only: external_local });
            }
            let endpoints = slices
                .clone()
                .into_iter()
                .filter(|slice| slice.address_type == if ipv6 { "IPv6" } else { "IPv4" })
                .flat_map(|slice| {
                    let number = |p: &&types::service::SlicePort| p.name == port.name && p.protocol == port.protocol;
                    let number = slice.ports.iter().find(number).and_then(|p| p.port);
                    let ready = slice.endpoints.iter().enumerate().filter(|(_, e)| e.conditions.ready != Some(false));
                    ready.filter_map(move |(n, endpoint)| Some((slice, n, endpoint, number?)))
                })
                .filter_map(|(slice, n, endpoint, port)| {
                    let field = format!("endpoints[{n}].addresses[0]");
                    let text = endpoint.addresses.first()?;
                    let address = address("EndpointSlice", &slice.metadata.object_name(), field, text)?;
                    let is_local = endpoint.node_name.as_deref() == Some(node);
                    Some(Endpoint { address, port, is_local, pod: pod_of(endpoint) })
                })
                .collect();
            let (service, name) = (name.clone(), port.name.clone());
            let port = ServicePort { service, name, protocol: port.protocol, ipv6, affinity, frontends, endpoints };
            computed.ports.insert(port);
        }
    }
    computed
}

fn pod_of(endpoint: &SliceEndpoint) -> Option<ObjectName> {
    let target = endpoint.target_ref.as_ref().filter(|target| target.kind == "Pod")?;
    Some(ObjectName { namespace: target.namespace.clone(), name: target.name.clone() })
}

#[cfg(test)]
mod tests;
