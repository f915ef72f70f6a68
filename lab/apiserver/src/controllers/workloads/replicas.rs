//! ReplicaSets to Pods: creates missing Pods and deletes surplus ones.

use serde_json::json;

use super::super::garbage::Index;
use super::{new_pod, write, write_status};
use crate::core::{Core, DeleteOptions};
use crate::failure::Failure;
use crate::objects::{Pod, ReplicaSet, read};

pub(in super::super) fn replica_set(core: &Core, index: &Index, namespace: &str, name: &str) -> Result<(), Failure> {
    let set = core.read::<ReplicaSet>(namespace, name).filter(|set| !set.metadata.is_terminating());
    let Some(set) = set else { return Ok(()) };
    let pods = core.builtin("", "pods")?;
    let mine = index.controlled::<Pod>(core, &set.metadata.uid).into_iter().filter(|pod| !pod.is_over());
    let (ending, mut mine): (Vec<_>, Vec<_>) = mine.partition(|pod| pod.metadata.is_terminating());
    let wanted = set.spec.replicas;
    let owner = set.metadata.as_controller("apps/v1", "ReplicaSet");
    for _ in mine.len()..wanted {
        let pod = new_pod(&owner, &set.spec.template);
        mine.push(read(&core.create(&pods, namespace, pod, &write())?.object));
    }
    // Pods without a Node and unready Pods are deleted first.
    mine.sort_by_key(|pod| (!pod.spec.node_name.is_empty(), pod.is_ready()));
    let surplus = mine.len().saturating_sub(wanted);
    let mut terminating = ending.len();
    for pod in mine.drain(..surplus) {
        let name = &pod.metadata.name;
        match core.delete(&pods, namespace, name, &DeleteOptions::default()) {
            Err(failure) if failure.code != 404 => return Err(failure),
            _ => terminating += usize::from(core.get(&pods, namespace, name).is_ok()),
        }
    }
    let ready = mine.iter().filter(|pod| pod.is_ready()).count();
    let counts = json!({
        "replicas": mine.len(), "fullyLabeledReplicas": mine.len(), "readyReplicas": ready, "availableReplicas": ready,
        "terminatingReplicas": terminating, "observedGeneration": set.metadata.generation,
    });
    write_status(core, "replicasets", &set.metadata, &counts)
}
