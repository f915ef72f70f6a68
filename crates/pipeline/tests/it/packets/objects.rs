//! Short builders for Services and rules.

use std::net::IpAddr;

use pipeline::model::{
    Affinity, Direction, Endpoint, Frontend, FrontendKind, IpBlock, Ports, Protocol, Rule, RuleAction, RuleKind,
    ServiceFrontend, ServiceGroup,
};

use super::world::End;
use crate::cluster::{Cluster, Service};

/// The port of all endpoints.
pub(super) const TARGET: u16 = 8080;

/// A Pod of this Node as an endpoint.
pub(super) fn local(pod: End) -> Endpoint {
    Endpoint { address: pod.ip, port: TARGET, is_local_pod: true }
}

/// The same for IPv6.
pub(super) fn local6(pod: End) -> Endpoint {
    Endpoint { address: pod.ip6, ..local(pod) }
}

/// An endpoint that is no Pod of this Node.
pub(super) fn elsewhere(address: IpAddr) -> Endpoint {
    Endpoint { address, port: TARGET, is_local_pod: false }
}

/// A frontend of a TCP Service with policy Cluster: all endpoints, SNAT.
pub(super) fn frontend(kind: FrontendKind, port: u16, group: u32) -> ServiceFrontend {
    ServiceFrontend {
        frontend: Frontend { kind, port, local_only: false, clients: None },
        protocol: Protocol::Tcp,
        group: Some(group),
        in_cluster_group: None,
        drops: false,
        affinity: None,
    }
}

/// Builder steps for a Service.
impl Service {
    /// A TCP Service with this one frontend, and all of these endpoints in group 1.
    pub(super) fn of(kind: FrontendKind, port: u16, endpoints: &[Endpoint]) -> Self {
        let group = ServiceGroup { id: 1, endpoints: endpoints.iter().copied().collect(), affinity: false };
        Self { protocol: Protocol::Tcp, frontends: vec![frontend(kind, port, 1)], groups: vec![group] }
    }

    /// The same for UDP.
    #[must_use]
    pub(super) fn udp(mut self) -> Self {
        self.protocol = Protocol::Udp;
        self.frontends.iter_mut().for_each(|frontend| frontend.protocol = Protocol::Udp);
        self
    }

    /// The same with session affinity.
    #[must_use]
    pub(super) fn with_affinity(mut self, seconds: u32) -> Self {
        self.frontends.iter_mut().for_each(|frontend| frontend.affinity = Some(Affinity { seconds }));
        self.groups.iter_mut().for_each(|group| group.affinity = true);
        self
    }

    /// The same with policy Local: from outside only these endpoints (group 2), and the client's address is kept.
    #[must_use]
    pub(super) fn local_only(mut self, endpoints: &[Endpoint]) -> Self {
        let affinity = self.groups.iter().any(|group| group.affinity);
        self.groups.push(ServiceGroup { id: 2, endpoints: endpoints.iter().copied().collect(), affinity });
        for frontend in &mut self.frontends {
            (frontend.group, frontend.in_cluster_group) = (Some(2), Some(1));
            frontend.frontend.local_only = true;
        }
        self
    }

    pub(super) fn set_endpoints(&mut self, endpoints: &[Endpoint]) {
        self.groups[0].endpoints = endpoints.iter().copied().collect();
    }
}

/// A rule of a Kubernetes policy about a Pod: everything is allowed.
pub(super) fn allow(id: u32, direction: Direction, pod: End) -> Rule {
    let applied_to = [pod.applied()].into();
    Rule { id, direction, kind: RuleKind::Kubernetes, applied_to, peers: None, ports: None }
}

/// A rule of a tier before Kubernetes policies.
pub(super) fn tiered(id: u32, direction: Direction, pod: End, priority: u16, action: RuleAction) -> Rule {
    Rule { kind: RuleKind::Antrea { priority, action }, ..allow(id, direction, pod) }
}

/// Builder steps for a rule.
pub(super) trait Narrowed {
    /// Restricts the rule to this peer.
    #[must_use]
    fn with_peer(self, peer: IpAddr) -> Self;
    /// Restricts the rule to peers in this `ipBlock` with its exceptions.
    #[must_use]
    fn with_block(self, cidr: &str, except: &[&str]) -> Self;
    /// Restricts the rule to these ports.
    #[must_use]
    fn to_ports(self, protocol: Protocol, first: u16, last: u16) -> Self;
}

impl Narrowed for Rule {
    fn with_peer(mut self, peer: IpAddr) -> Self {
        self.peers.get_or_insert_default().insert(peer.into());
        self
    }

    fn with_block(mut self, cidr: &str, except: &[&str]) -> Self {
        let except = except.iter().map(|hole| hole.parse().unwrap()).collect();
        self.peers.get_or_insert_default().insert(IpBlock { cidr: cidr.parse().unwrap(), except });
        self
    }

    fn to_ports(mut self, protocol: Protocol, first: u16, last: u16) -> Self {
        self.ports.get_or_insert_default().insert(Ports { protocol, range: Some((first, last)) });
        self
    }
}

/// Isolates a Pod in one direction.
pub(super) fn isolate(cluster: &mut Cluster, direction: Direction, pod: End) {
    cluster.isolated.push((direction, pod.applied()));
}
