//! Determines from events which objects to reconcile.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Known, WorkItem};
use crate::core::{Core, ListOptions};
use crate::store::{Change, Compacted};
use crate::value::{at, items, text};

/// Notes the objects that events since a revision may affect. Returns the revision up to which events were read.
pub(super) fn events(
    core: &Core,
    cursor: u64,
    known: &mut Known,
    todo: &mut BTreeSet<WorkItem>,
) -> Result<u64, Compacted> {
    let (events, now) = core.store.all_since(cursor)?;
    for (group_resource, event) in events {
        let after = summary(&group_resource, &event.object.bytes);
        note(core, &group_resource, &event.key, &after, event.change == Change::Deleted, known, todo);
        if *group_resource == *"/nodes" && event.change == Change::Added {
            note_new_node(core, &event.key, known, todo);
        }
        // Services that selected the Pod by its previous labels are affected too.
        if let Some(before) = event.before.as_ref().filter(|_| *group_resource == *"/pods") {
            let before = summary(&group_resource, &before.bytes);
            if at(&before, "metadata.labels") != at(&after, "metadata.labels") {
                note_affected(core, &group_resource, &before, known, todo);
            }
        }
    }
    Ok(now)
}

/// Notes all objects, as if they had just been created.
pub(super) fn everything(core: &Core, known: &mut Known, todo: &mut BTreeSet<WorkItem>) -> u64 {
    let now = core.store.revision();
    let mut group_resources = core.store.group_resources();
    // Pods last: they are matched with the known Services.
    group_resources.sort_by_key(|group_resource| **group_resource == *"/pods");
    for group_resource in group_resources {
        let page = core.store.list(&group_resource, "", "", None);
        for (key, stored) in page.map(|page| page.objects).unwrap_or_default() {
            note(core, &group_resource, &key, &summary(&group_resource, &stored.bytes), false, known, todo);
        }
    }
    now
}

/// The metadata that owners and selectors depend on.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: Value,
    namespace: Value,
    uid: Value,
    labels: Value,
    owner_references: Value,
    deletion_timestamp: Value,
    finalizers: Value,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Summary {
    metadata: Metadata,
}

/// An object, reduced to the fields that matter: there are many Pods, and the controllers need little of a Pod.
fn summary(group_resource: &str, bytes: &[u8]) -> Value {
    if matches!(group_resource, "/namespaces" | "/nodes" | "/services") {
        return serde_json::from_slice(bytes).unwrap_or_default();
    }
    let Summary { metadata } = serde_json::from_slice(bytes).unwrap_or_default();
    json!({"metadata": {
        "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid, "labels": metadata.labels,
        "ownerReferences": metadata.owner_references, "deletionTimestamp": metadata.deletion_timestamp,
        "finalizers": metadata.finalizers,
    }})
}

fn note(
    core: &Core,
    group_resource: &str,
    key: &str,
    object: &Value,
    gone: bool,
    known: &mut Known,
    todo: &mut BTreeSet<WorkItem>,
) {
    known.garbage.note(group_resource, key, object, gone, todo);
    known.ranges.note(group_resource, key, object, gone);
    known.slices.note(group_resource, key, object, gone);
    if group_resource == "/namespaces" {
        if !gone && text(object, "status.phase") == "Terminating" {
            known.ending.insert(key.to_owned());
        } else {
            known.ending.remove(key);
        }
    }
    note_affected(core, group_resource, object, known, todo);
}

/// Notes the objects that a change of this one affects.
fn note_affected(core: &Core, group_resource: &str, object: &Value, known: &Known, todo: &mut BTreeSet<WorkItem>) {
    let namespace = text(object, "metadata.namespace").to_owned();
    let name = text(object, "metadata.name").to_owned();
    // An object in a namespace that is being terminated delays its deletion.
    if known.ending.contains(&namespace) {
        todo.insert(WorkItem::Namespace(namespace.clone()));
    }
    match group_resource {
        "/namespaces" => drop(todo.insert(WorkItem::Namespace(name))),
        "/services" => drop(todo.insert(WorkItem::Service(namespace, name))),
        "apps/deployments" => drop(todo.insert(WorkItem::Deployment(namespace, name))),
        "apps/daemonsets" => drop(todo.insert(WorkItem::DaemonSet(namespace, name))),
        "apps/replicasets" => {
            controlled(object, &namespace, todo);
            todo.insert(WorkItem::ReplicaSet(namespace, name));
        }
        "/pods" => {
            controlled(object, &namespace, todo);
            let services = known.slices.selecting(&namespace, at(object, "metadata.labels"));
            todo.extend(services.map(|service| WorkItem::Service(namespace.clone(), service.to_owned())));
        }
        "/nodes" => {
            todo.insert(WorkItem::Node(name));
            for set in core.all("apps", "daemonsets", "") {
                todo.insert(WorkItem::DaemonSet(
                    text(&set, "metadata.namespace").to_owned(),
                    text(&set, "metadata.name").to_owned(),
                ));
            }
        }
        "discovery.k8s.io/endpointslices" => {
            let service = at(object, "metadata.labels").get("kubernetes.io/service-name").and_then(Value::as_str);
            todo.extend(service.map(|service| WorkItem::Service(namespace, service.to_owned())));
        }
        _ => {}
    }
}

/// Pods may have waited for this Node: Pods without a Node are not endpoints of a Service.
fn note_new_node(core: &Core, node: &str, known: &Known, todo: &mut BTreeSet<WorkItem>) {
    let (Ok(pods), Ok(list)) = (core.builtin("", "pods"), ListOptions::of_node(node)) else { return };
    let there = core.list(&pods, "", &list).map(|listed| listed.objects).unwrap_or_default();
    for pod in there {
        note_affected(core, "/pods", &summary("/pods", &pod.bytes), known, todo);
    }
}

fn controlled(object: &Value, namespace: &str, todo: &mut BTreeSet<WorkItem>) {
    for owner in items(object, "metadata.ownerReferences").iter().filter(|owner| at(owner, "controller") == true) {
        let name = text(owner, "name").to_owned();
        match text(owner, "kind") {
            "ReplicaSet" => drop(todo.insert(WorkItem::ReplicaSet(namespace.to_owned(), name))),
            "DaemonSet" => drop(todo.insert(WorkItem::DaemonSet(namespace.to_owned(), name))),
            "Deployment" => drop(todo.insert(WorkItem::Deployment(namespace.to_owned(), name))),
            _ => {}
        }
    }
}
