//! Deployments to ReplicaSets: a new template replaces all Pods at once.

use serde_json::{Value, json};

use super::super::garbage::Index;
use super::{ends, hash, number, owner, status, write};
use crate::core::Core;
use crate::failure::Failure;
use crate::value::{at, items, set, text};

const REVISION: &str = "deployment.kubernetes.io/revision";

pub(in super::super) fn deployment(core: &Core, index: &Index, namespace: &str, name: &str) -> Result<(), Failure> {
    let Some(deployment) = core.find("apps", "deployments", namespace, name).filter(|deployment| !ends(deployment))
    else {
        return Ok(());
    };
    let sets = core.builtin("apps", "replicasets")?;
    let hash = hash(at(&deployment, "spec.template"));
    let current = format!("{name}-{hash}");
    let replicas = number(&deployment, "spec.replicas");
    let mut mine = index.controlled(core, "apps/replicasets", &deployment);
    let is_current = |set: &Value| text(set, "metadata.name") == current;
    // An old template that is used again becomes a new revision.
    let others = mine.iter().filter(|set| !is_current(set)).map(revision).max().unwrap_or(0);
    let latest = mine.iter().find(|set| is_current(set)).map_or(0, revision).max(others + 1);
    if !mine.iter().any(is_current) {
        let set = replica_set(&deployment, &current, &hash);
        match core.create(&sets, namespace, set, &write()) {
            Ok(written) => mine.push(written.object),
            // Created by an earlier run, and not yet in the index.
            Err(failure) if failure.reason == "AlreadyExists" => {
                mine.push(core.get(&sets, namespace, &current)?.value());
            }
            Err(failure) => return Err(failure),
        }
    }
    for set in &mut mine {
        let (wanted, revision) = if is_current(set) { (replicas, latest) } else { (0, revision(set)) };
        let written = core.modify(&sets, namespace, text(set, "metadata.name"), &write(), true, |old| {
            let mut new = old.clone();
            crate::value::set(&mut new, "spec.replicas", wanted);
            annotate(&mut new, "deployment.kubernetes.io/desired-replicas", &replicas.to_string());
            let most = replicas + surge(&deployment, replicas);
            annotate(&mut new, "deployment.kubernetes.io/max-replicas", &most.to_string());
            annotate(&mut new, REVISION, &revision.to_string());
            Ok(new)
        });
        *set = written?.object;
    }
    let resource = core.builtin("apps", "deployments")?;
    core.modify(&resource, namespace, name, &write(), true, |old| {
        let mut new = old.clone();
        annotate(&mut new, REVISION, &latest.to_string());
        Ok(new)
    })?;
    status(core, "deployments", &deployment, &counts(&deployment, &mine, &current))
}

/// The ReplicaSet of the current template.
fn replica_set(deployment: &Value, name: &str, hash: &str) -> Value {
    let labelled = |mut labels: Value| {
        crate::value::object(&mut labels).insert("pod-template-hash".into(), hash.into());
        labels
    };
    let mut template = at(deployment, "spec.template").clone();
    let labels = labelled(at(&template, "metadata.labels").clone());
    set(&mut template, "metadata.labels", labels.clone());
    let mut selector = at(deployment, "spec.selector").clone();
    let matched = labelled(at(&selector, "matchLabels").clone());
    set(&mut selector, "matchLabels", matched);
    json!({
        "metadata": {"name": name, "labels": labels, "ownerReferences": owner(deployment)},
        "spec": {"replicas": at(deployment, "spec.replicas"), "selector": selector, "template": template},
    })
}

fn annotate(object: &mut Value, key: &str, value: &str) {
    let mut annotations = at(object, "metadata.annotations").clone();
    crate::value::object(&mut annotations).insert(key.into(), value.into());
    set(object, "metadata.annotations", annotations);
}

fn revision(set: &Value) -> u64 {
    let text = at(set, "metadata.annotations").get(REVISION).and_then(Value::as_str).unwrap_or_default();
    text.parse().unwrap_or(0)
}

/// `maxSurge`: the number of additional Pods during an update; a percentage is rounded up.
fn surge(deployment: &Value, replicas: usize) -> usize {
    match at(deployment, "spec.strategy.rollingUpdate.maxSurge") {
        Value::String(text) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
            replicas.saturating_mul(percent).div_ceil(100)
        }
        number => number.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0),
    }
}

fn counts(deployment: &Value, mine: &[Value], current: &str) -> Value {
    let replicas = number(deployment, "spec.replicas");
    let sum = |path: &str| mine.iter().map(|set| number(set, path)).sum::<usize>();
    let newest = mine.iter().find(|set| text(set, "metadata.name") == current);
    let ready = sum("status.readyReplicas");
    let known = |kind: &str, good: bool, reason: &str, message: &str| {
        let before = items(deployment, "status.conditions").iter().find(|condition| text(condition, "type") == kind);
        let value = if good { "True" } else { "False" };
        match before.filter(|before| text(before, "status") == value && text(before, "reason") == reason) {
            Some(before) => before.clone(),
            None => {
                let now = crate::moment::now();
                json!({"type": kind, "status": value, "reason": reason, "message": message, "lastUpdateTime": now, "lastTransitionTime": now})
            }
        }
    };
    let conditions = if ready >= replicas {
        let progressed = format!("ReplicaSet \"{current}\" has successfully progressed.");
        [
            known("Available", true, "MinimumReplicasAvailable", "Deployment has minimum availability."),
            known("Progressing", true, "NewReplicaSetAvailable", &progressed),
        ]
    } else {
        let progressing = format!("ReplicaSet \"{current}\" is progressing.");
        [
            known("Available", false, "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
            known("Progressing", true, "ReplicaSetUpdated", &progressing),
        ]
    };
    json!({
        "replicas": sum("status.replicas"), "readyReplicas": ready, "availableReplicas": ready,
        "terminatingReplicas": sum("status.terminatingReplicas"),
        "updatedReplicas": newest.map_or(0, |set| number(set, "status.replicas")),
        "unavailableReplicas": replicas.saturating_sub(ready), "observedGeneration": at(deployment, "metadata.generation"),
        "conditions": conditions,
    })
}
