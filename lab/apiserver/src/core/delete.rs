//! Delete of one object and of collections.

use serde_json::{Value, json};

use super::{Core, ListOptions};
use crate::custom::CLEANUP;
use crate::failure::{Failure, Of};
use crate::moment;
use crate::resources::Resource;
use crate::store::Expect;
use crate::value::{self, at, items, set, text};

/// Options of a delete.
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
    /// Deletes an object, or marks it for deletion. Returns the object or `Status` for the response.
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
            let old = self.seen_as(resource, stored.value());
            preconditions(Of { group: &resource.group, resource: &resource.kind }, name, &old, options)?;
            let finalizers = finalizers(resource, &old, options.propagation.as_deref());
            let grace = self.grace(resource, &old, options);
            let held =
                !finalizers.is_empty() || (resource.kind == "Namespace" && !items(&old, "spec.finalizers").is_empty());
            let mut object = old.clone();
            // The kubelet gets the update even if the Pod may be removed at once.
            if held || grace.is_some() {
                mark(resource, &mut object, finalizers, grace.unwrap_or(0));
            }
            let goes = !held && grace.unwrap_or(0) == 0;
            if options.dry_run {
                return Ok(if goes { deleted(resource, name, object) } else { object });
            }
            let mut last = stored;
            if object != old {
                self.finish(resource, &mut object, true);
                match self.store.put(&resource.group_resource, &key, &mut object, Expect::Revision(last.revision)) {
                    Ok(stored) => last = stored,
                    // Changed concurrently.
                    Err(_) => continue,
                }
                self.after(resource, Some(&object));
            }
            if !goes {
                return Ok(self.seen_as(resource, object));
            }
            if self.remove(resource, &key, &mut object, &last) {
                return Ok(deleted(resource, name, object));
            }
        }
    }

    /// The grace period of a Pod; 0 if none of its containers runs. Other objects have none.
    fn grace(&self, resource: &Resource, object: &Value, options: &DeleteOptions) -> Option<i64> {
        if resource.kind != "Pod" || !resource.group.is_empty() {
            return None;
        }
        if text(object, "spec.nodeName").is_empty() || matches!(text(object, "status.phase"), "Succeeded" | "Failed") {
            return Some(0);
        }
        let own = at(object, "spec.terminationGracePeriodSeconds").as_i64().unwrap_or(30);
        // A negative value means the shortest grace period.
        let asked = options.grace_seconds.unwrap_or(own);
        Some(if asked < 0 { 1 } else { asked })
    }

    /// Deletes all selected objects, and returns them.
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

/// Definitions wait for their objects, as namespaces do for their contents.
fn is_definition(resource: &Resource) -> bool {
    resource.kind == "CustomResourceDefinition" && resource.group == "apiextensions.k8s.io"
}

/// The finalizers of an object for this kind of deletion.
fn finalizers(resource: &Resource, object: &Value, propagation: Option<&str>) -> Vec<Value> {
    let mut finalizers = items(object, "metadata.finalizers").to_vec();
    let marked = !at(object, "metadata.deletionTimestamp").is_null();
    if is_definition(resource) && !marked {
        finalizers.push(CLEANUP.into());
    }
    if propagation.is_some() {
        finalizers.retain(|finalizer| finalizer != "foregroundDeletion" && finalizer != "orphan");
    }
    finalizers.extend(match propagation {
        Some("Foreground") => Some(Value::from("foregroundDeletion")),
        Some("Orphan") => Some(Value::from("orphan")),
        _ => None,
    });
    finalizers
}

/// Marks an object for deletion; a second request can only shorten the grace period.
fn mark(resource: &Resource, object: &mut Value, finalizers: Vec<Value>, grace: i64) {
    let marked = !at(object, "metadata.deletionTimestamp").is_null();
    let sooner = at(object, "metadata.deletionGracePeriodSeconds").as_i64().is_some_and(|before| grace < before);
    if finalizers.is_empty() {
        value::remove(object, "metadata.finalizers");
    } else {
        set(object, "metadata.finalizers", finalizers);
    }
    if marked && !sooner {
        return;
    }
    let time = moment::since_epoch().as_secs().saturating_add_signed(grace);
    set(object, "metadata.deletionTimestamp", moment::rfc3339(time));
    if resource.kind == "Namespace" && resource.group.is_empty() {
        set(object, "status.phase", "Terminating");
        return;
    }
    if is_definition(resource) {
        return;
    }
    set(object, "metadata.deletionGracePeriodSeconds", grace);
    if let Some(generation) = at(object, "metadata.generation").as_i64().filter(|_| !marked) {
        set(object, "metadata.generation", generation + 1);
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
