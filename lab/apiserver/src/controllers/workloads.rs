//! Deployments to ReplicaSets, ReplicaSets and DaemonSets to Pods.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};

use crate::core::{Core, Write};
use crate::failure::Failure;
use crate::objects::{Metadata, OwnerReference, PodTemplate};
use crate::value::set;

mod daemons;
mod deployments;
mod replicas;
pub(super) use daemons::daemon_set;
pub(super) use deployments::deployment;
pub(super) use replicas::replica_set;

fn write() -> Write {
    Write::by("kube-controller-manager")
}

/// A hash of a Pod template for names and labels.
fn hash(template: &PodTemplate) -> String {
    let mut hasher = DefaultHasher::new();
    json!(template).to_string().hash(&mut hasher);
    crate::moment::letters(&hasher.finish().to_le_bytes())
}

/// Writes fields of the status of a workload.
fn write_status(core: &Core, plural: &str, object: &Metadata, fields: &Value) -> Result<(), Failure> {
    let resource = core.builtin("apps", plural)?;
    core.modify(&resource, &object.namespace, &object.name, &write().status(), true, |old| {
        let mut changed = old.clone();
        for (key, value) in fields.as_object().into_iter().flatten() {
            set(&mut changed, &format!("status.{key}"), value.clone());
        }
        Ok(changed)
    })
    .map(drop)
}

fn new_pod(owner: &OwnerReference, template: &PodTemplate) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": format!("{}-", owner.name), "labels": template.metadata.labels, "ownerReferences": [owner],
        },
        "spec": template.spec,
    });
    if !template.metadata.annotations.is_empty() {
        set(&mut pod, "metadata.annotations", json!(template.metadata.annotations));
    }
    pod
}
