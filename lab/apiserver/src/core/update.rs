//! Update, and the common part of all changes of an object.

use serde_json::Value;

use super::create::{check, tolerations};
use super::{Core, Write, Written};
use crate::failure::{Failure, FieldError};
use crate::managed::{self, Writer};
use crate::resources::Resource;
use crate::store::{Expect, Stored};
use crate::validate;
use crate::value::{self, at, copy, items, set, text};

/// Number of attempts if other writers interfere.
const TRIES: usize = 64;

impl Core {
    pub(crate) fn update(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        mut object: Value,
        write: &Write,
    ) -> Result<Written, Failure> {
        let warnings = self.accept(resource, namespace, Some(name), &mut object, write)?;
        if !resource.unconditional && text(&object, "metadata.resourceVersion").is_empty() {
            // A missing object is reported first.
            self.get(resource, namespace, name)?;
            let why = "must be specified for an update";
            let errors = [FieldError::invalid("metadata.resourceVersion", &0.into(), why)];
            return Err(Failure::invalid(resource.kept_group(), &resource.plural, name, &errors));
        }
        let written = self.modify(resource, namespace, name, write, true, |_| Ok(object.clone()))?;
        Ok(written.warned(warnings))
    }

    /// Changes an object: `change` makes the new one from the old one, and is repeated after a concurrent write.
    pub(crate) fn modify(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        write: &Write,
        record: bool,
        mut change: impl FnMut(&Value) -> Result<Value, Failure>,
    ) -> Result<Written, Failure> {
        let key = resource.key(namespace, name);
        for _ in 0..TRIES {
            let stored = self.get(resource, namespace, name)?;
            let old = self.seen_as(resource, stored.value());
            let mut new = change(&old)?;
            let asked = text(&new, "metadata.resourceVersion").to_owned();
            if !asked.is_empty() && asked.parse::<u64>().is_err() {
                return Err(Failure::new(500, "", super::not_a_number(&asked)));
            }
            if !asked.is_empty() && asked != stored.revision.to_string() {
                return Err(Failure::modified(resource.id(), name));
            }
            let (uid, was) = (text(&new, "metadata.uid"), text(&old, "metadata.uid"));
            if !uid.is_empty() && uid != was {
                let why = format!(
                    "StorageError: invalid object, Code: 4, Key: /registry/{}/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {was}",
                    resource.plural
                );
                return Err(Failure::conflict(resource.id(), name, &why));
            }
            self.change(resource, name, &old, &mut new, write, record)?;
            let written = |object: Value| Written::new(resource, object, false);
            if new == old {
                return Ok(written(old));
            }
            let gone = !at(&new, "metadata.deletionTimestamp").is_null()
                && items(&new, "metadata.finalizers").is_empty()
                && (resource.kind != "Namespace" || items(&new, "spec.finalizers").is_empty())
                && at(&new, "metadata.deletionGracePeriodSeconds").as_i64().unwrap_or(0) == 0;
            if write.dry_run && gone {
                return Ok(written(new));
            }
            if gone {
                // Watchers get the object as it was.
                let mut last = old.clone();
                if self.remove(resource, &key, &mut last, &stored) {
                    return Ok(written(self.seen_as(resource, new)));
                }
                continue;
            }
            let claim = self.allocate(resource, &mut new, Some(&old), write.dry_run)?;
            self.finish(resource, &mut new, true);
            if write.dry_run {
                return Ok(written(new));
            }
            let expected = Expect::Revision(stored.revision);
            if let Ok(stored) = self.store.put(&resource.group_resource, &key, &mut new, expected) {
                claim.keep();
                self.after(resource, Some(&new));
                return Ok(written(self.seen_as(resource, new)).kept(resource, stored));
            }
        }
        Err(Failure::modified(resource.id(), name))
    }

    /// Removes an object from the store, unless it has changed.
    pub(super) fn remove(&self, resource: &Resource, key: &str, object: &mut Value, stored: &Stored) -> bool {
        self.finish(resource, object, true);
        let removed = self.store.remove(&resource.group_resource, key, object, stored.revision).is_ok();
        if removed {
            self.release(resource, object);
            self.after(resource, None);
            if resource.kind == "CustomResourceDefinition" {
                self.store.drop_resource(&crate::resources::group_resource(
                    text(object, "spec.group"),
                    text(object, "spec.names.plural"),
                ));
            }
        }
        removed
    }

    /// Completes and checks `new`: immutable fields keep their old values.
    fn change(
        &self,
        resource: &Resource,
        name: &str,
        old: &Value,
        new: &mut Value,
        write: &Write,
        record: bool,
    ) -> Result<(), Failure> {
        set(new, "apiVersion", at(old, "apiVersion").clone());
        set(new, "kind", resource.kind.as_str());
        for key in ["uid", "creationTimestamp", "generation", "selfLink", "resourceVersion", "name", "namespace"] {
            copy(old, new, &format!("metadata.{key}"));
        }
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            copy(old, new, &format!("metadata.{key}"));
        }
        match write.subresource.as_str() {
            "status" => only_status(resource, old, new),
            "finalize" => {
                let finalizers = at(new, "spec.finalizers").clone();
                *new = old.clone();
                set(new, "spec.finalizers", finalizers);
            }
            // A binding changes the status too.
            "binding" => {}
            _ if resource.has("status") => copy(old, new, "status"),
            _ => {}
        }
        if resource.kind == "Namespace" && write.subresource != "finalize" {
            copy(old, new, "spec.finalizers");
        }
        if resource.group.is_empty() && resource.kind == "Service" {
            crate::allocate::carry_over(old, new);
        }
        if resource.group.is_empty() && resource.kind == "Pod" {
            copy(old, new, "status.qosClass");
            // Fields that the server has set are kept if an update leaves them out.
            for key in ["serviceAccountName", "serviceAccount", "priority", "preemptionPolicy", "nodeName"] {
                if at(new, "spec").get(key).is_none() {
                    copy(old, new, &format!("spec.{key}"));
                }
            }
        }
        self.complete(resource, new);
        if record {
            let api_version = resource.api_version();
            let writer = Writer { manager: &write.manager, api_version: &api_version, subresource: &write.subresource };
            managed::record(resource.schema(), &resource.shape, old, new, writer);
        }
        match (resource.group.as_str(), resource.kind.as_str()) {
            ("", "Pod") if write.subresource.is_empty() => tolerations(new),
            ("", "Service") => crate::allocate::list_of_one(new),
            _ => {}
        }
        let wanted = |object: &Value| {
            let mut object = object.clone();
            for key in ["metadata", "status", "apiVersion", "kind"] {
                value::remove(&mut object, key);
            }
            if resource.kind == "EndpointSlice" {
                value::copy(object.clone().get("metadata").unwrap_or(&Value::Null), &mut object, "labels");
            }
            object
        };
        if resource.generation && write.subresource != "binding" && wanted(old) != wanted(new) {
            let generation = at(old, "metadata.generation").as_i64().unwrap_or(0);
            set(new, "metadata.generation", generation + 1);
        }
        let mut errors = Vec::new();
        validate::metadata_update(new, old, &mut errors);
        validate::no_new_finalizers(new, old, &mut errors);
        check(resource, new, &write.subresource, &mut errors);
        if write.subresource.is_empty() {
            (resource.rules.validate_update)(new, old, &mut errors);
        }
        if !errors.is_empty() {
            return Err(Failure::invalid(resource.kept_group(), &resource.kind, name, &errors));
        }
        Ok(())
    }
}

/// A change of the status leaves the rest as it was.
fn only_status(resource: &Resource, old: &Value, new: &mut Value) {
    let (status, metadata) = (at(new, "status").clone(), at(new, "metadata").clone());
    *new = old.clone();
    if status.is_null() {
        value::remove(new, "status");
    } else {
        set(new, "status", status);
    }
    if resource.custom.is_none() {
        set(new, "metadata", metadata);
        copy(old, new, "metadata.ownerReferences");
    } else {
        copy(&serde_json::json!({"metadata": metadata}), new, "metadata.managedFields");
    }
}
