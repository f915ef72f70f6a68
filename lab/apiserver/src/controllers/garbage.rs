//! Garbage collection: deletes dependents after their last owner.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::WorkItem;
use crate::core::{Core, DeleteOptions, Write};
use crate::failure::Failure;
use crate::resources::Resource;
use crate::value::{at, items, set, text};

/// Dependents, as storage and key, by the uid of their owner.
#[derive(Default)]
pub(super) struct Index {
    dependents: HashMap<String, BTreeSet<(String, String)>>,
    owners: BTreeMap<(String, String), Vec<String>>,
}

impl Index {
    pub(super) fn note(
        &mut self,
        group_resource: &str,
        key: &str,
        object: &Value,
        gone: bool,
        todo: &mut BTreeSet<WorkItem>,
    ) {
        let place = (group_resource.to_owned(), key.to_owned());
        for uid in self.owners.remove(&place).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(&uid) {
                dependents.remove(&place);
                if dependents.is_empty() {
                    self.dependents.remove(&uid);
                }
            }
        }
        let owners: Vec<_> =
            items(object, "metadata.ownerReferences").iter().map(|owner| text(owner, "uid").to_owned()).collect();
        if gone {
            let uid = text(object, "metadata.uid");
            if self.dependents.contains_key(uid) {
                todo.insert(WorkItem::Orphans(uid.to_owned()));
            }
            // The owner may wait for this dependent.
            let waiting = items(object, "metadata.ownerReferences").iter().filter_map(|owner| place_of(object, owner));
            todo.extend(waiting.map(|(group_resource, key)| WorkItem::Owner(group_resource, key)));
            return;
        }
        if !owners.is_empty() {
            for uid in &owners {
                self.dependents.entry(uid.clone()).or_default().insert(place.clone());
            }
            self.owners.insert(place.clone(), owners);
            todo.insert(WorkItem::Dependent(place.0.clone(), place.1.clone()));
        }
        if !at(object, "metadata.deletionTimestamp").is_null() && !items(object, "metadata.finalizers").is_empty() {
            todo.insert(WorkItem::Owner(place.0, place.1));
        }
    }

    /// Deletes the dependents of a deleted owner.
    pub(super) fn collect(&self, core: &Core, uid: &str) -> Result<(), Failure> {
        for (group_resource, key) in self.dependents.get(uid).into_iter().flatten() {
            self.dependent(core, group_resource, key)?;
        }
        Ok(())
    }

    /// Deletes an object if none of its owners exists.
    pub(super) fn dependent(&self, core: &Core, group_resource: &str, key: &str) -> Result<(), Failure> {
        let Some((resource, object)) = find(core, group_resource, key) else { return Ok(()) };
        let owners = items(&object, "metadata.ownerReferences");
        if owners.is_empty() || !at(&object, "metadata.deletionTimestamp").is_null() {
            return Ok(());
        }
        let there = |owner: &Value| match place_of_kind(core, &object, owner) {
            Some((group_resource, key)) => core
                .store
                .get(&group_resource, &key)
                .is_some_and(|stored| text(&stored.value(), "metadata.uid") == text(owner, "uid")),
            // The kind is unknown, so the owner may exist.
            None => true,
        };
        if owners.iter().any(there) {
            return Ok(());
        }
        let options = DeleteOptions { uid: Some(text(&object, "metadata.uid").to_owned()), ..DeleteOptions::default() };
        let (namespace, name) = (text(&object, "metadata.namespace"), text(&object, "metadata.name"));
        core.delete(&resource, namespace, name, &options).map(drop)
    }

    /// Finalizes an owner that waits for its dependents to be deleted or orphaned.
    pub(super) fn owner(&self, core: &Core, group_resource: &str, key: &str) -> Result<(), Failure> {
        let Some((resource, object)) = find(core, group_resource, key) else { return Ok(()) };
        let waits = |finalizer: &str| items(&object, "metadata.finalizers").iter().any(|found| found == finalizer);
        if at(&object, "metadata.deletionTimestamp").is_null() {
            return Ok(());
        }
        let uid = text(&object, "metadata.uid");
        let dependents: Vec<_> = self
            .dependents
            .get(uid)
            .into_iter()
            .flatten()
            .filter_map(|(group_resource, key)| find(core, group_resource, key))
            .collect();
        let finalizer = if waits("orphan") {
            for (resource, dependent) in &dependents {
                release(core, resource, dependent, uid)?;
            }
            "orphan"
        } else if waits("foregroundDeletion") {
            let mut blocked = false;
            for (resource, dependent) in &dependents {
                let mine = items(dependent, "metadata.ownerReferences").iter().find(|owner| text(owner, "uid") == uid);
                let Some(mine) = mine else { continue };
                if at(dependent, "metadata.deletionTimestamp").is_null() {
                    let options = DeleteOptions {
                        propagation: Some("Foreground".to_owned()).filter(|_| self.has(dependent)),
                        ..DeleteOptions::default()
                    };
                    core.delete(
                        resource,
                        text(dependent, "metadata.namespace"),
                        text(dependent, "metadata.name"),
                        &options,
                    )?;
                }
                blocked |= at(mine, "blockOwnerDeletion") == true
                    && core
                        .get(resource, text(dependent, "metadata.namespace"), text(dependent, "metadata.name"))
                        .is_ok();
            }
            if blocked {
                return Ok(());
            }
            "foregroundDeletion"
        } else {
            return Ok(());
        };
        let (namespace, name) = (text(&object, "metadata.namespace"), text(&object, "metadata.name"));
        core.modify(&resource, namespace, name, &Write::by("garbage-collector"), false, |old| {
            let mut new = old.clone();
            let left: Vec<_> =
                items(old, "metadata.finalizers").iter().filter(|found| *found != finalizer).cloned().collect();
            set(&mut new, "metadata.finalizers", left);
            Ok(new)
        })
        .map(drop)
    }

    /// The known objects of a resource with this controller.
    pub(super) fn controlled(&self, core: &Core, group_resource: &str, by: &Value) -> Vec<Value> {
        let uid = text(by, "metadata.uid");
        let mine = self.dependents.get(uid).into_iter().flatten().filter(|(of, _)| of == group_resource);
        let objects = mine.filter_map(|(_, key)| core.store.get(group_resource, key)).map(|stored| stored.value());
        let controls = |owner: &Value| text(owner, "uid") == uid && at(owner, "controller") == true;
        objects.filter(|object| items(object, "metadata.ownerReferences").iter().any(controls)).collect()
    }

    fn has(&self, object: &Value) -> bool {
        self.dependents.contains_key(text(object, "metadata.uid"))
    }
}

fn release(core: &Core, resource: &Resource, dependent: &Value, uid: &str) -> Result<(), Failure> {
    let (namespace, name) = (text(dependent, "metadata.namespace"), text(dependent, "metadata.name"));
    core.modify(resource, namespace, name, &Write::by("garbage-collector"), false, |old| {
        let mut new = old.clone();
        let left: Vec<_> =
            items(old, "metadata.ownerReferences").iter().filter(|owner| text(owner, "uid") != uid).cloned().collect();
        set(&mut new, "metadata.ownerReferences", left);
        Ok(new)
    })
    .map(drop)
}

fn find(core: &Core, group_resource: &str, key: &str) -> Option<(std::sync::Arc<Resource>, Value)> {
    let registry = core.registry();
    let resource = registry.resources.values().find(|resource| *resource.group_resource == *group_resource)?;
    Some((resource.clone(), core.store.get(group_resource, key)?.value()))
}

/// Storage and key of an owner, by its kind.
fn place_of_kind(core: &Core, object: &Value, owner: &Value) -> Option<(String, String)> {
    let registry = core.registry();
    let resource = registry.of_kind(text(owner, "apiVersion"), text(owner, "kind"))?;
    Some((resource.group_resource.to_string(), resource.key(text(object, "metadata.namespace"), text(owner, "name"))))
}

/// Storage and key of an owner of a built-in kind.
fn place_of(object: &Value, owner: &Value) -> Option<(String, String)> {
    let resource = crate::resources::ROWS
        .iter()
        .map(Resource::of)
        .find(|resource| resource.kind == text(owner, "kind") && resource.api_version() == text(owner, "apiVersion"))?;
    Some((resource.group_resource.to_string(), resource.key(text(object, "metadata.namespace"), text(owner, "name"))))
}
