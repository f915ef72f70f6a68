//! Rules of Tiers, as the documentation of Antrea orders them.

use std::cmp::Ordering;

use types::antrea::{AppliedTo, Peer, Policy, Port, Rule};
use types::meta::Protocol;
use types::network_policy::{PolicyPeer, PolicyPort};

use crate::{Cluster, Direction, End, is_peer, is_port, selects};

/// What the Tiers decide about a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allow,
    Deny,
    /// No rule matches, or one that passes.
    Next,
}

/// From the strictest to the most lenient.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Action {
    Deny,
    Pass,
    Allow,
}

impl Action {
    fn of(rule: &Rule) -> Self {
        match rule.action.as_str() {
            "Allow" => Self::Allow,
            "Pass" => Self::Pass,
            _ => Self::Deny,
        }
    }
}

/// The last Tier before the policies of Kubernetes.
const LAST: u8 = 250;

/// What the Tiers before the policies of Kubernetes decide at `end`, or what those after them decide.
pub(crate) fn decide(
    cluster: &Cluster,
    is_baseline: bool,
    direction: Direction,
    end: End<'_>,
    other: End<'_>,
    target: (End<'_>, Protocol, u16),
) -> Verdict {
    let mut matching: Vec<(u8, f64, usize, Action)> = Vec::new();
    for policy in &cluster.antrea_policies {
        let name = match policy.spec.tier.as_str() {
            "" => "application",
            name => name,
        };
        let Some(tier) = cluster.tiers.get(name).copied().filter(|tier| (*tier > LAST) == is_baseline) else {
            continue;
        };
        let priority = policy.spec.priority.map_or(0.0, types::antrea::Decimal::value);
        let rules = match direction {
            Direction::Ingress => &policy.spec.ingress,
            Direction::Egress => &policy.spec.egress,
        };
        for (index, rule) in rules.iter().enumerate() {
            let applied_to = if rule.applied_to.is_empty() { &policy.spec.applied_to } else { &rule.applied_to };
            if applied_to.iter().any(|it| applies(cluster, policy, it, end))
                && matches(cluster, policy, rule, (direction, end, other), target)
            {
                matching.push((tier, priority, index, Action::of(rule)));
            }
        }
    }
    let first = matching.into_iter().min_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    match first {
        Some((_, _, _, Action::Deny)) => Verdict::Deny,
        Some((_, _, _, Action::Allow)) => Verdict::Allow,
        Some((_, _, _, Action::Pass)) | None => Verdict::Next,
    }
}

fn applies(cluster: &Cluster, policy: &Policy, to: &AppliedTo, end: End<'_>) -> bool {
    let Some(pod) = end.pod else { return false };
    let own = &policy.metadata.namespace;
    let in_scope = match (&to.namespace_selector, own.as_str()) {
        (Some(selector), _) => selects(selector, &cluster.namespaces[&pod.metadata.namespace]),
        // An empty entry of a cluster-wide policy selects nothing.
        (None, "") => to.pod_selector.is_some(),
        (None, own) => pod.metadata.namespace == own,
    };
    in_scope && to.pod_selector.as_ref().is_none_or(|selector| selects(selector, &pod.metadata.labels))
}

fn matches(
    cluster: &Cluster,
    policy: &Policy,
    rule: &Rule,
    (direction, end, other): (Direction, End<'_>, End<'_>),
    target: (End<'_>, Protocol, u16),
) -> bool {
    let peers = match direction {
        Direction::Ingress => &rule.from,
        Direction::Egress => &rule.to,
    };
    (peers.is_empty() || peers.iter().any(|peer| is_other(cluster, policy, peer, end, other)))
        && (rule.ports.is_empty() || rule.ports.iter().any(|port| is_port(&as_kubernetes(port), target)))
}

fn is_other(cluster: &Cluster, policy: &Policy, peer: &Peer, end: End<'_>, other: End<'_>) -> bool {
    let mut written = PolicyPeer {
        pod_selector: peer.pod_selector.clone(),
        namespace_selector: peer.namespace_selector.clone(),
        ip_block: peer.ip_block.clone(),
        ..PolicyPeer::default()
    };
    let mut own = policy.metadata.namespace.as_str();
    if let Some(namespaces) = &peer.namespaces {
        assert_eq!(namespaces.matching, "Self", "the oracle knows no other");
        own = end.pod.map_or("", |pod| &pod.metadata.namespace);
    } else if own.is_empty() && written.ip_block.is_none() {
        // Without a namespace of its own, a policy means the Pods of all.
        written.namespace_selector.get_or_insert_default();
    }
    is_peer(cluster, &written, own, other)
}

fn as_kubernetes(port: &Port) -> PolicyPort {
    PolicyPort {
        protocol: port.protocol.clone(),
        port: port.port.clone(),
        end_port: port.end_port,
        ..PolicyPort::default()
    }
}
