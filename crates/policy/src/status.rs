//! The status of policies, from the reports of agents.
//!
//! A replica has the reports of the agents that are or were connected to it; an agent that reconnects to another replica reports there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use types::control::{Policy, PolicyName, Report};

use crate::brain::Brain;

/// The status of one generation of a policy on a Node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeStatus {
    /// UID of the policy.
    pub uid: String,
    /// Generation of the policy.
    pub generation: i64,
    /// Why the Node does not enforce it; `None` if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The status of a policy by Node.
pub type StatusByNode = BTreeMap<String, NodeStatus>;

/// The reports of the agents that are or were connected to this replica.
#[derive(Debug, Default)]
pub struct Reports {
    policies: HashMap<PolicyName, StatusByNode>,
    connected: BTreeSet<String>,
}

/// The status of a policy in the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Realization {
    /// `Realizing`, `Realized` or `Failed`.
    pub phase: &'static str,
    /// The generation that the status is about.
    pub observed_generation: i64,
    /// Nodes that enforce it.
    pub current_nodes_realized: usize,
    /// Nodes in the span of the policy.
    pub desired_nodes_realized: usize,
    /// Invalid fields, and problems on Nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

impl Reports {
    /// The agent of a Node has connected.
    pub(crate) fn connected(&mut self, node: &str) {
        self.connected.insert(node.into());
    }

    /// The agent of a Node has disconnected. Its reports stay, unless another replica has newer ones.
    pub(crate) fn disconnected(&mut self, node: &str) {
        self.connected.remove(node);
    }

    /// Stores reports. Ignores those for unknown policies, which would leak.
    pub(crate) fn take(&mut self, brain: &Brain, node: &str, reports: Vec<Report>) {
        for Report { policy, uid, generation, problem } in reports {
            let known = brain.policy(&policy).filter(|(known, _)| known.uid == uid);
            if let Some((_, span)) = known.filter(|(_, span)| is_in(span, node)) {
                let status = NodeStatus { uid, generation, problem };
                let by_node = self.policies.entry(policy).or_default();
                by_node.insert(node.to_owned(), status);
                // Nodes outside the span do not count.
                by_node.retain(|node, _| is_in(&span, node));
            }
        }
    }

    /// Drops the reports for a deleted policy.
    pub(crate) fn forget(&mut self, policy: &PolicyName) {
        self.policies.remove(policy);
    }

    /// The reports for a policy.
    pub fn of(&self, policy: &PolicyName) -> StatusByNode {
        self.policies.get(policy).cloned().unwrap_or_default()
    }

    /// The reports for all policies.
    pub fn all(&self) -> impl Iterator<Item = (&PolicyName, &StatusByNode)> {
        self.policies.iter()
    }

    /// The Nodes whose agents are connected.
    pub fn connected_nodes(&self) -> &BTreeSet<String> {
        &self.connected
    }
}

fn is_in(span: &[Arc<str>], node: &str) -> bool {
    span.binary_search_by(|it| (**it).cmp(node)).is_ok()
}

/// The status of a policy, from the reports of all replicas.
pub fn realization(
    policy: &Policy,
    span: &[Arc<str>],
    status: &StatusByNode,
    invalid_fields: Vec<String>,
) -> Realization {
    let of_this = |node: &Arc<str>| {
        let status = status.get(&**node)?;
        (status.uid == policy.uid && status.generation == policy.generation).then_some(status)
    };
    let reported: Vec<(&Arc<str>, &NodeStatus)> = span.iter().filter_map(|node| Some((node, of_this(node)?))).collect();
    let failed =
        reported.iter().filter_map(|(node, status)| Some(format!("Node {node}: {}", status.problem.as_ref()?)));
    let failed: Vec<String> = failed.collect();
    let current = reported.len() - failed.len();
    let phase = match (failed.is_empty(), current == span.len()) {
        (false, _) => "Failed",
        (true, true) => "Realized",
        (true, false) => "Realizing",
    };
    Realization {
        phase,
        observed_generation: policy.generation,
        current_nodes_realized: current,
        desired_nodes_realized: span.len(),
        problems: invalid_fields.into_iter().chain(failed).collect(),
    }
}

/// Merges the reports of another replica. The replica that a Node is connected to has its latest report.
pub fn merge(into: &mut StatusByNode, other: StatusByNode, connected_there: impl Fn(&str) -> bool) {
    for (node, status) in other {
        if connected_there(&node) || !into.contains_key(&node) {
            into.insert(node, status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(generation: i64, problem: Option<&str>) -> NodeStatus {
        NodeStatus { uid: "u".into(), generation, problem: problem.map(str::to_owned) }
    }

    fn policy() -> Policy {
        let isolates = types::control::Isolation::default();
        let (name, uid) = (PolicyName::default(), "u".to_owned());
        let order = types::control::Order::Kubernetes(isolates);
        Policy { name, uid, generation: 2, order, applied_to: vec![], rules: vec![] }
    }

    #[test]
    fn a_policy_is_realized_when_every_node_of_its_span_reports_this_generation() {
        let span: Vec<Arc<str>> = vec!["a".into(), "b".into()];
        let of = |status: &[(&str, NodeStatus)]| {
            let status = status.iter().map(|(node, status)| ((*node).into(), status.clone())).collect();
            let realization = realization(&policy(), &span, &status, vec![]);
            (realization.phase, realization.current_nodes_realized, realization.problems)
        };
        assert_eq!(of(&[]), ("Realizing", 0, vec![]));
        assert_eq!(of(&[("a", status(2, None)), ("b", status(1, None))]), ("Realizing", 1, vec![]));
        assert_eq!(
            of(&[("a", status(2, None)), ("b", status(2, None)), ("c", status(2, None))]),
            ("Realized", 2, vec![])
        );
        let failed = of(&[("a", status(2, None)), ("b", status(2, Some("no switch")))]);
        assert_eq!(failed, ("Failed", 1, vec!["Node b: no switch".to_owned()]));
        let other = NodeStatus { uid: "other".into(), ..status(2, None) };
        assert_eq!(of(&[("a", other), ("b", status(2, None))]), ("Realizing", 1, vec![]));
        assert_eq!(realization(&policy(), &[], &StatusByNode::new(), vec![]).phase, "Realized");
    }

    #[test]
    fn the_replica_that_a_node_is_connected_to_has_its_latest_report() {
        let mut ours: StatusByNode = [("a".into(), status(1, None)), ("b".into(), status(1, None))].into();
        let theirs: StatusByNode = ["a", "b", "c"].map(|node| (node.into(), status(2, None))).into();
        merge(&mut ours, theirs, |node| node == "a");
        let generations: Vec<i64> = ours.values().map(|status| status.generation).collect();
        assert_eq!(generations, [2, 1, 2]);
    }
}
