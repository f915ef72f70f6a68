//! DaemonSets to Pods, one for each Node.

use std::collections::BTreeSet;

use serde_json::json;

use super::super::garbage::Index;
use super::{hash, new_pod, write, write_status};
use crate::core::{Core, DeleteOptions};
use crate::failure::Failure;
use crate::objects::{DaemonSet, Node, Pod, read};
use crate::selector::Labels;
use crate::value::set;

const REVISION: &str = "controller-revision-hash";
/// Taints that the Pods of a DaemonSet tolerate, with their effects.
const TOLERATED: [(&str, &str); 6] = [
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
];

pub(in super::super) fn daemon_set(core: &Core, index: &Index, namespace: &str, name: &str) -> Result<(), Failure> {
    let daemons = core.read::<DaemonSet>(namespace, name).filter(|daemons| !daemons.metadata.is_terminating());
    let Some(daemons) = daemons else { return Ok(()) };
    let pods = core.builtin("", "pods")?;
    let template = &daemons.spec.template;
    let hash = hash(template);
    let selector = Labels::of_map(&template.spec.node_selector);
    let nodes = core.read_all::<Node>().into_iter().map(|node| node.metadata);
    let nodes = nodes.filter(|node| selector.matches_map(&node.labels) && !node.is_terminating());
    let nodes: BTreeSet<_> = nodes.map(|node| node.name).collect();
    let current = |pod: &Pod| pod.metadata.label(REVISION) == Some(&hash);
    let mine = index.controlled::<Pod>(core, &daemons.metadata.uid);
    let mut left = Vec::new();
    // Nodes with a current Pod, or with one that must be deleted before another is created.
    let mut taken = BTreeSet::new();
    for pod in mine {
        let (node, name) = (pod.spec.node_name.clone(), &pod.metadata.name);
        if pod.metadata.is_terminating() {
            taken.insert(node);
        } else if nodes.contains(&node) && current(&pod) && !pod.is_over() && taken.insert(node.clone()) {
            left.push(pod);
        } else {
            match core.delete(&pods, namespace, name, &DeleteOptions::default()) {
                Err(failure) if failure.code != 404 => return Err(failure),
                _ if core.get(&pods, namespace, name).is_ok() => drop(taken.insert(node)),
                _ => {}
            }
        }
    }
    let owner = daemons.metadata.as_controller("apps/v1", "DaemonSet");
    let mut template = template.clone();
    let generation = daemons.metadata.generation.unwrap_or_default();
    template.metadata.labels.insert(REVISION.into(), hash.clone());
    template.metadata.labels.insert("pod-template-generation".into(), generation.to_string());
    template.spec.tolerations.extend(TOLERATED.iter().map(
        |(key, effect)| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect}),
    ));
    for node in nodes.difference(&taken) {
        let mut pod = new_pod(&owner, &template);
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        let required = json!({"nodeSelectorTerms": [term]});
        set(&mut pod, "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution", required);
        // There is no scheduler that would handle node affinity.
        set(&mut pod, "spec.nodeName", node.as_str());
        left.push(read(&core.create(&pods, namespace, pod, &write())?.object));
    }
    let ready = left.iter().filter(|pod| pod.is_ready()).count();
    let counts = json!({
        "desiredNumberScheduled": nodes.len(), "currentNumberScheduled": left.len(), "numberMisscheduled": 0, "numberReady": ready,
        "numberAvailable": ready, "numberUnavailable": nodes.len().saturating_sub(ready),
        "updatedNumberScheduled": left.iter().filter(|pod| current(pod)).count(), "observedGeneration": daemons.metadata.generation,
    });
    write_status(core, "daemonsets", &daemons.metadata, &counts)
}
