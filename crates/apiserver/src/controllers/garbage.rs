//! Garbage collection: what is owned goes with its last owner.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::Todo;
use crate::core::{Core, DeleteOptions, Write};
use crate::failure::Failure;
use crate::resources::Resource;
use crate::value::{at, items, set, text};

/// Who depends on whom: shelves and keys by the uid of the owner.
#[derive(Default)]
pub(super) struct Index {
    dependents: HashMap<String, BTreeSet<(String, String)>>,
    owners: BTreeMap<(String, String), Vec<String>>,
}

impl Index {
    pub(super) fn note(&mut self, shelf: &str, key: &str, object: &Value, gone: bool, todo: &mut BTreeSet<Todo>) {
        let place = (shelf.to_owned(), key.to_owned());
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
                todo.insert(Todo::Orphans(uid.to_owned()));
            }
            // An owner may wait for this one.
            let waiting = items(object, "metadata.ownerReferences").iter().filter_map(|owner| place_of(object, owner));
            todo.extend(waiting.map(|(shelf, key)| Todo::Owner(shelf, key)));
            return;
        }
        if !owners.is_empty() {
            for uid in &owners {
                self.dependents.entry(uid.clone()).or_default().insert(place.clone());
            }
            self.owners.insert(place.clone(), owners);
            todo.insert(Todo::Dependent(place.0.clone(), place.1.clone()));
        }
        if !at(object, "metadata.deletionTimestamp").is_null() && !items(object, "metadata.finalizers").is_empty() {
            todo.insert(Todo::Owner(place.0, place.1));
        }
    }

    /// Deletes what an owner that is gone leaves behind.
    pub(super) fn collect(&self, core: &Core, uid: &str) -> Result<(), Failure> {
        for (shelf, key) in self.dependents.get(uid).into_iter().flatten() {
            self.dependent(core, shelf, key)?;
        }
        Ok(())
    }

    /// Deletes an object if none of its owners is there any more.
    pub(super) fn dependent(&self, core: &Core, shelf: &str, key: &str) -> Result<(), Failure> {
        let Some((resource, object)) = find(core, shelf, key) else { return Ok(()) };
        let owners = items(&object, "metadata.ownerReferences");
        if owners.is_empty() || !at(&object, "metadata.deletionTimestamp").is_null() {
            return Ok(());
        }
        let there = |owner: &Value| match place_of_kind(core, &object, owner) {
            Some((shelf, key)) => core
                .store
                .get(&shelf, &key)
                .is_some_and(|stored| text(&stored.value(), "metadata.uid") == text(owner, "uid")),
            // Nobody knows its kind, so nobody can say that it is gone.
            None => true,
        };
        if owners.iter().any(there) {
            return Ok(());
        }
        let options = DeleteOptions { uid: Some(text(&object, "metadata.uid").to_owned()), ..DeleteOptions::default() };
        let (namespace, name) = (text(&object, "metadata.namespace"), text(&object, "metadata.name"));
        core.delete(&resource, namespace, name, &options).map(drop)
    }

    /// Lets an owner go that waits for its dependents, or for them to be let go.
    pub(super) fn owner(&self, core: &Core, shelf: &str, key: &str) -> Result<(), Failure> {
        let Some((resource, object)) = find(core, shelf, key) else { return Ok(()) };
        let waits = |finalizer: &str| items(&object, "metadata.finalizers").iter().any(|found| found == finalizer);
        if at(&object, "metadata.deletionTimestamp").is_null() {
            return Ok(());
        }
        let uid = text(&object, "metadata.uid");
        let dependents: Vec<_> =
            self.dependents.get(uid).into_iter().flatten().filter_map(|(shelf, key)| find(core, shelf, key)).collect();
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

    /// The objects of a shelf that one controls, as far as is known.
    pub(super) fn controlled(&self, core: &Core, shelf: &str, by: &Value) -> Vec<Value> {
        let uid = text(by, "metadata.uid");
        let mine = self.dependents.get(uid).into_iter().flatten().filter(|(of, _)| of == shelf);
        let objects = mine.filter_map(|(_, key)| core.store.get(shelf, key)).map(|stored| stored.value());
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

fn find(core: &Core, shelf: &str, key: &str) -> Option<(std::sync::Arc<Resource>, Value)> {
    let registry = core.registry();
    let resource = registry.resources.values().find(|resource| *resource.shelf == *shelf)?;
    Some((resource.clone(), core.store.get(shelf, key)?.value()))
}

/// Where an owner is kept, by its kind.
fn place_of_kind(core: &Core, object: &Value, owner: &Value) -> Option<(String, String)> {
    let registry = core.registry();
    let resource = registry.of_kind(text(owner, "apiVersion"), text(owner, "kind"))?;
    Some((resource.shelf.to_string(), resource.key(text(object, "metadata.namespace"), text(owner, "name"))))
}

/// Where an owner of a built-in kind is kept.
fn place_of(object: &Value, owner: &Value) -> Option<(String, String)> {
    let resource = crate::resources::ROWS
        .iter()
        .map(Resource::of)
        .find(|resource| resource.kind == text(owner, "kind") && resource.api_version() == text(owner, "apiVersion"))?;
    Some((resource.shelf.to_string(), resource.key(text(object, "metadata.namespace"), text(owner, "name"))))
}
