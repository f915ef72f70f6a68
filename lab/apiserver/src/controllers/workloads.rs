//! Deployments to ReplicaSets, ReplicaSets and DaemonSets to Pods.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};

use crate::core::{Core, Write};
use crate::failure::Failure;
use crate::value::{at, items, set, text};

mod daemons;
mod deployments;
mod replicas;
pub(super) use daemons::daemon_set;
pub(super) use deployments::deployment;
pub(super) use replicas::replica_set;

fn write() -> Write {
    Write::by("kube-controller-manager")
}

fn owner(object: &Value) -> Value {
    json!([{
        "apiVersion": "apps/v1", "kind": at(object, "kind"), "name": at(object, "metadata.name"), "uid": at(object, "metadata.uid"),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// A hash of a Pod template for names and labels.
fn hash(template: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    template.to_string().hash(&mut hasher);
    crate::moment::letters(&hasher.finish().to_le_bytes())
}

fn status(core: &Core, plural: &str, object: &Value, new: &Value) -> Result<(), Failure> {
    let resource = core.builtin("apps", plural)?;
    core.modify(
        &resource,
        text(object, "metadata.namespace"),
        text(object, "metadata.name"),
        &write().status(),
        true,
        |old| {
            let mut changed = old.clone();
            for (key, value) in new.as_object().into_iter().flatten() {
                set(&mut changed, &format!("status.{key}"), value.clone());
            }
            Ok(changed)
        },
    )
    .map(drop)
}

fn ends(object: &Value) -> bool {
    !at(object, "metadata.deletionTimestamp").is_null()
}

fn is_ready(pod: &Value) -> bool {
    items(pod, "status.conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Ready" && text(condition, "status") == "True")
}

fn new_pod(owning: &Value, template: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": format!("{}-", text(owning, "metadata.name")), "labels": at(template, "metadata.labels"),
            "annotations": at(template, "metadata.annotations"), "ownerReferences": owner(owning),
        },
        "spec": at(template, "spec"),
    });
    if at(&pod, "metadata.annotations").is_null() {
        crate::value::remove(&mut pod, "metadata.annotations");
    }
    pod
}

fn number(object: &Value, path: &str) -> usize {
    at(object, path).as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
}

/// Whether all containers of a Pod have terminated.
fn is_over(pod: &Value) -> bool {
    matches!(text(pod, "status.phase"), "Succeeded" | "Failed")
}
