use types::network_policy::NetworkPolicy;

use super::super::compile::{Uses, compile};
use super::super::nodes::NodeNames;
use super::super::tests::objects::{name, pod, policy, policy_name, selecting, show};
use super::*;
use crate::endpoint::Endpoint;

/// The stage under test, with the stage before it, and the Nodes n1 (takes changes) and n2 (does not).
struct Stage {
    nodes: NodeNames,
    selections: Selections,
    spans: Spans,
    audience: Audience,
}

impl Stage {
    fn new() -> Self {
        let (mut nodes, mut audience) = (NodeNames::default(), Audience::default());
        audience.set(nodes.intern("n1"), true);
        Self { nodes, selections: Selections::default(), spans: Spans::default(), audience }
    }

    /// Deliveries as text, with their Nodes.
    fn show(&self, deliveries: &Deliveries) -> Vec<String> {
        let nodes = |nodes: &[NodeId]| self.nodes.sorted(nodes.iter().copied()).join(" ");
        deliveries.iter().map(|(to, change)| format!("{}: {}", nodes(to), show(change))).collect()
    }

    fn pod(&mut self, text: &str, node: &str) -> Vec<String> {
        let endpoint = Endpoint::read(pod(text, node, "10.0.0.1")).0.unwrap();
        let delta = self.selections.set_pod(endpoint, Some(self.nodes.intern(node)));
        let mut deliveries = Deliveries::default();
        self.spans.pod_changed(&self.selections, &delta, &self.audience, &mut deliveries);
        self.show(&deliveries)
    }

    fn pod_gone(&mut self, text: &str) -> Vec<String> {
        let delta = self.selections.remove_pod(&name(text));
        let mut deliveries = Deliveries::default();
        self.spans.pod_changed(&self.selections, &delta, &self.audience, &mut deliveries);
        self.show(&deliveries)
    }

    fn policy(&mut self, policy: NetworkPolicy) -> (Vec<String>, Option<Uses>) {
        let compiled = compile(&mut self.selections, policy);
        let mut deliveries = Deliveries::default();
        let unused = self.spans.set_policy(&self.selections, compiled, &self.audience, &mut deliveries);
        (self.show(&deliveries), unused)
    }

    fn span(&self, text: &str) -> Vec<Arc<str>> {
        self.nodes.sorted(self.spans.policy(&policy_name(text)).unwrap().1)
    }
}

#[test]
fn a_policy_spans_the_nodes_of_its_pods_and_goes_to_those_that_take_changes() {
    let mut stage = Stage::new();
    assert_eq!(stage.pod("x/web-1", "n1"), ["n1: seen web-1 u1"]);
    assert_eq!(stage.pod("x/web-2", "n2"), Vec::<String>::new());
    assert_eq!(stage.pod("x/client-1", "n2"), Vec::<String>::new());
    let (deliveries, unused) = stage.policy(policy("x/p"));
    assert_eq!(deliveries, ["n1: address = client-1", "n1: applied-to = web-1", "n1: policy p = 0"]);
    assert_eq!((stage.span("x/p"), unused), (vec!["n1".into(), "n2".into()], None));
}

#[test]
fn one_change_is_delivered_to_all_nodes_of_a_span_at_once() {
    let mut stage = Stage::new();
    let n2 = stage.nodes.intern("n2");
    stage.audience.set(n2, true);
    for (pod, node) in [("x/web-1", "n1"), ("x/web-2", "n2")] {
        stage.pod(pod, node);
    }
    stage.policy(policy("x/p"));
    assert_eq!(stage.pod("x/client-1", "n3"), ["n1 n2: address +client-1"]);
}

#[test]
fn the_first_pod_on_a_node_brings_groups_and_policies_and_the_last_takes_them_away() {
    let mut stage = Stage::new();
    stage.policy(policy("x/p"));
    let first = ["n1: address = ", "n1: applied-to = web-1", "n1: policy p = 0", "n1: seen web-1 u1"];
    assert_eq!(stage.pod("x/web-1", "n1"), first);
    assert_eq!(stage.pod("x/web-2", "n1"), ["n1: applied-to +web-2", "n1: seen web-2 u1"]);
    assert_eq!(stage.pod_gone("x/web-1"), ["n1: applied-to -web-1", "n1: gone web-1"]);
    let last = ["n1: policy p gone", "n1: address gone", "n1: applied-to gone", "n1: gone web-2"];
    assert_eq!(stage.pod_gone("x/web-2"), last);
    assert!(stage.span("x/p").is_empty());
}

#[test]
fn a_changed_policy_gives_back_its_old_selections_and_an_unchanged_one_the_new_ones() {
    let mut stage = Stage::new();
    stage.pod("x/web-1", "n1");
    stage.policy(policy("x/p"));
    let first = stage.spans.policies.get(&policy_name("x/p")).unwrap().compiled.uses.clone();
    assert_eq!(stage.policy(policy("x/p")), (vec![], Some(first.clone())));
    let mut changed = policy("x/p");
    changed.spec.ingress[0].from[0].pod_selector = Some(selecting("web"));
    let (deliveries, unused) = stage.policy(changed);
    assert_eq!(deliveries, ["n1: address = web-1", "n1: policy p = 0", "n1: address gone"]);
    assert_eq!(unused, Some(first));
    let mut deliveries = Deliveries::default();
    stage.spans.remove_policy(&stage.selections, &policy_name("x/p"), &stage.audience, &mut deliveries);
    assert_eq!(stage.show(&deliveries), ["n1: policy p gone", "n1: address gone", "n1: applied-to gone"]);
    assert_eq!(stage.spans.counts(), (0, 0, 0));
}

#[test]
fn a_snapshot_has_what_deliveries_would_have_brought() {
    let mut stage = Stage::new();
    for (pod, node) in [("x/client-1", "n2"), ("x/web-1", "n1"), ("x/db-1", "n1")] {
        stage.pod(pod, node);
    }
    stage.policy(policy("x/p"));
    let n1 = stage.nodes.intern("n1");
    let changes: Vec<String> = stage.spans.snapshot(&stage.selections, n1).iter().map(show).collect();
    let expected = ["address = client-1", "applied-to = web-1", "policy p = 0", "seen web-1 u1", "seen db-1 u1"];
    assert_eq!(changes, expected);
}
