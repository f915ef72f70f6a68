//! The reference implementation: computes all rules from scratch.

mod antrea;

use std::collections::BTreeSet;

use types::control::{Action, Direction, Member, PolicyName};
use types::{InvalidField, ObjectName};

use crate::cluster::Cluster;
use crate::reading::{Reading, Scope, Selected};
use crate::resolve::{PolicyRule, Unresolved};

/// The result of all policies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Computed {
    /// The rules with their Pods and addresses.
    pub rules: BTreeSet<PolicyRule>,
    /// Isolated Pods: connections that no rule allows are dropped.
    pub isolated: BTreeSet<(Direction, ObjectName)>,
    /// Invalid fields of policies.
    pub errors: Vec<InvalidField>,
}

/// Computes the rules of a cluster.
pub fn compute(cluster: &Cluster) -> Computed {
    let mut computed = Computed::default();
    for (name, policy) in &cluster.policies {
        let reading = Reading::new(name, policy);
        computed.errors.extend(reading.problems);
        let applied_to = selected(cluster, name, &reading.applied_to);
        for direction in reading.isolates.directions() {
            computed.isolated.extend(applied_to.iter().map(|member| (direction, member.pod.clone())));
        }
        let policy = PolicyName::kubernetes(name.clone());
        for rule in &reading.rules {
            let members = |peers: &[Selected]| peers.iter().flat_map(|peer| selected(cluster, name, peer)).collect();
            let unresolved = Unresolved {
                policy: &policy,
                direction: rule.direction,
                index: rule.index,
                action: Action::Allow,
                own_groups: &[],
                applied_to: &applied_to,
                peers: rule.peers.as_ref().map(|peers| (&peers.blocks[..], members(&peers.selected))),
                services: rule.services.as_deref(),
            };
            computed.rules.extend(unresolved.resolve(|_| selected(cluster, name, &Selected::everyone())));
        }
    }
    antrea::compute(cluster, &mut computed);
    computed
}

/// The selected Pods; `policy` is the object with the selector.
fn selected<'a>(cluster: &'a Cluster, policy: &ObjectName, selected: &Selected) -> Vec<&'a Member> {
    let in_scope = |namespace: &String| match &selected.scope {
        Scope::Own => *namespace == policy.namespace,
        Scope::Namespaces(selector) => cluster.namespaces.get(namespace).is_some_and(|labels| selector.selects(labels)),
    };
    let pods =
        cluster.pods.iter().filter(|(name, pod)| in_scope(&name.namespace) && selected.pods.selects(&pod.labels));
    pods.map(|(_, pod)| &pod.member).collect()
}

#[cfg(test)]
mod tests;
