//! Delete, one and many.

use serde_json::{Value, json};

use super::{Core, ListOptions};
use crate::failure::{Failure, Of};
use crate::moment;
use crate::resources::Resource;
use crate::store::Expect;
use crate::value::{self, at, items, set, text};

/// How to delete.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_seconds: Option<i64>,
    /// `Background`, `Foreground` or `Orphan`.
    pub(crate) propagation: Option<String>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
}

impl Core {
    /// Deletes an object, or marks it for deletion. Answers what clients are told.
    pub(crate) fn delete(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Value, Failure> {
        if resource.kind == "Namespace" && ["default", "kube-system", "kube-public"].contains(&name) {
            return Err(Failure::forbidden(resource.id(), name, "this namespace may not be deleted"));
        }
        let key = resource.key(namespace, name);
        loop {
            let stored = self.get(resource, namespace, name)?;
            let mut object = self.seen_as(resource, stored.value());
            preconditions(Of { group: &resource.group, resource: &resource.kind }, name, &object, options)?;
            let marked = !at(&object, "metadata.deletionTimestamp").is_null();
            let grace = self.grace(resource, &object, options);
            let mut finalizers = items(&object, "metadata.finalizers").to_vec();
            let propagation = match options.propagation.as_deref() {
                Some("Foreground") => Some("foregroundDeletion"),
                Some("Orphan") => Some("orphan"),
                _ => None,
            };
            if options.propagation.is_some() {
                finalizers.retain(|finalizer| finalizer != "foregroundDeletion" && finalizer != "orphan");
            }
            finalizers.extend(propagation.map(Value::from));
            let waits = !finalizers.is_empty()
                || grace > 0
                || (resource.kind == "Namespace" && !items(&object, "spec.finalizers").is_empty());
            if !waits {
                if options.dry_run || self.remove(resource, &key, &mut object, &stored) {
                    return Ok(deleted(resource, name, object));
                }
                continue;
            }
            let sooner =
                at(&object, "metadata.deletionGracePeriodSeconds").as_i64().is_some_and(|before| grace < before);
            if marked && !sooner && finalizers == items(&object, "metadata.finalizers") {
                return Ok(object);
            }
            if !finalizers.is_empty() {
                set(&mut object, "metadata.finalizers", finalizers);
            }
            let at_time = moment::since_epoch().as_secs().saturating_add_signed(grace);
            set(&mut object, "metadata.deletionTimestamp", moment::rfc3339(at_time));
            if resource.kind != "Namespace" {
                set(&mut object, "metadata.deletionGracePeriodSeconds", grace);
                if let Some(generation) = at(&object, "metadata.generation").as_i64().filter(|_| !marked) {
                    set(&mut object, "metadata.generation", generation + 1);
                }
            } else {
                set(&mut object, "status.phase", "Terminating");
            }
            if options.dry_run {
                return Ok(object);
            }
            self.finish(resource, &mut object);
            if self.store.put(&resource.shelf, &key, &mut object, Expect::Revision(stored.revision)).is_ok() {
                self.after(resource, Some(&object));
                return Ok(self.seen_as(resource, object));
            }
        }
    }

    /// How long a Pod has to end: none when nothing of it runs.
    fn grace(&self, resource: &Resource, object: &Value, options: &DeleteOptions) -> i64 {
        if resource.kind != "Pod" || !resource.group.is_empty() {
            return 0;
        }
        if text(object, "spec.nodeName").is_empty() || matches!(text(object, "status.phase"), "Succeeded" | "Failed") {
            return 0;
        }
        let own = at(object, "spec.terminationGracePeriodSeconds").as_i64().unwrap_or(30);
        options.grace_seconds.unwrap_or(own).max(0)
    }

    /// Deletes all objects that are selected. Answers with what they were.
    pub(crate) fn delete_collection(
        &self,
        resource: &Resource,
        namespace: &str,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Vec<Value>, Failure> {
        let listed = self.list(resource, namespace, list)?;
        let mut gone = Vec::new();
        for stored in &listed.objects {
            let object = self.seen_as(resource, stored.value());
            let (namespace, name) = (text(&object, "metadata.namespace"), text(&object, "metadata.name"));
            match self.delete(resource, namespace, name, options) {
                Ok(_) => gone.push(object),
                Err(failure) if failure.code == 404 => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(gone)
    }
}

fn preconditions(of: Of<'_>, name: &str, object: &Value, options: &DeleteOptions) -> Result<(), Failure> {
    let uid = text(object, "metadata.uid");
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        );
        return Err(Failure::conflict(of, name, &why));
    }
    let version = text(object, "metadata.resourceVersion");
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        );
        return Err(Failure::conflict(of, name, &why));
    }
    Ok(())
}

fn deleted(resource: &Resource, name: &str, object: Value) -> Value {
    if resource.returns_deleted {
        return object;
    }
    let mut details = json!({"name": name, "kind": resource.plural, "uid": at(&object, "metadata.uid")});
    if !resource.group.is_empty() {
        value::set(&mut details, "group", resource.group.as_str());
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
