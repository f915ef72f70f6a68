//! Controllers: what follows from objects, some time after they are written.
//!
//! One task reads the events of all resources, notes what they may have changed, and brings that about. What is to be is
//! computed from the store as it is, so nothing depends on having seen every event.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use crate::core::Core;
use crate::value::{at, items, text};

pub(crate) mod definitions;
mod garbage;
mod namespaces;
mod slices;
mod workloads;

/// Something that has to be looked at: its kind, its namespace and its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Todo {
    Namespace(String),
    Node(String),
    Service(String, String),
    Deployment(String, String),
    ReplicaSet(String, String),
    DaemonSet(String, String),
    /// An object that waits for those that depend on it: shelf and key.
    Owner(String, String),
    /// An object whose owners may be gone.
    Dependent(String, String),
    /// The objects of an owner that is gone: its uid.
    Orphans(String),
}

/// How often everything is looked at, whatever the events were.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(30);

/// Runs the controllers until the server ends.
pub(crate) async fn run(core: Arc<Core>, mut ending: watch::Receiver<bool>) {
    let mut cursor = 0;
    let mut garbage = garbage::Index::default();
    let mut writes = core.store.writes();
    loop {
        writes.mark_unchanged();
        let mut todo = BTreeSet::new();
        cursor = note(&core, cursor, &mut garbage, &mut todo);
        let idle = todo.is_empty();
        for task in &todo {
            carry_out(&core, task, &garbage);
            // Requests are served in between.
            tokio::task::yield_now().await;
        }
        if !idle {
            continue;
        }
        tokio::select! {
            result = writes.changed() => if result.is_err() { return },
            () = tokio::time::sleep_until(tokio::time::Instant::now() + AGAIN) => cursor = 0,
            () = crate::server::ended(&mut ending) => return,
        }
    }
}

/// Notes what the events since a revision may have changed. Answers up to where it has read.
fn note(core: &Core, cursor: u64, garbage: &mut garbage::Index, todo: &mut BTreeSet<Todo>) -> u64 {
    let now = core.store.revision();
    for shelf in core.store.shelves() {
        // Far behind, or just begun: everything is new.
        match core.store.since(&shelf, cursor, usize::MAX) {
            Ok((events, _)) if cursor > 0 => {
                for event in events {
                    let (after, before) = event.attributes();
                    let gone = event.change == crate::store::Change::Deleted;
                    garbage.note(&shelf, &event.key, after.object(), gone, todo);
                    for object in std::iter::once(after).chain(before) {
                        touched(core, &shelf, object.object(), todo);
                    }
                }
            }
            _ => {
                let page = core.store.list(&shelf, "", "", None);
                for (key, stored) in page.map(|page| page.objects).unwrap_or_default() {
                    let object = stored.value();
                    garbage.note(&shelf, &key, &object, false, todo);
                    touched(core, &shelf, &object, todo);
                }
            }
        }
    }
    now
}

fn touched(core: &Core, shelf: &str, object: &Value, todo: &mut BTreeSet<Todo>) {
    let namespace = text(object, "metadata.namespace").to_owned();
    let name = text(object, "metadata.name").to_owned();
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
            for service in slices::selecting(core, &namespace, at(object, "metadata.labels")) {
                todo.insert(Todo::Service(namespace.clone(), service));
            }
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
            if let Some(service) =
                at(object, "metadata.labels").get("kubernetes.io/service-name").and_then(Value::as_str)
            {
                todo.insert(Todo::Service(namespace.clone(), service.to_owned()));
            }
        }
        _ => {}
    }
    // What is in a namespace that ends keeps it from ending.
    let of = text(object, "metadata.namespace");
    if !of.is_empty()
        && core
            .find("", "namespaces", "", of)
            .is_some_and(|namespace| text(&namespace, "status.phase") == "Terminating")
    {
        todo.insert(Todo::Namespace(of.to_owned()));
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

fn carry_out(core: &Core, todo: &Todo, garbage: &garbage::Index) {
    let result = match todo {
        Todo::Namespace(name) => namespaces::end(core, name),
        Todo::Node(name) => ready_node(core, name),
        Todo::Service(namespace, name) => slices::reconcile(core, namespace, name),
        Todo::Deployment(namespace, name) => workloads::deployment(core, namespace, name),
        Todo::ReplicaSet(namespace, name) => workloads::replica_set(core, namespace, name),
        Todo::DaemonSet(namespace, name) => workloads::daemon_set(core, namespace, name),
        Todo::Owner(shelf, key) => garbage.owner(core, shelf, key),
        Todo::Dependent(shelf, key) => garbage.dependent(core, shelf, key),
        Todo::Orphans(uid) => garbage.collect(core, uid),
    };
    if let Err(failure) = result {
        // Whoever was quicker has made an event, which brings us back here.
        tracing::debug!(?todo, %failure, "a controller will try again");
    }
}

/// A Node that says that it is ready loses the taint that it began with.
fn ready_node(core: &Core, name: &str) -> Result<(), crate::failure::Failure> {
    let Some(node) = core.find("", "nodes", "", name) else { return Ok(()) };
    let tainted = |taint: &Value| text(taint, "key") == crate::core::NOT_READY && text(taint, "effect") == "NoSchedule";
    let ready = items(&node, "status.conditions")
        .iter()
        .any(|found| text(found, "type") == "Ready" && text(found, "status") == "True");
    if !ready || !items(&node, "spec.taints").iter().any(tainted) {
        return Ok(());
    }
    let resource = core.builtin("", "nodes")?;
    let write = crate::core::Write::by("kube-controller-manager");
    let written = core.modify(&resource, "", name, &write, true, |old| {
        let mut new = old.clone();
        let left: Vec<_> = items(old, "spec.taints").iter().filter(|taint| !tainted(taint)).cloned().collect();
        crate::value::set(&mut new, "spec.taints", left);
        Ok(new)
    });
    written.map(drop)
}
