//! DaemonSets to Pods, one for each Node.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::garbage::Index;
use super::{ends, hash, is_over, is_ready, new_pod, status, write};
use crate::core::{Core, DeleteOptions};
use crate::failure::Failure;
use crate::selector::Labels;
use crate::value::{at, items, set, text};

pub(in super::super) fn daemon_set(core: &Core, index: &Index, namespace: &str, name: &str) -> Result<(), Failure> {
    let Some(daemons) = core.find("apps", "daemonsets", namespace, name).filter(|daemons| !ends(daemons)) else {
        return Ok(());
    };
    let pods = core.builtin("", "pods")?;
    let template = at(&daemons, "spec.template");
    let hash = hash(template);
    let selector = Labels::of_object(&json!({"matchLabels": at(template, "spec.nodeSelector")}));
    let mut nodes = core.all("", "nodes", "");
    nodes.retain(|node| selector.matches_labels(at(node, "metadata.labels")) && !ends(node));
    let nodes: BTreeSet<_> = nodes.iter().map(|node| text(node, "metadata.name")).collect();
    let current =
        |pod: &Value| at(pod, "metadata.labels").get("controller-revision-hash").and_then(Value::as_str) == Some(&hash);
    let mine = index.controlled(core, "/pods", &daemons);
    let mut left = Vec::new();
    // Nodes with a current Pod, or with one that must be deleted before another is created.
    let mut taken = BTreeSet::new();
    for pod in mine {
        let (node, name) = (text(&pod, "spec.nodeName").to_owned(), text(&pod, "metadata.name"));
        if ends(&pod) {
            taken.insert(node);
        } else if nodes.contains(node.as_str()) && current(&pod) && !is_over(&pod) && taken.insert(node.clone()) {
            left.push(pod);
        } else {
            match core.delete(&pods, namespace, name, &DeleteOptions::default()) {
                Err(failure) if failure.code != 404 => return Err(failure),
                _ if core.get(&pods, namespace, name).is_ok() => drop(taken.insert(node)),
                _ => {}
            }
        }
    }
    for node in nodes.iter().filter(|node| !taken.contains(**node)) {
        let mut pod = new_pod(&daemons, template);
        set(&mut pod, "metadata.labels.controller-revision-hash", hash.as_str());
        let generation = at(&daemons, "metadata.generation").to_string();
        set(&mut pod, "metadata.labels.pod-template-generation", generation);
        let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        let required = json!({"nodeSelectorTerms": [term]});
        set(&mut pod, "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution", required);
        // There is no scheduler that would handle node affinity.
        set(&mut pod, "spec.nodeName", *node);
        let tolerated = [
            "not-ready:NoExecute",
            "unreachable:NoExecute",
            "disk-pressure:NoSchedule",
            "memory-pressure:NoSchedule",
            "pid-pressure:NoSchedule",
            "unschedulable:NoSchedule",
        ];
        let mut tolerations = items(&pod, "spec.tolerations").to_vec();
        tolerations.extend(tolerated.iter().filter_map(|text| text.split_once(':')).map(
            |(key, effect)| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect}),
        ));
        set(&mut pod, "spec.tolerations", tolerations);
        left.push(core.create(&pods, namespace, pod, &write())?.object);
    }
    let ready = left.iter().filter(|pod| is_ready(pod)).count();
    let counts = json!({
        "desiredNumberScheduled": nodes.len(), "currentNumberScheduled": left.len(), "numberMisscheduled": 0, "numberReady": ready,
        "numberAvailable": ready, "numberUnavailable": nodes.len().saturating_sub(ready),
        "updatedNumberScheduled": left.iter().filter(|pod| current(pod)).count(), "observedGeneration": at(&daemons, "metadata.generation"),
    });
    status(core, "daemonsets", &daemons, &counts)
}
