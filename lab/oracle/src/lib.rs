//! An oracle for policies of Kubernetes and Antrea that follows their documentation literally. For tests only.
//!
//! *Role.* [`connects`] decides whether a connection is allowed. It knows nothing of groups, flows or changes, and
//! evaluates everything each time: an implementation that disagrees with it is probably wrong.
//!
//! *Invariants.* It shares no code with the tested crates but the object types.
//!
//! *Not here.* Invalid objects: the API server rejects most of them, and the others are tested elsewhere. An invalid
//! peer matches nothing. Groups, names of domains and other peers of Antrea that are not Pods or addresses.

mod tiers;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use types::meta::{IntOrString, LabelSelector, Labels, Protocol};
use types::network_policy::{NetworkPolicy, PolicyPeer, PolicyPort};
use types::pod::Pod;

use tiers::Verdict;

/// The objects that decide about a connection.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Labels of all Namespaces by name.
    pub namespaces: BTreeMap<String, Labels>,
    /// All policies of all Namespaces.
    pub policies: Vec<NetworkPolicy>,
    /// Priorities of Tiers by name.
    pub tiers: BTreeMap<String, u8>,
    /// The policies of Antrea, of namespaces and of the cluster.
    pub antrea_policies: Vec<types::antrea::Policy>,
}

/// Client or server of a connection.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// The Pod; `None` for an address outside of the cluster.
    pub pod: Option<&'a Pod>,
    /// Address of this side, also without a Pod.
    pub ip: IpAddr,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Ingress,
    Egress,
}

/// Whether a connection is allowed: as egress of the client, and as ingress of the server.
pub fn connects(cluster: &Cluster, from: End<'_>, to: End<'_>, protocol: Protocol, port: u16) -> bool {
    let target = (to, protocol, port);
    allows(cluster, Direction::Egress, from, to, target) && allows(cluster, Direction::Ingress, to, from, target)
}

/// Whether one direction of a connection is allowed at `end`; `other` is the other side.
fn allows(
    cluster: &Cluster,
    direction: Direction,
    end: End<'_>,
    other: End<'_>,
    target: (End<'_>, Protocol, u16),
) -> bool {
    let Some(pod) = end.pod else { return true };
    match tiers::decide(cluster, false, direction, end, other, target) {
        Verdict::Allow => return true,
        Verdict::Deny => return false,
        Verdict::Next => {}
    }
    let mut isolated = false;
    for policy in &cluster.policies {
        let namespace = &policy.metadata.namespace;
        let applies = *namespace == pod.metadata.namespace
            && selects(&policy.spec.pod_selector, &pod.metadata.labels)
            && is_about(policy, direction);
        if !applies {
            continue;
        }
        isolated = true;
        let rules: Vec<(&[PolicyPeer], &[PolicyPort])> = match direction {
            Direction::Ingress => policy.spec.ingress.iter().map(|rule| (&rule.from[..], &rule.ports[..])).collect(),
            Direction::Egress => policy.spec.egress.iter().map(|rule| (&rule.to[..], &rule.ports[..])).collect(),
        };
        let allowed = rules.iter().any(|(peers, ports)| {
            (peers.is_empty() || peers.iter().any(|peer| is_peer(cluster, peer, namespace, other)))
                && (ports.is_empty() || ports.iter().any(|port| is_port(port, target)))
        });
        if allowed {
            return true;
        }
    }
    !isolated && tiers::decide(cluster, true, direction, end, other, target) != Verdict::Deny
}

fn is_about(policy: &NetworkPolicy, direction: Direction) -> bool {
    let types = &policy.spec.policy_types;
    match direction {
        Direction::Ingress => types.is_empty() || types.iter().any(|kind| kind == "Ingress"),
        Direction::Egress if types.is_empty() => !policy.spec.egress.is_empty(),
        Direction::Egress => types.iter().any(|kind| kind == "Egress"),
    }
}

fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().all(|it| match (it.operator.as_str(), labels.get(&it.key)) {
            ("In", value) => value.is_some_and(|value| it.values.contains(value)),
            ("NotIn", value) => !value.is_some_and(|value| it.values.contains(value)),
            ("Exists", value) => value.is_some(),
            (_, value) => value.is_none(),
        })
}

fn is_peer(cluster: &Cluster, peer: &PolicyPeer, policy_namespace: &str, end: End<'_>) -> bool {
    if let Some(block) = &peer.ip_block {
        let within = |cidr: &String| cidr.parse::<IpNet>().is_ok_and(|cidr| cidr.contains(&end.ip));
        return within(&block.cidr) && !block.except.iter().any(within);
    }
    let Some(pod) = end.pod else { return false };
    let namespace = &pod.metadata.namespace;
    let in_scope = match &peer.namespace_selector {
        Some(selector) => cluster.namespaces.get(namespace).is_some_and(|labels| selects(selector, labels)),
        None => namespace == policy_namespace,
    };
    in_scope && peer.pod_selector.as_ref().is_none_or(|selector| selects(selector, &pod.metadata.labels))
}

fn is_port(port: &PolicyPort, (to, protocol, number): (End<'_>, Protocol, u16)) -> bool {
    port.protocol == protocol.into()
        && match (&port.port, port.end_port) {
            (None, _) => true,
            (Some(IntOrString::Int(first)), last) => (*first..=last.unwrap_or(*first)).contains(&i64::from(number)),
            (Some(IntOrString::String(name)), _) => {
                let containers = to.pod.into_iter().flat_map(|pod| &pod.spec.containers);
                let mut ports = containers.flat_map(|container| &container.ports);
                ports.any(|it| it.name == *name && it.protocol == protocol && it.container_port == number)
            }
        }
}
