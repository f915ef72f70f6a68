//! ReplicaSets to Pods: creates missing Pods and deletes surplus ones.

use serde_json::json;

use super::super::garbage::Index;
use super::{ends, is_over, is_ready, new_pod, number, status, write};
use crate::core::{Core, DeleteOptions};
use crate::failure::Failure;
use crate::value::{at, text};

pub(in super::super) fn replica_set(core: &Core, index: &Index, namespace: &str, name: &str) -> Result<(), Failure> {
    let Some(set) = core.find("apps", "replicasets", namespace, name).filter(|set| !ends(set)) else { return Ok(()) };
    let pods = core.builtin("", "pods")?;
    let (ending, mut mine): (Vec<_>, Vec<_>) =
        index.controlled(core, "/pods", &set).into_iter().filter(|pod| !is_over(pod)).partition(ends);
    let wanted = number(&set, "spec.replicas");
    for _ in mine.len()..wanted {
        let pod = new_pod(&set, at(&set, "spec.template"));
        mine.push(core.create(&pods, namespace, pod, &write())?.object);
    }
    // Pods without a Node and unready Pods are deleted first.
    mine.sort_by_key(|pod| (!text(pod, "spec.nodeName").is_empty(), is_ready(pod)));
    let surplus = mine.len().saturating_sub(wanted);
    let mut terminating = ending.len();
    for pod in mine.drain(..surplus) {
        let name = text(&pod, "metadata.name");
        match core.delete(&pods, namespace, name, &DeleteOptions::default()) {
            Err(failure) if failure.code != 404 => return Err(failure),
            _ => terminating += usize::from(core.get(&pods, namespace, name).is_ok()),
        }
    }
    let ready = mine.iter().filter(|pod| is_ready(pod)).count();
    let counts = json!({
        "replicas": mine.len(), "fullyLabeledReplicas": mine.len(), "readyReplicas": ready, "availableReplicas": ready,
        "terminatingReplicas": terminating, "observedGeneration": at(&set, "metadata.generation"),
    });
    status(core, "replicasets", &set, &counts)
}
