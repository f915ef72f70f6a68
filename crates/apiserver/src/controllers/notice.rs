//! What has to be looked at, from what has happened.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Known, Todo};
use crate::core::{Core, ListOptions};
use crate::store::{Change, Compacted};
use crate::value::{at, items, text};

/// Notes what the events since a revision may have changed. Answers up to where it has read.
pub(super) fn events(core: &Core, cursor: u64, known: &mut Known, todo: &mut BTreeSet<Todo>) -> Result<u64, Compacted> {
    let (events, now) = core.store.all_since(cursor)?;
    for (shelf, event) in events {
        let after = glance(&shelf, &event.object.bytes);
        note(core, &shelf, &event.key, &after, event.change == Change::Deleted, known, todo);
        if *shelf == *"/nodes" && event.change == Change::Added {
            settled(core, &event.key, known, todo);
        }
        // Whoever selected a Pod by labels that it no longer has is concerned too.
        if let Some(before) = event.before.as_ref().filter(|_| *shelf == *"/pods") {
            let before = glance(&shelf, &before.bytes);
            if at(&before, "metadata.labels") != at(&after, "metadata.labels") {
                touched(core, &shelf, &before, known, todo);
            }
        }
    }
    Ok(now)
}

/// Notes all that there is, as if it had just been made.
pub(super) fn everything(core: &Core, known: &mut Known, todo: &mut BTreeSet<Todo>) -> u64 {
    let now = core.store.revision();
    let mut shelves = core.store.shelves();
    // Pods are looked at by what is known of Services.
    shelves.sort_by_key(|shelf| **shelf == *"/pods");
    for shelf in shelves {
        let page = core.store.list(&shelf, "", "", None);
        for (key, stored) in page.map(|page| page.objects).unwrap_or_default() {
            note(core, &shelf, &key, &glance(&shelf, &stored.bytes), false, known, todo);
        }
    }
    now
}

/// What of an object concerns its owners and those who select it.
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
struct Glance {
    metadata: Metadata,
}

/// An object, or as much of it as matters: there are many Pods, and most of a Pod matters to nobody here.
fn glance(shelf: &str, bytes: &[u8]) -> Value {
    if matches!(shelf, "/namespaces" | "/nodes" | "/services") {
        return serde_json::from_slice(bytes).unwrap_or_default();
    }
    let Glance { metadata } = serde_json::from_slice(bytes).unwrap_or_default();
    json!({"metadata": {
        "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid, "labels": metadata.labels,
        "ownerReferences": metadata.owner_references, "deletionTimestamp": metadata.deletion_timestamp,
        "finalizers": metadata.finalizers,
    }})
}

fn note(core: &Core, shelf: &str, key: &str, object: &Value, gone: bool, known: &mut Known, todo: &mut BTreeSet<Todo>) {
    known.garbage.note(shelf, key, object, gone, todo);
    known.ranges.note(shelf, key, object, gone);
    known.slices.note(shelf, key, object, gone);
    if shelf == "/namespaces" {
        if !gone && text(object, "status.phase") == "Terminating" {
            known.ending.insert(key.to_owned());
        } else {
            known.ending.remove(key);
        }
    }
    touched(core, shelf, object, known, todo);
}

/// Notes who is concerned by an object.
fn touched(core: &Core, shelf: &str, object: &Value, known: &Known, todo: &mut BTreeSet<Todo>) {
    let namespace = text(object, "metadata.namespace").to_owned();
    let name = text(object, "metadata.name").to_owned();
    // What is in a namespace that ends keeps it from ending.
    if known.ending.contains(&namespace) {
        todo.insert(Todo::Namespace(namespace.clone()));
    }
    match shelf {
        "/namespaces" => drop(todo.insert(Todo::Namespace(name))),
        "/services" => drop(todo.insert(Todo::Service(namespace, name))),
        "apps/deployments" => drop(todo.insert(Todo::Deployment(namespace, name))),
        "apps/daemonsets" => drop(todo.insert(Todo::DaemonSet(namespace, name))),
        "apps/replicasets" => {
            controlled(object, &namespace, todo);
            todo.insert(Todo::ReplicaSet(namespace, name));
        }
        "/pods" => {
            controlled(object, &namespace, todo);
            let services = known.slices.selecting(&namespace, at(object, "metadata.labels"));
            todo.extend(services.map(|service| Todo::Service(namespace.clone(), service.to_owned())));
        }
        "/nodes" => {
            todo.insert(Todo::Node(name));
            for set in core.all("apps", "daemonsets", "") {
                todo.insert(Todo::DaemonSet(
                    text(&set, "metadata.namespace").to_owned(),
                    text(&set, "metadata.name").to_owned(),
                ));
            }
        }
        "discovery.k8s.io/endpointslices" => {
            let service = at(object, "metadata.labels").get("kubernetes.io/service-name").and_then(Value::as_str);
            todo.extend(service.map(|service| Todo::Service(namespace, service.to_owned())));
        }
        _ => {}
    }
}

/// A new Node may be what Pods have waited for: a Service sends nothing to Pods that are nowhere.
fn settled(core: &Core, node: &str, known: &Known, todo: &mut BTreeSet<Todo>) {
    let (Ok(pods), Ok(list)) = (core.builtin("", "pods"), ListOptions::of_node(node)) else { return };
    let there = core.list(&pods, "", &list).map(|listed| listed.objects).unwrap_or_default();
    for pod in there {
        touched(core, "/pods", &glance("/pods", &pod.bytes), known, todo);
    }
}

fn controlled(object: &Value, namespace: &str, todo: &mut BTreeSet<Todo>) {
    for owner in items(object, "metadata.ownerReferences").iter().filter(|owner| at(owner, "controller") == true) {
        let name = text(owner, "name").to_owned();
        match text(owner, "kind") {
            "ReplicaSet" => drop(todo.insert(Todo::ReplicaSet(namespace.to_owned(), name))),
            "DaemonSet" => drop(todo.insert(Todo::DaemonSet(namespace.to_owned(), name))),
            "Deployment" => drop(todo.insert(Todo::Deployment(namespace.to_owned(), name))),
            _ => {}
        }
    }
}
