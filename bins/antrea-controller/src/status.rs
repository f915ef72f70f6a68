//! How far policies are carried out: what agents report, and what follows from it.
//!
//! A replica knows the reports of the agents that it tells, or told: an agent that has moved to another replica reports there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use policy::Brain;
use serde::{Deserialize, Serialize};
use types::ObjectName;
use types::control::{Policy, Report};

/// What a Node says of a version of a policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) uid: String,
    pub(crate) generation: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// What Nodes say of a policy.
pub(crate) type ByNode = BTreeMap<String, Said>;

/// The reports of the agents that are, or were, connected here.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    policies: HashMap<ObjectName, ByNode>,
    connected: BTreeSet<String>,
}

/// How far a policy is carried out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Realisation {
    pub(crate) phase: &'static str,
    pub(crate) observed_generation: i64,
    pub(crate) current_nodes_realized: usize,
    pub(crate) desired_nodes_realized: usize,
    /// What could not be understood, and what Nodes could not carry out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) problems: Vec<String>,
}

impl Reports {
    /// The agent of a Node is connected here.
    pub(crate) fn connected(&mut self, node: &str) {
        self.connected.insert(node.into());
    }

    /// It is no more; what it said still holds, unless another replica has heard otherwise.
    pub(crate) fn disconnected(&mut self, node: &str) {
        self.connected.remove(node);
    }

    /// Takes reports of policies that there are; of others nobody asks, and nobody would forget them.
    pub(crate) fn take(&mut self, brain: &Brain, node: &str, reports: Vec<Report>) {
        for Report { policy, uid, generation, problem } in reports {
            let known = brain.policy(&policy).filter(|(known, _)| known.uid == uid);
            if let Some((_, span)) = known.filter(|(_, span)| is_in(span, node)) {
                let said = Said { uid, generation, problem };
                let by_node = self.policies.entry(policy).or_default();
                by_node.insert(node.to_owned(), said);
                // Nodes that the policy has left say nothing of it.
                by_node.retain(|node, _| is_in(&span, node));
            }
        }
    }

    /// A policy is gone.
    pub(crate) fn forget(&mut self, policy: &ObjectName) {
        self.policies.remove(policy);
    }

    /// What is said of a policy.
    pub(crate) fn of(&self, policy: &ObjectName) -> ByNode {
        self.policies.get(policy).cloned().unwrap_or_default()
    }

    /// What is said of all policies.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&ObjectName, &ByNode)> {
        self.policies.iter()
    }

    /// The Nodes whose agents are connected here.
    pub(crate) fn listeners(&self) -> &BTreeSet<String> {
        &self.connected
    }
}

fn is_in(span: &[Arc<str>], node: &str) -> bool {
    span.binary_search_by(|it| (**it).cmp(node)).is_ok()
}

/// What follows from the reports of all replicas.
pub(crate) fn realisation(
    policy: &Policy,
    span: &[Arc<str>],
    said: &ByNode,
    not_understood: Vec<String>,
) -> Realisation {
    let of_this = |node: &Arc<str>| {
        let said = said.get(&**node)?;
        (said.uid == policy.uid && said.generation == policy.generation).then_some(said)
    };
    let heard: Vec<(&Arc<str>, &Said)> = span.iter().filter_map(|node| Some((node, of_this(node)?))).collect();
    let failed = heard.iter().filter_map(|(node, said)| Some(format!("Node {node}: {}", said.problem.as_ref()?)));
    let failed: Vec<String> = failed.collect();
    let current = heard.len() - failed.len();
    let phase = match (failed.is_empty(), current == span.len()) {
        (false, _) => "Failed",
        (true, true) => "Realized",
        (true, false) => "Realizing",
    };
    Realisation {
        phase,
        observed_generation: policy.generation,
        current_nodes_realized: current,
        desired_nodes_realized: span.len(),
        problems: not_understood.into_iter().chain(failed).collect(),
    }
}

/// Adds what another replica has heard: of a Node, the replica knows best that it is connected to.
pub(crate) fn merge(into: &mut ByNode, other: ByNode, connected_there: impl Fn(&str) -> bool) {
    for (node, said) in other {
        if connected_there(&node) || !into.contains_key(&node) {
            into.insert(node, said);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(generation: i64, problem: Option<&str>) -> Said {
        Said { uid: "u".into(), generation, problem: problem.map(str::to_owned) }
    }

    fn policy() -> Policy {
        let isolates = types::control::Isolation::default();
        let (name, uid) = (ObjectName::default(), "u".to_owned());
        Policy { name, uid, generation: 2, applied_to: vec![], isolates, rules: vec![] }
    }

    #[test]
    fn a_policy_is_realised_when_every_node_of_its_span_has_said_so_of_this_version() {
        let span: Vec<Arc<str>> = vec!["a".into(), "b".into()];
        let of = |said: &[(&str, Said)]| {
            let said = said.iter().map(|(node, said)| ((*node).into(), said.clone())).collect();
            let realisation = realisation(&policy(), &span, &said, vec![]);
            (realisation.phase, realisation.current_nodes_realized, realisation.problems)
        };
        assert_eq!(of(&[]), ("Realizing", 0, vec![]));
        assert_eq!(of(&[("a", said(2, None)), ("b", said(1, None))]), ("Realizing", 1, vec![]));
        assert_eq!(of(&[("a", said(2, None)), ("b", said(2, None)), ("c", said(2, None))]), ("Realized", 2, vec![]));
        let failed = of(&[("a", said(2, None)), ("b", said(2, Some("no switch")))]);
        assert_eq!(failed, ("Failed", 1, vec!["Node b: no switch".to_owned()]));
        let other = Said { uid: "other".into(), ..said(2, None) };
        assert_eq!(of(&[("a", other), ("b", said(2, None))]), ("Realizing", 1, vec![]));
        assert_eq!(realisation(&policy(), &[], &ByNode::new(), vec![]).phase, "Realized");
    }

    #[test]
    fn of_a_node_the_replica_knows_best_that_it_is_connected_to() {
        let mut ours: ByNode = [("a".into(), said(1, None)), ("b".into(), said(1, None))].into();
        let theirs: ByNode = ["a", "b", "c"].map(|node| (node.into(), said(2, None))).into();
        merge(&mut ours, theirs, |node| node == "a");
        let generations: Vec<i64> = ours.values().map(|said| said.generation).collect();
        assert_eq!(generations, [2, 1, 2]);
    }
}
