//! Garbage collection: deletes dependents after their last owner.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::WorkItem;
use super::notice::Notice;
use crate::core::{Core, DeleteOptions, Write};
use crate::failure::Failure;
use crate::objects::{Kind, Metadata, Object, OwnerReference, read};
use crate::resources::Resource;
use crate::store::Stored;
use crate::value::{at_mut, set};

/// Dependents, as storage and key, by the uid of their owner.
#[derive(Default)]
pub(super) struct Index {
    dependents: HashMap<String, BTreeSet<(String, String)>>,
    owners: BTreeMap<(String, String), Vec<String>>,
}

impl Index {
    pub(super) fn note(&mut self, notice: &Notice, todo: &mut BTreeSet<WorkItem>) {
        let metadata = &notice.metadata;
        let place = (notice.group_resource.to_owned(), notice.key.to_owned());
        for uid in self.owners.remove(&place).unwrap_or_default() {
            if let Some(dependents) = self.dependents.get_mut(&uid) {
                dependents.remove(&place);
                if dependents.is_empty() {
                    self.dependents.remove(&uid);
                }
            }
        }
        if notice.deleted {
            if self.dependents.contains_key(&metadata.uid) {
                todo.insert(WorkItem::Orphans(metadata.uid.clone()));
            }
            // The owner may wait for this dependent.
            let waiting = metadata.owner_references.iter().filter_map(|owner| place_of(metadata, owner));
            todo.extend(waiting.map(|(group_resource, key)| WorkItem::Owner(group_resource, key)));
            return;
        }
        let owners: Vec<_> = metadata.owner_references.iter().map(|owner| owner.uid.clone()).collect();
        if !owners.is_empty() {
            for uid in &owners {
                self.dependents.entry(uid.clone()).or_default().insert(place.clone());
            }
            self.owners.insert(place.clone(), owners);
            todo.insert(WorkItem::Dependent(place.0.clone(), place.1.clone()));
        }
        if metadata.is_terminating() && !metadata.finalizers.is_empty() {
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
        if object.owner_references.is_empty() || object.is_terminating() {
            return Ok(());
        }
        let exists = |owner: &OwnerReference| match place_of_kind(core, &object, owner) {
            Some((group_resource, key)) => {
                let stored = core.store.get(&group_resource, &key);
                stored.is_some_and(|stored| metadata(&stored).uid == owner.uid)
            }
            // The kind is unknown, so the owner may exist.
            None => true,
        };
        if object.owner_references.iter().any(exists) {
            return Ok(());
        }
        let options = DeleteOptions { uid: Some(object.uid), ..DeleteOptions::default() };
        core.delete(&resource, &object.namespace, &object.name, &options).map(drop)
    }

    /// Finalizes an owner that waits for its dependents to be deleted or orphaned.
    pub(super) fn owner(&self, core: &Core, group_resource: &str, key: &str) -> Result<(), Failure> {
        let Some((resource, object)) = find(core, group_resource, key) else { return Ok(()) };
        let waits = |finalizer: &str| object.finalizers.iter().any(|found| found == finalizer);
        if !object.is_terminating() {
            return Ok(());
        }
        let uid = object.uid.as_str();
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
                let mine = dependent.owner_references.iter().find(|owner| owner.uid == uid);
                let Some(mine) = mine else { continue };
                let Metadata { namespace, name, .. } = dependent;
                if !dependent.is_terminating() {
                    let has_dependents = self.dependents.contains_key(&dependent.uid);
                    let options = DeleteOptions {
                        propagation: has_dependents.then(|| "Foreground".to_owned()),
                        ..DeleteOptions::default()
                    };
                    core.delete(resource, namespace, name, &options)?;
                }
                blocked |= mine.block_owner_deletion && core.get(resource, namespace, name).is_ok();
            }
            if blocked {
                return Ok(());
            }
            "foregroundDeletion"
        } else {
            return Ok(());
        };
        remove_finalizer(core, &resource, &object, finalizer, &Write::by("garbage-collector"))
    }

    /// The known objects of a kind that the object with this uid controls.
    pub(super) fn controlled<T: Kind>(&self, core: &Core, uid: &str) -> Vec<T> {
        let group_resource = crate::resources::group_resource(T::GROUP, T::PLURAL);
        let mine = self.dependents.get(uid).into_iter().flatten().filter(|(of, _)| **of == *group_resource);
        let objects = mine.filter_map(|(_, key)| core.store.get(&group_resource, key));
        let is_controlled = |stored: &Stored| {
            metadata(stored).owner_references.iter().any(|owner| owner.uid == uid && owner.controller)
        };
        objects.filter(is_controlled).filter_map(|stored| stored.read()).collect()
    }
}

fn metadata(stored: &Stored) -> Metadata {
    stored.read::<Object>().unwrap_or_default().metadata
}

/// Removes a finalizer of an object, which is deleted if it was the last one.
pub(super) fn remove_finalizer(
    core: &Core,
    resource: &Resource,
    object: &Metadata,
    finalizer: &str,
    write: &Write,
) -> Result<(), Failure> {
    core.modify(resource, &object.namespace, &object.name, write, false, |old| {
        let mut new = old.clone();
        let Object { metadata } = read(old);
        let left: Vec<_> = metadata.finalizers.into_iter().filter(|found| found != finalizer).collect();
        set(&mut new, "metadata.finalizers", left);
        Ok(new)
    })
    .map(drop)
}

fn release(core: &Core, resource: &Resource, dependent: &Metadata, uid: &str) -> Result<(), Failure> {
    core.modify(resource, &dependent.namespace, &dependent.name, &Write::by("garbage-collector"), false, |old| {
        let mut new = old.clone();
        if let Some(owners) = at_mut(&mut new, "metadata.ownerReferences").and_then(Value::as_array_mut) {
            owners.retain(|owner| read::<OwnerReference>(owner).uid != uid);
        }
        Ok(new)
    })
    .map(drop)
}

fn find(core: &Core, group_resource: &str, key: &str) -> Option<(std::sync::Arc<Resource>, Metadata)> {
    let registry = core.registry();
    let resource = registry.resources.values().find(|resource| *resource.group_resource == *group_resource)?;
    Some((resource.clone(), metadata(&core.store.get(group_resource, key)?)))
}

/// Storage and key of an owner, by its kind.
fn place_of_kind(core: &Core, object: &Metadata, owner: &OwnerReference) -> Option<(String, String)> {
    let registry = core.registry();
    let resource = registry.of_kind(&owner.api_version, &owner.kind)?;
    Some((resource.group_resource.to_string(), resource.key(&object.namespace, &owner.name)))
}

/// Storage and key of an owner of a built-in kind.
fn place_of(object: &Metadata, owner: &OwnerReference) -> Option<(String, String)> {
    let resource = crate::resources::ROWS
        .iter()
        .map(Resource::of)
        .find(|resource| resource.kind == owner.kind && resource.api_version() == owner.api_version)?;
    Some((resource.group_resource.to_string(), resource.key(&object.namespace, &owner.name)))
}
