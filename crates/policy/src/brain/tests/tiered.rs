//! What Antrea policies, Tiers and groups do on Nodes.

use types::InvalidField;
use types::antrea::{ExternalEntity, Group, Policy};
use types::control::{Action, Order, PolicyName, Ports, Service};
use types::meta::Protocol;
use types::node::Namespace;

use super::antrea::tier;
use super::objects::{pod, show};
use crate::brain::{Brain, Event, Kind, Subscription};
use crate::reading::policy_name;
use crate::{Replica, brain};

/// A policy or group `name`, or `namespace/name`.
fn object(text: &str) -> types::ObjectName {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    types::ObjectName { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn named(text: &str) -> PolicyName {
    policy_name(object(text))
}

fn policy(brain: &mut Brain, name: &str, spec: &str) -> Vec<InvalidField> {
    let mut policy: Policy = serde_json::from_str(&format!(r#"{{"spec": {spec}}}"#)).unwrap();
    (policy.metadata.namespace, policy.metadata.name) = (object(name).namespace, object(name).name);
    brain.step(Event::AntreaPolicy(Box::new(policy)))
}

fn group(brain: &mut Brain, name: &str, spec: &str) -> Vec<InvalidField> {
    let mut group: Group = serde_json::from_str(&format!(r#"{{"spec": {spec}}}"#)).unwrap();
    (group.metadata.namespace, group.metadata.name) = (object(name).namespace, object(name).name);
    brain.step(Event::Group(Box::new(group)))
}

fn namespace(brain: &mut Brain, name: &str, team: &str) {
    let mut namespace = Namespace::default();
    namespace.metadata.name = name.to_owned();
    if !team.is_empty() {
        namespace.metadata.labels = [("team".to_owned(), team.to_owned())].into();
    }
    brain.step(Event::Namespace(namespace));
}

/// Namespaces x and y of team a, z of team b; in each a Pod `web-1` on n1, and a Pod `db-1` on n2. The Tier `application`.
fn example() -> Brain {
    let mut brain = Brain::default();
    for (n, (name, team)) in [("x", "a"), ("y", "a"), ("z", "b")].into_iter().enumerate() {
        namespace(&mut brain, name, team);
        brain.step(Event::Pod(Box::new(pod(&format!("{name}/web-1"), "n1", &format!("10.0.{n}.1")))));
        brain.step(Event::Pod(Box::new(pod(&format!("{name}/db-1"), "n2", &format!("10.0.{n}.2")))));
    }
    brain.step(Event::Tier(Box::new(tier("application", 250))));
    for kind in brain::Kind::ALWAYS {
        brain.step(Event::Synced(kind));
    }
    brain
}

fn lines(brain: &mut Brain, subscription: &Subscription) -> Vec<String> {
    brain.take(subscription).unwrap().map(|batch| batch.changes.iter().map(show).collect()).unwrap_or_default()
}

/// What a Node enforces: action, Pods and peers of each rule.
fn enforced(brain: &mut Brain, node: &str) -> Vec<String> {
    let subscription = brain.subscribe(node);
    let mut replica = Replica::default();
    replica.apply(&brain.take(&subscription).unwrap().unwrap()).unwrap();
    brain.unsubscribe(&subscription);
    let enforced = replica.enforced();
    assert!(enforced.missing.is_empty());
    let rules = enforced.rules.iter().map(|rule| {
        let pods: Vec<String> = rule.applied_to.iter().map(ToString::to_string).collect();
        let peers = rule.peers.as_ref().map_or("any".to_owned(), |peers| {
            peers.iter().map(|block| block.cidr.to_string()).collect::<Vec<_>>().join(" ")
        });
        format!("{:?} {}: {peers}", rule.action, pods.join(" "))
    });
    rules.collect()
}

const DROP_ALL: &str = r#"{"priority": 5, "appliedTo": [{"podSelector": {"matchLabels": {"app": "web"}}}], "ingress": [{"action": "Drop"}]}"#;

#[test]
fn a_policy_of_the_cluster_applies_in_all_namespaces_and_has_a_rank() {
    let mut brain = example();
    assert_eq!(policy(&mut brain, "p", DROP_ALL), []);
    assert_eq!(enforced(&mut brain, "n1"), ["Drop x/web-1 y/web-1 z/web-1: any"]);
    let (policy, span) = brain.policy(&named("p")).unwrap();
    let Order::Tiered(rank) = policy.order else { panic!("{policy:?}") };
    assert_eq!((rank.tier, rank.priority.value(), span), (250, 5.0, vec!["n1".into()]));
    assert_eq!((policy.rules[0].action, &policy.rules[0].applied_to), (Action::Drop, &None));
}

#[test]
fn a_policy_waits_for_its_tier_and_follows_its_priority() {
    let mut brain = example();
    let n1 = brain.subscribe("n1");
    lines(&mut brain, &n1);
    let spec = DROP_ALL.replacen('{', r#"{"tier": "mine", "#, 1);
    let problems = policy(&mut brain, "p", &spec);
    assert_eq!(
        problems[0].to_string(),
        "AntreaClusterNetworkPolicy p: spec.tier: Tier mine does not exist; the policy is not enforced until it is created"
    );
    assert!(brain.problems(&named("p")) == problems && brain.policy(&named("p")).is_none());
    assert_eq!(lines(&mut brain, &n1), Vec::<String>::new());
    brain.step(Event::Tier(Box::new(tier("mine", 10))));
    assert_eq!(brain.problems(&named("p")), []);
    assert_eq!(lines(&mut brain, &n1), ["applied-to = web-1 web-1 web-1", "policy p = 0"]);
    brain.step(Event::Tier(Box::new(tier("mine", 20))));
    assert_eq!(lines(&mut brain, &n1), ["policy p = 0"]);
    brain.step(Event::Tier(Box::new(tier("mine", 20))));
    assert_eq!(lines(&mut brain, &n1), Vec::<String>::new());
    assert_eq!(brain.step(Event::Tier(Box::new(tier("mine", 256))))[0].field, "spec.priority");
    assert_eq!(lines(&mut brain, &n1), ["policy p gone", "applied-to gone"]);
    brain.step(Event::Tier(Box::new(tier("mine", 20))));
    lines(&mut brain, &n1);
    assert_eq!(brain.step(Event::TierGone("mine".to_owned())), problems);
    assert_eq!(lines(&mut brain, &n1), ["policy p gone", "applied-to gone"]);
}

#[test]
fn a_missing_group_selects_nothing_and_works_when_it_appears() {
    let mut brain = example();
    let spec = r#"{"priority": 1, "appliedTo": [{"group": "webs"}], "ingress": [{"action": "Allow", "from": [{"group": "parent"}]}]}"#;
    let fields = |problems: &[InvalidField]| problems.iter().map(|p| p.field.clone()).collect::<Vec<_>>();
    assert_eq!(fields(&policy(&mut brain, "p", spec)), ["spec.appliedTo[0].group", "spec.ingress[0].from[0].group"]);
    assert!(enforced(&mut brain, "n1").is_empty());
    assert_eq!(group(&mut brain, "webs", r#"{"podSelector": {"matchLabels": {"app": "web"}}}"#), []);
    assert_eq!(enforced(&mut brain, "n1"), ["Allow x/web-1 y/web-1 z/web-1: "]);
    // A group that appears may name children that do not exist yet: the problem is one of the policy.
    assert_eq!(fields(&group(&mut brain, "parent", r#"{"childGroups": ["child", "ips"]}"#)).len(), 2);
    group(&mut brain, "child", r#"{"namespaceSelector": {"matchLabels": {"team": "b"}}}"#);
    group(&mut brain, "ips", r#"{"ipBlocks": [{"cidr": "192.0.2.0/24"}]}"#);
    assert_eq!(brain.problems(&named("p")), []);
    assert_eq!(enforced(&mut brain, "n1"), ["Allow x/web-1 y/web-1 z/web-1: 10.0.2.1/32 10.0.2.2/32 192.0.2.0/24"]);
    // Children have no children.
    group(&mut brain, "child", r#"{"childGroups": ["ips"]}"#);
    assert!(brain.problems(&named("p"))[0].problem.contains("has childGroups itself"));
    assert_eq!(enforced(&mut brain, "n1"), ["Allow x/web-1 y/web-1 z/web-1: 192.0.2.0/24"]);
    brain.step(Event::GroupGone(object("parent")));
    assert_eq!(enforced(&mut brain, "n1"), ["Allow x/web-1 y/web-1 z/web-1: "]);
}

#[test]
fn a_policy_does_not_apply_to_addresses_and_one_of_a_namespace_not_to_other_namespaces() {
    let mut brain = example();
    group(&mut brain, "g", r#"{"ipBlocks": [{"cidr": "10.0.0.0/8"}]}"#);
    group(&mut brain, "x/g", r#"{"namespaceSelector": {}}"#);
    let spec = r#"{"priority": 1, "appliedTo": [{"group": "g"}], "ingress": [{"action": "Drop"}]}"#;
    assert!(policy(&mut brain, "p", spec)[0].problem.contains("ipBlocks"));
    assert!(policy(&mut brain, "x/p", spec)[0].problem.contains("selects Namespaces"));
    assert!(enforced(&mut brain, "n1").is_empty());
    group(&mut brain, "x/g", r#"{"podSelector": {}}"#);
    assert_eq!(enforced(&mut brain, "n1"), ["Drop x/web-1: any"]);
}

#[test]
fn a_rule_for_the_own_namespace_unites_all_entries_of_applied_to() {
    let mut brain = example();
    let spec = r#"{"priority": 1, "appliedTo": [
        {"podSelector": {"matchLabels": {"app": "web"}}, "namespaceSelector": {"matchLabels": {"team": "a"}}},
        {"podSelector": {"matchLabels": {"app": "db"}}}
    ], "ingress": [{"action": "Allow", "from": [{"namespaces": {"match": "Self"}}]}, {"action": "Drop"}]}"#;
    assert_eq!(policy(&mut brain, "p", spec), []);
    let allowed = [
        "Allow x/web-1: 10.0.0.1/32 10.0.0.2/32",
        "Allow y/web-1: 10.0.1.1/32 10.0.1.2/32",
        "Drop x/web-1 y/web-1: any",
    ];
    assert_eq!(enforced(&mut brain, "n1"), allowed);
    assert_eq!(enforced(&mut brain, "n2").len(), 4);
    // A Node gets only the AddressGroups of rules for its own Pods.
    let n1 = brain.subscribe("n1");
    let addresses = lines(&mut brain, &n1).iter().filter(|line| line.starts_with("address")).count();
    assert_eq!((addresses, brain.stats().address_groups), (2, 3));
    namespace(&mut brain, "z", "a");
    assert_eq!(enforced(&mut brain, "n1").len(), 4);
    brain.step(Event::NamespaceGone("x".to_owned()));
    assert_eq!(enforced(&mut brain, "n1").len(), 3);
}

#[test]
fn namespaces_with_the_same_labels_are_peers_and_one_that_lacks_a_label_has_no_rule() {
    let mut brain = example();
    let spec = r#"{"priority": 1, "appliedTo": [
        {"podSelector": {"matchLabels": {"app": "web"}}}, {"podSelector": {"matchLabels": {"app": "db"}}}
    ], "ingress": [{"action": "Allow", "from": [
        {"namespaces": {"sameLabels": ["team"]}, "podSelector": {"matchLabels": {"app": "web"}}}
    ]}]}"#;
    assert_eq!(policy(&mut brain, "p", spec), []);
    assert_eq!(
        enforced(&mut brain, "n1"),
        ["Allow x/web-1 y/web-1: 10.0.0.1/32 10.0.1.1/32", "Allow z/web-1: 10.0.2.1/32"]
    );
    assert_eq!(
        enforced(&mut brain, "n2"),
        ["Allow x/db-1 y/db-1: 10.0.0.1/32 10.0.1.1/32", "Allow z/db-1: 10.0.2.1/32"]
    );
    namespace(&mut brain, "y", "b");
    assert_eq!(
        enforced(&mut brain, "n1"),
        ["Allow x/web-1: 10.0.0.1/32", "Allow y/web-1 z/web-1: 10.0.1.1/32 10.0.2.1/32"]
    );
    namespace(&mut brain, "x", "");
    assert_eq!(enforced(&mut brain, "n1"), ["Allow y/web-1 z/web-1: 10.0.1.1/32 10.0.2.1/32"]);
}

#[test]
fn a_node_gets_a_policy_with_its_first_applied_to_group_and_keeps_it_until_the_last() {
    let mut brain = example();
    let n3 = brain.subscribe("n3");
    lines(&mut brain, &n3);
    let rule = |app: &str| {
        format!(
            r#"{{"action": "Drop", "appliedTo": [{{"podSelector": {{"matchLabels": {{"app": "{app}"}}}}}}], "from": [{{"podSelector": {{"matchLabels": {{"app": "{app}"}}}}}}]}}"#
        )
    };
    policy(&mut brain, "p", &format!(r#"{{"priority": 1, "ingress": [{}, {}]}}"#, rule("api"), rule("job")));
    let set = |brain: &mut Brain, name: &str| drop(brain.step(Event::Pod(Box::new(pod(name, "n3", "10.0.9.9")))));
    set(&mut brain, "x/api-1");
    assert_eq!(lines(&mut brain, &n3), ["address = api-1", "applied-to = api-1", "policy p = 0", "seen api-1 u1"]);
    set(&mut brain, "x/job-1");
    assert_eq!(lines(&mut brain, &n3), ["address = job-1", "applied-to = job-1", "seen job-1 u1"]);
    brain.step(Event::PodGone(super::objects::name("x/api-1")));
    assert_eq!(lines(&mut brain, &n3), ["address -api-1", "address gone", "applied-to gone", "gone api-1"]);
    brain.step(Event::PodGone(super::objects::name("x/job-1")));
    assert_eq!(
        lines(&mut brain, &n3),
        ["address -job-1", "policy p gone", "address gone", "applied-to gone", "gone job-1"]
    );
}

#[test]
fn external_entities_are_peers_with_their_addresses_and_named_ports() {
    let mut brain = example();
    let entity = |brain: &mut Brain, name: &str, spec: &str| {
        let text = format!(r#"{{"metadata": {{"labels": {{"app": "db"}}}}, "spec": {spec}}}"#);
        let mut entity: ExternalEntity = serde_json::from_str(&text).unwrap();
        (entity.metadata.namespace, entity.metadata.name) = (object(name).namespace, object(name).name);
        brain.step(Event::ExternalEntity(Box::new(entity)))
    };
    let to = r#"[{"externalEntitySelector": {"matchLabels": {"app": "db"}}}]"#;
    let egress = format!(
        r#"[{{"action": "Allow", "to": {to}, "ports": [{{"port": "sql"}}]}}, {{"action": "Reject", "to": {to}}}]"#
    );
    let spec = format!(r#"{{"priority": 1, "appliedTo": [{{"podSelector": {{}}}}], "egress": {egress}}}"#);
    assert_eq!(policy(&mut brain, "x/p", &spec), []);
    assert!(enforced(&mut brain, "n1").is_empty());
    let spec = r#"{"endpoints": [{"ip": "192.0.2.1"}], "ports": [{"protocol": "TCP", "port": 5432, "name": "sql"}]}"#;
    assert_eq!(entity(&mut brain, "x/e", spec), []);
    assert_eq!(entity(&mut brain, "y/e", spec), []);
    let problems = entity(&mut brain, "x/f", r#"{"endpoints": [{"ip": "nowhere"}, {"ip": "192.0.2.2"}]}"#);
    assert_eq!(problems[0].field, "spec.endpoints[0].ip");
    let expected = ["Allow x/web-1: 192.0.2.1/32", "Reject x/web-1: 192.0.2.1/32 192.0.2.2/32"];
    assert_eq!(enforced(&mut brain, "n1"), expected);
    let (policy, _) = brain.policy(&named("x/p")).unwrap();
    let ports = Service::Ports(Ports { protocol: Protocol::Tcp, range: Some((5432, 5432)) });
    assert_eq!(policy.rules[0].services, Some(vec![ports]));
    brain.step(Event::ExternalEntityGone(object("x/e")));
    assert_eq!(enforced(&mut brain, "n1"), ["Reject x/web-1: 192.0.2.2/32"]);
}

#[test]
fn an_entity_that_arrives_during_the_initial_sync_is_a_peer_after_it() {
    let mut brain = Brain::default();
    brain.step(Event::Tier(Box::new(tier("application", 250))));
    brain.step(Event::Pod(Box::new(pod("x/web-1", "n1", "10.0.0.1"))));
    let egress = r#"[{"action": "Drop", "to": [{"externalEntitySelector": {}}]}]"#;
    policy(&mut brain, "x/p", &format!(r#"{{"priority": 1, "appliedTo": [{{}}], "egress": {egress}}}"#));
    let mut entity: ExternalEntity = serde_json::from_str(r#"{"spec": {"endpoints": [{"ip": "192.0.2.1"}]}}"#).unwrap();
    (entity.metadata.namespace, entity.metadata.name) = ("x".to_owned(), "e".to_owned());
    brain.step(Event::ExternalEntity(Box::new(entity)));
    for kind in Kind::ALWAYS {
        brain.step(Event::Synced(kind));
    }
    assert_eq!(enforced(&mut brain, "n1"), ["Drop x/web-1: 192.0.2.1/32"]);
}

#[test]
fn kinds_of_antrea_are_awaited_only_if_they_are_watched() {
    let mut brain = Brain::default();
    for kind in [Kind::Tier, Kind::ClusterNetworkPolicy] {
        brain.step(Event::Watched(kind));
    }
    for kind in Kind::ALWAYS {
        brain.step(Event::Synced(kind));
    }
    brain.step(Event::Synced(Kind::Tier));
    assert!(!brain.is_synced());
    brain.step(Event::Synced(Kind::ClusterNetworkPolicy));
    assert!(brain.is_synced());
}

#[test]
fn a_policy_of_kubernetes_and_one_of_antrea_may_have_the_same_name() {
    let mut brain = example();
    policy(&mut brain, "x/p", r#"{"priority": 1, "appliedTo": [{}], "ingress": [{"action": "Drop"}]}"#);
    brain.step(Event::Policy(Box::new(super::objects::policy("x/p"))));
    assert_eq!(brain.stats().policies, 2);
    brain.step(Event::AntreaPolicyGone(object("x/p")));
    assert_eq!((brain.stats().policies, brain.policy(&named("x/p"))), (1, None));
}
