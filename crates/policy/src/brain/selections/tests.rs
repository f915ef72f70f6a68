use selector::Selector;

use super::super::nodes::NodeNames;
use super::super::tests::objects::{name, pod, selecting};
use super::*;
use crate::reading::{self, Selected};

const X: &str = "x";

fn endpoint(text: &str, node: &str) -> Endpoint {
    Endpoint::read(pod(text, node, "10.0.0.1")).0.unwrap()
}

/// Pods of an app: in namespace `x`, or in namespaces with the label `app=<namespaces>`.
fn selected(app: &str, namespaces: Option<&str>) -> Selected {
    let of = |app: &str| Selector::new(&selecting(app)).unwrap();
    let scope = namespaces.map_or(reading::Scope::Own, |app| reading::Scope::Namespaces(of(app)));
    Selected { scope, pods: of(app) }
}

/// What leaves and joins each selection, by Pod name.
fn shifts(selections: &Selections, delta: &MembershipDelta) -> Vec<(SelectionId, String)> {
    let text = |shift: &Shift| {
        let left = shift.left.iter().map(|leaver| format!("-{}", leaver.member.pod.name));
        let joined = shift.joined.iter().map(|id| format!("+{}", selections.pod(*id).member.pod.name));
        (shift.selection, left.chain(joined).collect::<Vec<_>>().join(" "))
    };
    delta.iter().map(text).collect()
}

#[test]
fn a_pod_joins_and_leaves_the_selections_of_its_labels() {
    let mut selections = Selections::default();
    let (web, db) = (selections.acquire(X, &selected("web", None)), selections.acquire(X, &selected("db", None)));
    let delta = selections.set_pod(endpoint("x/web-1", ""), None);
    assert_eq!(shifts(&selections, &delta.membership), [(web, "+web-1".to_owned())]);
    let mut relabelled = endpoint("x/web-1", "");
    relabelled.labels.insert("app".to_owned(), "db".to_owned());
    let delta = selections.set_pod(relabelled, None);
    assert_eq!(shifts(&selections, &delta.membership), [(web, "-web-1".to_owned()), (db, "+web-1".to_owned())]);
    let delta = selections.remove_pod(&name("x/web-1"));
    assert_eq!(shifts(&selections, &delta.membership), [(db, "-web-1".to_owned())]);
    // Another namespace is another selection.
    let delta = selections.set_pod(endpoint("y/web-1", ""), None);
    assert!(delta.membership.is_empty());
}

#[test]
fn pods_with_equal_labels_share_a_cell() {
    let mut selections = Selections::default();
    for pod in ["x/web-1", "x/web-2", "x/db-1", "y/web-1"] {
        selections.set_pod(endpoint(pod, ""), None);
    }
    assert_eq!(selections.cells.len(), 3);
    let web = selections.acquire(X, &selected("web", None));
    assert_eq!((selections.selections[web].cells.len(), selections.pods_of(web).count()), (1, 2));
}

#[test]
fn labels_of_a_namespace_shift_all_of_its_selected_pods() {
    let mut selections = Selections::default();
    let web = selections.acquire(X, &selected("web", Some("shop")));
    for pod in ["y/web-1", "y/web-2", "y/db-1"] {
        assert!(selections.set_pod(endpoint(pod, ""), None).membership.is_empty());
    }
    let labels = selecting("shop").match_labels;
    let (_, delta) = selections.set_namespace("y", Some(&labels));
    assert_eq!(shifts(&selections, &delta), [(web, "+web-1 +web-2".to_owned())]);
    let (has_changed, delta) = selections.set_namespace("y", Some(&labels));
    assert!(!has_changed && delta.is_empty());
    let (_, delta) = selections.set_namespace("y", None);
    assert_eq!(shifts(&selections, &delta), [(web, "-web-1 -web-2".to_owned())]);
}

#[test]
fn a_pod_departs_from_its_old_node_and_arrives_on_its_new_one() {
    let (mut selections, mut nodes) = (Selections::default(), NodeNames::default());
    let (n1, n2) = (nodes.intern("n1"), nodes.intern("n2"));
    let added = selections.set_pod(endpoint("x/web-1", "n1"), Some(n1));
    let id = added.arrived.unwrap();
    assert_eq!((added.from, added.departed.is_some()), (None, false));
    // Nothing changes, and then only an address does.
    let same = selections.set_pod(endpoint("x/web-1", "n1"), Some(n1));
    assert_eq!((same.from, same.arrived), (None, None));
    let mut changed = endpoint("x/web-1", "n1");
    changed.member.addresses.clear();
    let delta = selections.set_pod(changed, Some(n1));
    assert_eq!((delta.from, delta.departed.is_some(), delta.arrived), (Some(n1), false, None));
    let moved = selections.set_pod(endpoint("x/web-1", "n2"), Some(n2));
    assert_eq!((moved.from, moved.departed.is_some(), moved.arrived), (Some(n1), true, Some(id)));
    assert!(!selections.has_pods_on(n1) && selections.pods_on(n2).eq([id]));
    let removed = selections.remove_pod(&name("x/web-1"));
    assert_eq!((removed.from, removed.departed.is_some(), removed.arrived), (Some(n2), true, None));
    assert!(selections.is_empty());
}

#[test]
fn a_selection_is_kept_for_its_users_and_no_longer() {
    let mut selections = Selections::default();
    let first = selections.acquire(X, &selected("web", Some("shop")));
    assert_eq!(selections.acquire(X, &selected("web", Some("shop"))), first);
    selections.release(first);
    assert_eq!(selections.selections.len(), 1);
    selections.release(first);
    assert!(selections.is_empty());
}
