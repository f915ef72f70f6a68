//! What subscribed Nodes can rely on.

use types::InvalidField;
use types::control::Batch;
use types::meta::LabelSelector;
use types::network_policy::{NetworkPolicy, PolicyPort};
use types::pod::Pod;

use super::objects::{name, pod, policy, policy_name, selecting, show};
use crate::brain::{Brain, Event, Kind, Subscription, Superseded};
use crate::{Direction, Replica};

fn set(brain: &mut Brain, pod: Pod) {
    assert_eq!(brain.step(Event::Pod(Box::new(pod))), []);
}

fn add(brain: &mut Brain, policy: NetworkPolicy) -> Vec<InvalidField> {
    brain.step(Event::Policy(Box::new(policy)))
}

fn sync(brain: &mut Brain) {
    for kind in [Kind::Namespace, Kind::Pod, Kind::Policy] {
        brain.step(Event::Synced(kind));
    }
}

/// `x/web-1` on n1, `x/client-1` on n2, and the policy `x/p`.
fn example() -> Brain {
    let mut brain = Brain::default();
    set(&mut brain, pod("x/web-1", "n1", "10.0.1.1"));
    set(&mut brain, pod("x/client-1", "n2", "10.0.2.1"));
    add(&mut brain, policy("x/p"));
    sync(&mut brain);
    brain
}

fn took(brain: &mut Brain, subscription: &Subscription) -> Batch {
    brain.take(subscription).unwrap().expect("something to take")
}

fn lines(batch: &Batch) -> Vec<String> {
    batch.changes.iter().map(show).collect()
}

#[test]
fn nodes_get_nothing_before_all_kinds_are_synced() {
    let mut brain = Brain::default();
    let n1 = brain.subscribe("n1");
    set(&mut brain, pod("x/web-1", "n1", "10.0.1.1"));
    brain.step(Event::Synced(Kind::Pod));
    add(&mut brain, policy("x/p"));
    brain.step(Event::Synced(Kind::Policy));
    assert_eq!((brain.take(&n1), brain.take_ready()), (Ok(None), vec![]));
    brain.step(Event::Synced(Kind::Namespace));
    assert_eq!(brain.take_ready(), std::slice::from_ref(&n1));
    assert_eq!(lines(&took(&mut brain, &n1)), ["address = ", "applied-to = web-1", "policy p = 0", "seen web-1 u1"]);
}

#[test]
fn a_node_gets_a_snapshot_then_changes_and_only_what_it_needs() {
    let mut brain = example();
    let (n1, n2) = (brain.subscribe("n1"), brain.subscribe("n2"));
    let first = took(&mut brain, &n1);
    assert!(first.snapshot);
    assert_eq!(lines(&first), ["address = client-1", "applied-to = web-1", "policy p = 0", "seen web-1 u1"]);
    // No Pod of n2 is isolated: it gets no policies, and the acknowledgement of its Pod.
    let nothing = took(&mut brain, &n2);
    assert_eq!((nothing.snapshot, lines(&nothing)), (true, vec!["seen client-1 u1".to_owned()]));

    set(&mut brain, pod("x/client-2", "n2", "10.0.2.2"));
    assert_eq!(lines(&took(&mut brain, &n1)), ["address +client-2"]);
    assert_eq!(lines(&took(&mut brain, &n2)), ["seen client-2 u1"]);
    set(&mut brain, pod("x/web-2", "n2", "10.0.2.3"));
    assert_eq!(brain.take(&n1), Ok(None));
    let needed = ["address = client-1 client-2", "applied-to = web-2", "policy p = 0", "seen web-2 u1"];
    assert_eq!(lines(&took(&mut brain, &n2)), needed);
    brain.step(Event::PodGone(name("x/web-2")));
    assert_eq!(lines(&took(&mut brain, &n2)), ["policy p gone", "address gone", "applied-to gone", "gone web-2"]);
    // Events without effect cause no changes.
    set(&mut brain, pod("x/client-2", "n2", "10.0.2.2"));
    add(&mut brain, policy("x/p"));
    assert_eq!((brain.take(&n1), brain.take(&n2)), (Ok(None), Ok(None)));
}

#[test]
fn a_policy_is_set_after_its_new_groups_and_before_its_old_ones_are_deleted() {
    let mut brain = example();
    let n1 = brain.subscribe("n1");
    took(&mut brain, &n1);
    let mut changed = policy("x/p");
    changed.metadata.generation = 2;
    changed.spec.ingress[0].from[0].pod_selector = Some(selecting("web"));
    add(&mut brain, changed);
    assert_eq!(lines(&took(&mut brain, &n1)), ["address = web-1", "policy p = 2", "address gone"]);
    assert_eq!(brain.policy(&policy_name("x/p")).unwrap().1, ["n1".into()]);
}

#[test]
fn a_pod_is_isolated_as_soon_as_it_has_a_node_and_a_peer_once_it_has_an_address() {
    let mut brain = example();
    let n1 = brain.subscribe("n1");
    took(&mut brain, &n1);
    set(&mut brain, pod("x/web-2", "", ""));
    assert_eq!(brain.take(&n1), Ok(None));
    set(&mut brain, pod("x/client-2", "n1", ""));
    assert_eq!(lines(&took(&mut brain, &n1)), ["seen client-2 u1"]);
    set(&mut brain, pod("x/web-2", "n1", ""));
    assert_eq!(lines(&took(&mut brain, &n1)), ["applied-to +web-2", "seen web-2 u1"]);
    set(&mut brain, pod("x/client-2", "n1", "10.0.1.9"));
    assert_eq!(lines(&took(&mut brain, &n1)), ["address +client-2"]);
    // It may lose it again.
    set(&mut brain, pod("x/client-2", "n1", ""));
    assert_eq!(lines(&took(&mut brain, &n1)), ["address -client-2"]);
}

#[test]
fn host_network_and_terminated_pods_are_in_no_group() {
    let mut brain = example();
    let n1 = brain.subscribe("n1");
    took(&mut brain, &n1);
    for change in [|pod: &mut Pod| pod.spec.host_network = true, |pod: &mut Pod| pod.status.phase = "Failed".to_owned()]
    {
        let mut odd = pod("x/web-1", "n1", "10.0.1.1");
        change(&mut odd);
        set(&mut brain, odd);
        assert_eq!(lines(&took(&mut brain, &n1)), ["policy p gone", "address gone", "applied-to gone", "gone web-1"]);
        set(&mut brain, pod("x/web-1", "n1", "10.0.1.1"));
        took(&mut brain, &n1);
    }
}

#[test]
fn a_pod_is_acknowledged_once_per_uid_and_node() {
    let mut brain = example();
    let (n1, n2) = (brain.subscribe("n1"), brain.subscribe("n2"));
    let mut replica = Replica::default();
    replica.apply(&took(&mut brain, &n1)).unwrap();
    took(&mut brain, &n2);
    set(&mut brain, pod("x/web-1", "n1", "10.0.1.7"));
    assert_eq!(lines(&took(&mut brain, &n1)), ["applied-to +web-1"]);
    let mut another = pod("x/web-1", "n1", "10.0.1.7");
    another.metadata.uid = "u2".to_owned();
    set(&mut brain, another.clone());
    let batch = took(&mut brain, &n1);
    assert_eq!(lines(&batch), ["seen web-1 u2"]);
    replica.apply(&batch).unwrap();
    assert_eq!(replica.seen(), &[(name("x/web-1"), "u2".to_owned())].into());
    another.spec.node_name = "n2".to_owned();
    set(&mut brain, another);
    let batch = took(&mut brain, &n1);
    assert_eq!(lines(&batch).last().unwrap(), "gone web-1");
    replica.apply(&batch).unwrap();
    assert!(replica.seen().is_empty());
    assert_eq!(lines(&took(&mut brain, &n2)).last().unwrap(), "seen web-1 u2");
    let error = replica.apply(&batch).unwrap_err().to_string();
    assert!(error.contains("a snapshot is needed"), "{error}");
}

#[test]
fn an_address_stays_while_one_of_two_pods_has_it() {
    let mut brain = example();
    let n1 = brain.subscribe("n1");
    let mut replica = Replica::default();
    replica.apply(&took(&mut brain, &n1)).unwrap();
    set(&mut brain, pod("x/client-2", "n2", "10.0.2.1"));
    brain.step(Event::PodGone(name("x/client-1")));
    replica.apply(&took(&mut brain, &n1)).unwrap();
    let enforced = replica.enforced();
    let peers: Vec<String> =
        enforced.rules.iter().flat_map(|rule| rule.peers.iter().flatten()).map(|b| b.cidr.to_string()).collect();
    assert_eq!(peers, ["10.0.2.1/32"]);
}

#[test]
fn equivalent_selectors_share_a_group() {
    let mut brain = example();
    let mut same = policy("x/q");
    same.spec.pod_selector = LabelSelector {
        match_expressions: vec![types::meta::LabelRequirement {
            key: "app".to_owned(),
            operator: "In".to_owned(),
            values: vec!["web".to_owned()],
        }],
        ..LabelSelector::default()
    };
    add(&mut brain, same);
    assert_eq!((brain.stats().applied_to_groups, brain.stats().address_groups, brain.stats().policies), (1, 1, 2));
}

#[test]
fn a_slow_node_gets_a_snapshot_and_other_nodes_get_changes() {
    let mut brain = example();
    set(&mut brain, pod("x/web-2", "n2", "10.0.2.9"));
    let (slow, quick) = (brain.subscribe("n1"), brain.subscribe("n2"));
    let mut replica = Replica::default();
    took(&mut brain, &slow);
    replica.apply(&took(&mut brain, &quick)).unwrap();
    for n in 0..6000 {
        set(&mut brain, pod("x/client-9", "n3", &format!("10.1.{}.{}", n / 250, n % 250)));
        let batch = took(&mut brain, &quick);
        assert!(!batch.snapshot && batch.changes.len() == 1);
        replica.apply(&batch).unwrap();
    }
    let batch = took(&mut brain, &slow);
    assert!(batch.snapshot);
    assert_eq!(lines(&batch), ["address = client-1 client-9", "applied-to = web-1", "policy p = 0", "seen web-1 u1"]);
    let mut fresh = Replica::default();
    fresh.apply(&batch).unwrap();
    assert_eq!(fresh.addresses(), replica.addresses());
}

#[test]
fn a_new_subscription_ends_the_previous_one_of_the_node() {
    let mut brain = example();
    let first = brain.subscribe("n1");
    took(&mut brain, &first);
    let second = brain.subscribe("n1");
    assert_eq!(brain.take(&first), Err(Superseded));
    // Ending the first one late does not end the second.
    brain.unsubscribe(&first);
    assert!(took(&mut brain, &second).snapshot);
    brain.unsubscribe(&second);
    assert_eq!(brain.take(&second), Err(Superseded));
}

#[test]
fn a_node_is_reported_as_ready_once_until_it_takes() {
    let mut brain = example();
    let n1 = brain.subscribe("n1");
    assert_eq!(brain.take_ready(), std::slice::from_ref(&n1));
    took(&mut brain, &n1);
    for n in 2..5 {
        set(&mut brain, pod(&format!("x/client-{n}"), "n2", &format!("10.0.2.{n}")));
        assert_eq!(brain.take_ready(), if n == 2 { vec![n1.clone()] } else { vec![] });
    }
    assert_eq!(took(&mut brain, &n1).changes.len(), 3);
    assert_eq!((brain.take(&n1), brain.take_ready()), (Ok(None), vec![]));
}

#[test]
fn invalid_fields_are_reported_and_allow_nothing_and_other_policies_apply() {
    let mut brain = example();
    let mut bad = policy("x/bad");
    bad.spec.ingress[0].ports =
        vec![PolicyPort { port: Some(types::meta::IntOrString::Int(70000)), ..PolicyPort::default() }];
    let problems = add(&mut brain, bad);
    assert_eq!(problems[0].field, "spec.ingress[0].ports[0].port");
    assert_eq!(brain.problems(&policy_name("x/bad")), problems);
    let n1 = brain.subscribe("n1");
    let mut replica = Replica::default();
    replica.apply(&took(&mut brain, &n1)).unwrap();
    let enforced = replica.enforced();
    assert_eq!(enforced.isolated, [(Direction::Ingress, name("x/web-1"))].into());
    assert_eq!(enforced.rules.iter().map(|rule| rule.policy.object.name.as_str()).collect::<Vec<_>>(), ["p"]);
    assert_eq!(add(&mut brain, policy("x/bad")), []);
    assert_eq!(brain.problems(&policy_name("x/bad")), []);
}

#[test]
fn a_rule_with_a_missing_group_allows_nothing_and_its_pods_are_isolated() {
    let mut brain = example();
    let n1 = brain.subscribe("n1");
    let mut batch = took(&mut brain, &n1);
    batch.changes.retain(|change| !matches!(change, types::control::Change::Address(_)));
    let mut replica = Replica::default();
    replica.apply(&batch).unwrap();
    let enforced = replica.enforced();
    assert_eq!((enforced.rules.len(), enforced.isolated.len(), enforced.missing.len()), (0, 1, 1));
}

#[test]
fn a_replica_that_missed_a_batch_reports_it() {
    let mut brain = example();
    let n1 = brain.subscribe("n1");
    took(&mut brain, &n1);
    set(&mut brain, pod("x/client-2", "n2", "10.0.2.2"));
    let error = Replica::default().apply(&took(&mut brain, &n1)).unwrap_err().to_string();
    assert!(
        error.starts_with("AddressGroup ")
            && error.ends_with("cannot be patched: it does not exist; a snapshot is needed")
    );
}
