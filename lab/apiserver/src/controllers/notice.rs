//! Determines from events which objects to reconcile.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::{Known, WorkItem, slices};
use crate::core::{Core, ListOptions};
use crate::objects::{DaemonSet, Metadata, Namespace, Object};
use crate::store::{Change, Compacted, Stored};

/// An object that was written or deleted. Only its metadata is read for every kind: there are many Pods, and the controllers
/// need little of a Pod.
pub(super) struct Notice<'a> {
    pub(super) group_resource: &'a str,
    pub(super) key: &'a str,
    pub(super) metadata: Metadata,
    pub(super) deleted: bool,
    stored: &'a Stored,
}

impl<'a> Notice<'a> {
    pub(super) fn new(group_resource: &'a str, key: &'a str, stored: &'a Stored, deleted: bool) -> Self {
        let metadata = stored.read::<Object>().unwrap_or_default().metadata;
        Self { group_resource, key, metadata, deleted, stored }
    }

    /// The object as a kind.
    pub(super) fn read<T: DeserializeOwned + Default>(&self) -> T {
        self.stored.read().unwrap_or_default()
    }
}

/// Notes the objects that events since a revision may affect. Returns the revision up to which events were read.
pub(super) fn events(
    core: &Core,
    cursor: u64,
    known: &mut Known,
    todo: &mut BTreeSet<WorkItem>,
) -> Result<u64, Compacted> {
    let (events, now) = core.store.all_since(cursor)?;
    for (group_resource, event) in events {
        let after = Notice::new(&group_resource, &event.key, &event.object, event.change == Change::Deleted);
        note(core, &after, known, todo);
        if *group_resource == *"/nodes" && event.change == Change::Added {
            note_new_node(core, &event.key, known, todo);
        }
        // Services that selected the Pod by its previous labels are affected too.
        if let Some(before) = event.before.as_ref().filter(|_| *group_resource == *"/pods") {
            let before = Notice::new(&group_resource, &event.key, before, false);
            if before.metadata.labels != after.metadata.labels {
                note_affected(core, &before, known, todo);
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
            note(core, &Notice::new(&group_resource, &key, &stored, false), known, todo);
        }
    }
    now
}

fn note(core: &Core, notice: &Notice, known: &mut Known, todo: &mut BTreeSet<WorkItem>) {
    known.garbage.note(notice, todo);
    known.ranges.note(notice);
    known.slices.note(notice);
    if notice.group_resource == "/namespaces" {
        if !notice.deleted && notice.read::<Namespace>().is_terminating() {
            known.ending.insert(notice.key.to_owned());
        } else {
            known.ending.remove(notice.key);
        }
    }
    note_affected(core, notice, known, todo);
}

/// Notes the objects that a change of this one affects.
fn note_affected(core: &Core, notice: &Notice, known: &Known, todo: &mut BTreeSet<WorkItem>) {
    let Metadata { namespace, name, labels, .. } = &notice.metadata;
    let (namespace, name) = (namespace.clone(), name.clone());
    // An object in a namespace that is being terminated delays its deletion.
    if known.ending.contains(&namespace) {
        todo.insert(WorkItem::Namespace(namespace.clone()));
    }
    match notice.group_resource {
        "/namespaces" => drop(todo.insert(WorkItem::Namespace(name))),
        "/services" => drop(todo.insert(WorkItem::Service(namespace, name))),
        "apps/deployments" => drop(todo.insert(WorkItem::Deployment(namespace, name))),
        "apps/daemonsets" => drop(todo.insert(WorkItem::DaemonSet(namespace, name))),
        "apps/replicasets" => {
            note_controller(&notice.metadata, todo);
            todo.insert(WorkItem::ReplicaSet(namespace, name));
        }
        "/pods" => {
            note_controller(&notice.metadata, todo);
            let services = known.slices.selecting(&namespace, labels);
            todo.extend(services.map(|service| WorkItem::Service(namespace.clone(), service.to_owned())));
        }
        "/nodes" => {
            todo.insert(WorkItem::Node(name));
            let sets = core.read_all::<DaemonSet>().into_iter();
            todo.extend(sets.map(|set| WorkItem::DaemonSet(set.metadata.namespace, set.metadata.name)));
        }
        "discovery.k8s.io/endpointslices" => {
            let service = labels.get(slices::SERVICE).cloned();
            todo.extend(service.map(|service| WorkItem::Service(namespace, service)));
        }
        _ => {}
    }
}

/// Pods may have waited for this Node: Pods without a Node are not endpoints of a Service.
fn note_new_node(core: &Core, node: &str, known: &Known, todo: &mut BTreeSet<WorkItem>) {
    let (Ok(pods), Ok(list)) = (core.builtin("", "pods"), ListOptions::of_node(node)) else { return };
    let there = core.list(&pods, "", &list).map(|listed| listed.objects).unwrap_or_default();
    for pod in there {
        note_affected(core, &Notice::new("/pods", "", &pod, false), known, todo);
    }
}

/// Notes the controller of an object.
fn note_controller(metadata: &Metadata, todo: &mut BTreeSet<WorkItem>) {
    for owner in metadata.owner_references.iter().filter(|owner| owner.controller) {
        let (namespace, name) = (metadata.namespace.clone(), owner.name.clone());
        match owner.kind.as_str() {
            "ReplicaSet" => drop(todo.insert(WorkItem::ReplicaSet(namespace, name))),
            "DaemonSet" => drop(todo.insert(WorkItem::DaemonSet(namespace, name))),
            "Deployment" => drop(todo.insert(WorkItem::Deployment(namespace, name))),
            _ => {}
        }
    }
}
