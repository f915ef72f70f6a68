use std::sync::Arc;

use types::control::PodChange;

use super::super::nodes::NodeNames;
use super::super::tests::objects::{name, show};
use super::*;

/// Delivers that Pods are gone, to the same Nodes.
fn deliver(outboxes: &mut Outboxes, nodes: &[NodeId], pods: &[&str]) {
    let mut deliveries = Deliveries::default();
    for pod in pods {
        let gone = || Change::Pod(PodChange::Gone(Arc::new(name(&format!("x/{pod}")))));
        deliveries.push(nodes.iter().copied(), gone);
    }
    outboxes.deliver(&mut deliveries);
    assert_eq!(deliveries.iter().count(), 0);
}

/// Outboxes with a subscription that has taken its snapshot.
fn subscribed() -> (Outboxes, NodeId, Subscription) {
    let (mut outboxes, node) = (Outboxes::default(), NodeNames::default().intern("n1"));
    let subscription = outboxes.subscribe(node);
    outboxes.take_ready();
    assert_eq!(outboxes.take(&subscription), Ok(Pending::Snapshot(node)));
    (outboxes, node, subscription)
}

fn taken(outboxes: &mut Outboxes, subscription: &Subscription) -> Vec<String> {
    match outboxes.take(subscription).unwrap() {
        Pending::Changes(changes) => changes.iter().map(show).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_subscription_needs_a_snapshot_and_takes_changes_after_it() {
    let (mut outboxes, node) = (Outboxes::default(), NodeNames::default().intern("n1"));
    let subscription = outboxes.subscribe(node);
    assert!(outboxes.audience().is_empty() && outboxes.is_subscribed(node));
    assert_eq!(outboxes.take_ready(), std::slice::from_ref(&subscription));
    // The snapshot will have it.
    deliver(&mut outboxes, &[node], &["before"]);
    assert_eq!(outboxes.take(&subscription), Ok(Pending::Snapshot(node)));
    assert!(outboxes.audience().contains(node));
    assert_eq!(outboxes.take(&subscription), Ok(Pending::Nothing));
    deliver(&mut outboxes, &[node], &["a", "b"]);
    assert_eq!(taken(&mut outboxes, &subscription), ["gone a", "gone b"]);
}

#[test]
fn a_delivery_goes_to_all_of_its_nodes_that_are_subscribed() {
    let (mut outboxes, mut nodes) = (Outboxes::default(), NodeNames::default());
    let ids = ["n1", "n2", "n3"].map(|name| nodes.intern(name));
    let subscriptions = [ids[0], ids[2]].map(|node| outboxes.subscribe(node));
    for subscription in &subscriptions {
        outboxes.take(subscription).unwrap();
    }
    outboxes.take_ready();
    deliver(&mut outboxes, &ids, &["a"]);
    assert_eq!(outboxes.take_ready(), subscriptions);
    for subscription in &subscriptions {
        assert_eq!(taken(&mut outboxes, subscription), ["gone a"]);
    }
}

#[test]
fn a_node_is_ready_once_until_it_takes() {
    let (mut outboxes, node, subscription) = subscribed();
    assert_eq!(outboxes.take_ready(), []);
    deliver(&mut outboxes, &[node], &["a"]);
    assert_eq!(outboxes.take_ready(), std::slice::from_ref(&subscription));
    deliver(&mut outboxes, &[node], &["b"]);
    assert_eq!(outboxes.take_ready(), []);
    taken(&mut outboxes, &subscription);
    deliver(&mut outboxes, &[node], &["c"]);
    assert_eq!(outboxes.take_ready(), [subscription]);
}

#[test]
fn an_outbox_over_its_limit_becomes_a_snapshot() {
    let (mut outboxes, node, subscription) = subscribed();
    deliver(&mut outboxes, &[node], &["a"; OUTBOX_LIMIT]);
    assert!(outboxes.audience().contains(node));
    deliver(&mut outboxes, &[node], &["a", "a"]);
    assert!(!outboxes.audience().contains(node) && outboxes.audience().is_empty());
    assert_eq!(outboxes.take(&subscription), Ok(Pending::Snapshot(node)));
    assert_eq!(outboxes.take(&subscription), Ok(Pending::Nothing));
}

#[test]
fn a_second_subscription_ends_the_first() {
    let (mut outboxes, node, first) = subscribed();
    let second = outboxes.subscribe(node);
    assert!(outboxes.audience().is_empty());
    assert_eq!(outboxes.take(&first), Err(Superseded));
    assert!(!outboxes.unsubscribe(&first) && outboxes.is_subscribed(node));
    assert!(outboxes.unsubscribe(&second) && !outboxes.is_subscribed(node));
    assert_eq!((outboxes.take(&second), outboxes.take_ready()), (Err(Superseded), vec![]));
}
