//! Deployments to ReplicaSets, ReplicaSets and DaemonSets to Pods.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};

use crate::core::{Core, DeleteOptions, Write};
use crate::failure::Failure;
use crate::selector::Labels;
use crate::value::{at, items, set, text};

fn owner(object: &Value) -> Value {
    json!([{
        "apiVersion": "apps/v1", "kind": at(object, "kind"), "name": at(object, "metadata.name"), "uid": at(object, "metadata.uid"),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// The objects of a resource that one controls.
fn owned(core: &Core, group: &str, plural: &str, object: &Value) -> Vec<Value> {
    let uid = at(object, "metadata.uid");
    let mut all = core.all(group, plural, text(object, "metadata.namespace"));
    all.retain(|other| {
        items(other, "metadata.ownerReferences")
            .iter()
            .any(|owner| at(owner, "uid") == uid && at(owner, "controller") == true)
    });
    all
}

/// A name for a template that is another one when the template is.
fn hash(template: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    template.to_string().hash(&mut hasher);
    format!("{:09x}", hasher.finish() & 0xf_ffff_ffff)
}

fn status(core: &Core, plural: &str, object: &Value, new: &Value) -> Result<(), Failure> {
    let resource = core.builtin("apps", plural)?;
    let write = Write::by("kube-controller-manager").status();
    core.modify(&resource, text(object, "metadata.namespace"), text(object, "metadata.name"), &write, true, |old| {
        let mut changed = old.clone();
        for (key, value) in new.as_object().into_iter().flatten() {
            set(&mut changed, &format!("status.{key}"), value.clone());
        }
        Ok(changed)
    })
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

pub(super) fn replica_set(core: &Core, namespace: &str, name: &str) -> Result<(), Failure> {
    let Some(set) = core.find("apps", "replicasets", namespace, name).filter(|set| !ends(set)) else { return Ok(()) };
    let pods = core.builtin("", "pods")?;
    let mut mine = owned(core, "", "pods", &set);
    mine.retain(|pod| !ends(pod) && !matches!(text(pod, "status.phase"), "Succeeded" | "Failed"));
    let wanted = number(&set, "spec.replicas");
    for _ in mine.len()..wanted {
        let pod = new_pod(&set, at(&set, "spec.template"));
        core.create(&pods, namespace, pod, &Write::by("kube-controller-manager"))?;
    }
    // Those that do the least go first.
    mine.sort_by_key(|pod| (!text(pod, "spec.nodeName").is_empty(), is_ready(pod)));
    for pod in mine.iter().take(mine.len().saturating_sub(wanted)) {
        core.delete(&pods, namespace, text(pod, "metadata.name"), &DeleteOptions::default())?;
    }
    let mut left = owned(core, "", "pods", &set);
    left.retain(|pod| !ends(pod) && !matches!(text(pod, "status.phase"), "Succeeded" | "Failed"));
    let ready = left.iter().filter(|pod| is_ready(pod)).count();
    let counts = json!({
        "replicas": left.len(), "fullyLabeledReplicas": left.len(), "readyReplicas": ready, "availableReplicas": ready,
        "observedGeneration": at(&set, "metadata.generation"),
    });
    status(core, "replicasets", &set, &counts)
}

pub(super) fn deployment(core: &Core, namespace: &str, name: &str) -> Result<(), Failure> {
    let Some(deployment) = core.find("apps", "deployments", namespace, name).filter(|deployment| !ends(deployment))
    else {
        return Ok(());
    };
    let sets = core.builtin("apps", "replicasets")?;
    let write = Write::by("kube-controller-manager");
    let template = at(&deployment, "spec.template");
    let hash = hash(template);
    let current = format!("{name}-{hash}");
    let replicas = number(&deployment, "spec.replicas");
    let mut mine = owned(core, "apps", "replicasets", &deployment);
    if !mine.iter().any(|set| text(set, "metadata.name") == current) {
        let labelled = |mut labels: Value| {
            crate::value::object(&mut labels).insert("pod-template-hash".into(), hash.as_str().into());
            labels
        };
        let mut template = template.clone();
        let labels = labelled(at(&template, "metadata.labels").clone());
        set(&mut template, "metadata.labels", labels.clone());
        let mut selector = at(&deployment, "spec.selector").clone();
        let matched = labelled(at(&selector, "matchLabels").clone());
        set(&mut selector, "matchLabels", matched);
        let set = json!({
            "metadata": {"name": current, "labels": labels, "ownerReferences": owner(&deployment)},
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        });
        mine.push(core.create(&sets, namespace, set, &write)?.object);
    }
    for set in &mine {
        let wanted = if text(set, "metadata.name") == current { replicas } else { 0 };
        if number(set, "spec.replicas") != wanted {
            core.modify(&sets, namespace, text(set, "metadata.name"), &write, true, |old| {
                let mut new = old.clone();
                crate::value::set(&mut new, "spec.replicas", wanted);
                Ok(new)
            })?;
        }
    }
    let sum = |path: &str| mine.iter().map(|set| number(set, path)).sum::<usize>();
    let newest = mine.iter().find(|set| text(set, "metadata.name") == current);
    let ready = sum("status.readyReplicas");
    let known = |kind: &str, good: bool, reason: &str, message: &str| {
        let before = items(&deployment, "status.conditions").iter().find(|condition| text(condition, "type") == kind);
        let value = if good { "True" } else { "False" };
        match before.filter(|before| text(before, "status") == value && text(before, "reason") == reason) {
            Some(before) => before.clone(),
            None => {
                let now = crate::moment::now();
                json!({"type": kind, "status": value, "reason": reason, "message": message, "lastUpdateTime": now, "lastTransitionTime": now})
            }
        }
    };
    let available = ready >= replicas;
    let conditions = json!([
        if available {
            known("Available", true, "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            known("Available", false, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        },
        if available {
            known(
                "Progressing",
                true,
                "NewReplicaSetAvailable",
                &format!("ReplicaSet \"{current}\" has successfully progressed."),
            )
        } else {
            known("Progressing", true, "ReplicaSetUpdated", &format!("ReplicaSet \"{current}\" is progressing."))
        },
    ]);
    let counts = json!({
        "replicas": sum("status.replicas"), "readyReplicas": ready, "availableReplicas": ready,
        "updatedReplicas": newest.map_or(0, |set| number(set, "status.replicas")),
        "unavailableReplicas": replicas.saturating_sub(ready), "observedGeneration": at(&deployment, "metadata.generation"),
        "conditions": conditions,
    });
    status(core, "deployments", &deployment, &counts)
}

pub(super) fn daemon_set(core: &Core, namespace: &str, name: &str) -> Result<(), Failure> {
    let Some(daemons) = core.find("apps", "daemonsets", namespace, name).filter(|daemons| !ends(daemons)) else {
        return Ok(());
    };
    let pods = core.builtin("", "pods")?;
    let template = at(&daemons, "spec.template");
    let hash = hash(template);
    let selector = Labels::of_object(&json!({"matchLabels": at(template, "spec.nodeSelector")}));
    let mut nodes: Vec<_> = core.all("", "nodes", "");
    nodes.retain(|node| selector.matches_labels(at(node, "metadata.labels")) && !ends(node));
    let nodes: Vec<_> = nodes.iter().map(|node| text(node, "metadata.name")).collect();
    let mine = owned(core, "", "pods", &daemons);
    let current =
        |pod: &Value| at(pod, "metadata.labels").get("controller-revision-hash").and_then(Value::as_str) == Some(&hash);
    for pod in mine.iter().filter(|pod| !ends(pod)) {
        let ended = matches!(text(pod, "status.phase"), "Succeeded" | "Failed");
        let (node, first) = (text(pod, "spec.nodeName"), |other: &&Value| {
            text(other, "spec.nodeName") == text(pod, "spec.nodeName") && !ends(other)
        });
        let surplus =
            mine.iter().find(first).is_some_and(|other| text(other, "metadata.name") != text(pod, "metadata.name"));
        if !nodes.contains(&node) || !current(pod) || ended || surplus {
            core.delete(&pods, namespace, text(pod, "metadata.name"), &DeleteOptions::default())?;
        }
    }
    for node in &nodes {
        // The old one goes before the new one comes.
        if mine.iter().any(|pod| {
            text(pod, "spec.nodeName") == *node && core.get(&pods, namespace, text(pod, "metadata.name")).is_ok()
        }) {
            continue;
        }
        let mut pod = new_pod(&daemons, template);
        set(&mut pod, "metadata.labels.controller-revision-hash", hash.as_str());
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
        core.create(&pods, namespace, pod, &Write::by("kube-controller-manager"))?;
    }
    let mut left = owned(core, "", "pods", &daemons);
    left.retain(|pod| !ends(pod) && nodes.contains(&text(pod, "spec.nodeName")));
    let ready = left.iter().filter(|pod| is_ready(pod)).count();
    let counts = json!({
        "desiredNumberScheduled": nodes.len(), "currentNumberScheduled": left.len(), "numberMisscheduled": 0, "numberReady": ready,
        "numberAvailable": ready, "numberUnavailable": nodes.len().saturating_sub(ready),
        "updatedNumberScheduled": left.iter().filter(|pod| current(pod)).count(), "observedGeneration": at(&daemons, "metadata.generation"),
    });
    status(core, "daemonsets", &daemons, &counts)
}
