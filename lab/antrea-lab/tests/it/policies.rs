//! NetworkPolicies with packets: all connections between nine Pods in three namespaces on three Nodes, compared with the
//! documentation.

pub(crate) mod outages;
pub(crate) mod probes;
mod world;

use serde_json::{Value, json};

use world::World;

/// Changes of a cluster, applied in order; after each, all connections are tested.
enum Step {
    /// A policy of this namespace and name is like this from now on.
    Policy(&'static str, &'static str, Value),
    PolicyGone(&'static str, &'static str),
    /// The same for policies of Antrea; the namespace of a ClusterNetworkPolicy is empty.
    Antrea(&'static str, &'static str, Value),
    AntreaGone(&'static str, &'static str),
    /// A Pod has this label from now on, or no longer has it.
    PodLabel(&'static str, &'static str, &'static str, Option<&'static str>),
    /// A namespace has this label from now on, or no longer has it.
    NamespaceLabel(&'static str, &'static str, Option<&'static str>),
}
use Step::{Antrea, AntreaGone, NamespaceLabel, PodLabel, Policy, PolicyGone};

fn pod(name: &str) -> Value {
    json!({"podSelector": {"matchLabels": {"pod": name}}})
}

fn namespace(name: &str) -> Value {
    json!({"namespaceSelector": {"matchLabels": {"ns": name}}})
}

/// All forms of policies in the documentation of the API, overlapping policies, and changes of labels.
fn steps() -> Vec<(&'static str, Step)> {
    let a = json!({"matchLabels": {"pod": "a"}});
    let ingress = |from: Value| json!({"podSelector": a, "ingress": [{"from": from}]});
    let both = json!({"podSelector": {"matchLabels": {"pod": "b"}}, "namespaceSelector": {"matchLabels": {"ns": "y"}}});
    vec![
        ("default deny of what comes in", Policy("x", "p", json!({"podSelector": {}, "policyTypes": ["Ingress"]}))),
        ("and another that allows all of it", Policy("x", "q", json!({"podSelector": {}, "ingress": [{}]}))),
        ("the first is gone, and nothing changes", PolicyGone("x", "p")),
        ("default deny of what goes out", Policy("x", "q", json!({"podSelector": {}, "policyTypes": ["Egress"]}))),
        ("of both", Policy("x", "q", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}))),
        ("Pods of the own namespace", Policy("x", "q", ingress(json!([pod("b")])))),
        ("a Pod changes its label", PodLabel("x", "c", "pod", Some("b"))),
        ("and back", PodLabel("x", "c", "pod", Some("c"))),
        ("Pods of other namespaces", Policy("x", "q", ingress(json!([namespace("y")])))),
        ("a namespace changes its label", NamespaceLabel("z", "ns", Some("y"))),
        ("and back", NamespaceLabel("z", "ns", Some("z"))),
        ("both selectors together", Policy("x", "q", ingress(json!([both])))),
        ("either selector", Policy("x", "q", ingress(json!([pod("b"), namespace("y")])))),
        (
            "expressions",
            Policy(
                "x",
                "q",
                ingress(json!([
                    {"namespaceSelector": {"matchExpressions": [{"key": "ns", "operator": "NotIn", "values": ["x", "y"]}]}},
                    {"podSelector": {"matchExpressions": [
                        {"key": "pod", "operator": "In", "values": ["b", "c"]},
                        {"key": "special", "operator": "Exists"},
                    ]}},
                ])),
            ),
        ),
        ("a label that was asked for", PodLabel("x", "c", "special", Some("yes"))),
        ("and is gone", PodLabel("x", "c", "special", None)),
        (
            "addresses with a hole, and a port",
            Policy(
                "x",
                "q",
                json!({"podSelector": {}, "ingress": [{
                    "from": [{"ipBlock": {"cidr": "10.10.0.0/16", "except": ["10.10.2.0/24"]}}], "ports": [{"port": 80}],
                }]}),
            ),
        ),
        (
            "a port of UDP and a range",
            Policy(
                "x",
                "q",
                json!({"podSelector": {}, "ingress": [
                    {"ports": [{"port": 81, "protocol": "UDP"}]}, {"from": [namespace("z")], "ports": [{"port": 1, "endPort": 80}]},
                ]}),
            ),
        ),
        (
            "ports by name, in and out",
            Policy(
                "x",
                "q",
                json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{"ports": [{"port": "web"}]}], "egress": [
                    {"to": [namespace("y")], "ports": [{"port": "web"}, {"port": 81, "protocol": "UDP"}]},
                ]}),
            ),
        ),
        (
            "where it leads is closed too",
            Policy("y", "r", json!({"podSelector": a, "ingress": [{"from": [namespace("z")]}]})),
        ),
        ("a second policy for the same Pods opens more", Policy("y", "s", ingress(json!([namespace("x")])))),
        ("and is gone", PolicyGone("y", "s")),
        (
            "rules of a direction that the policy is not about",
            Policy(
                "x",
                "q",
                json!({"podSelector": {}, "policyTypes": ["Egress"], "ingress": [], "egress": [{"to": [namespace("x")]}]}),
            ),
        ),
        ("all gone: one", PolicyGone("x", "q")),
        ("all gone: two", PolicyGone("y", "r")),
    ]
}

/// Tiers before and after the policies of Kubernetes, every action, and policies of both kinds.
fn tiered_steps() -> Vec<(&'static str, Step)> {
    let of = |name: &str| json!({"podSelector": {"matchLabels": {"pod": name}}});
    let rule = |action: &str, from: Value| json!({"action": action, "from": from});
    let spec = |tier: &str, priority: f64, applied_to: Value, ingress: Value| json!({"tier": tier, "priority": priority, "appliedTo": [applied_to], "ingress": ingress});
    let x = namespace("x");
    vec![
        (
            "a ClusterNetworkPolicy drops",
            Antrea("", "drop", spec("securityops", 5.0, of("a"), json!([rule("Drop", json!([x]))]))),
        ),
        (
            "one of an earlier Tier allows a part of it",
            Antrea("", "allow", spec("emergency", 9.5, of("a"), json!([rule("Allow", json!([pod("b")]))]))),
        ),
        (
            "a Kubernetes policy isolates, and is not asked where Tiers decide",
            Policy("y", "q", json!({"podSelector": {}, "ingress": [{"from": [namespace("z")]}]})),
        ),
        (
            "one Tier passes to it",
            Antrea(
                "",
                "allow",
                spec("emergency", 9.5, of("a"), json!([rule("Pass", json!([x])), rule("Allow", json!([]))])),
            ),
        ),
        (
            "a policy of a namespace before it, at the same Tier, with ports and a fraction",
            Antrea(
                "y",
                "own",
                json!({"tier": "emergency", "priority": 9.25, "appliedTo": [{}], "ingress": [
                    {"action": "Reject", "ports": [{"port": 81, "protocol": "UDP"}, {"port": "web"}]},
                ]}),
            ),
        ),
        (
            "a rule with Pods of its own, and egress",
            Antrea(
                "",
                "drop",
                json!({"tier": "securityops", "priority": 5, "egress": [
                    {"action": "Drop", "appliedTo": [of("b")], "to": [{"namespaces": {"match": "Self"}}]},
                    {"action": "Drop", "appliedTo": [of("c")], "to": [{"ipBlock": {"cidr": "10.10.0.0/16", "except": ["10.10.2.0/24"]}}]},
                ]}),
            ),
        ),
        ("earlier Tiers are empty", AntreaGone("", "allow")),
        ("of both kinds", AntreaGone("y", "own")),
        (
            "the baseline drops what no Kubernetes policy decides",
            Antrea(
                "",
                "last",
                spec("baseline", 1.0, json!({"podSelector": {}}), json!([rule("Drop", json!([pod("c")]))])),
            ),
        ),
        (
            "equal ranks: the stricter action is first",
            Antrea("", "drop", spec("application", 7.0, of("b"), json!([rule("Allow", json!([]))]))),
        ),
        ("in another policy", Antrea("", "drop2", spec("", 7.0, of("b"), json!([rule("Drop", json!([pod("a")]))])))),
        ("all gone: one", AntreaGone("", "drop")),
        ("all gone: two", AntreaGone("", "drop2")),
        ("all gone: three", AntreaGone("", "last")),
        ("all gone: four", PolicyGone("y", "q")),
    ]
}

#[test]
fn every_connection_matches_the_documentation() {
    all_match(World::start("policies"), steps());
}

#[test]
fn every_connection_matches_the_documentation_of_tiers() {
    let mut world = World::start("tiers");
    world.wait_for_tiers();
    all_match(world, tiered_steps());
}

/// Applies steps, and tests all connections after each.
fn all_match(mut world: World, steps: Vec<(&'static str, Step)>) {
    let mut allowed = (0, 0);
    for (what, step) in steps {
        match step {
            Policy(namespace, name, spec) => world.policy(namespace, name, &spec),
            PolicyGone(namespace, name) => world.policy_gone(namespace, name),
            Antrea(namespace, name, spec) => world.antrea_policy(namespace, name, &spec),
            AntreaGone(namespace, name) => world.antrea_policy_gone(namespace, name),
            PodLabel(namespace, name, key, value) => world.pod_label(namespace, name, key, value),
            NamespaceLabel(namespace, key, value) => world.namespace_label(namespace, key, value),
        }
        let (of, all) = world.agrees(what);
        println!("{what}: {of} of {all} connections are allowed, as documented");
        allowed = (allowed.0 + of, allowed.1 + all);
    }
    assert!(0 < allowed.0 && allowed.0 < allowed.1, "{allowed:?}");
}
