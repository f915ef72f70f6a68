//! Deployments to ReplicaSets: a new template replaces all Pods at once.

use serde_json::{Value, json};

use super::super::garbage::Index;
use super::{hash, write, write_status};
use crate::core::Core;
use crate::failure::Failure;
use crate::objects::{Condition, Deployment, IntOrString, Object, ReplicaSet, read};
use crate::value::set;

const REVISION: &str = "deployment.kubernetes.io/revision";

pub(in super::super) fn deployment(core: &Core, index: &Index, namespace: &str, name: &str) -> Result<(), Failure> {
    let found = core.read::<Deployment>(namespace, name).filter(|deployment| !deployment.metadata.is_terminating());
    let Some(deployment) = found else { return Ok(()) };
    let sets = core.builtin("apps", "replicasets")?;
    let hash = hash(&deployment.spec.template);
    let current = format!("{name}-{hash}");
    let replicas = deployment.spec.replicas;
    let mut mine = index.controlled::<ReplicaSet>(core, &deployment.metadata.uid);
    let is_current = |set: &ReplicaSet| set.metadata.name == current;
    // An old template that is used again becomes a new revision.
    let others = mine.iter().filter(|set| !is_current(set)).map(revision).max().unwrap_or(0);
    let latest = mine.iter().find(|set| is_current(set)).map_or(0, revision).max(others + 1);
    if !mine.iter().any(is_current) {
        let set = replica_set(&deployment, &current, &hash);
        match core.create(&sets, namespace, set, &write()) {
            Ok(written) => mine.push(read(&written.object)),
            // Created by an earlier run, and not yet in the index.
            Err(failure) if failure.reason == "AlreadyExists" => mine.extend(core.read(namespace, &current)),
            Err(failure) => return Err(failure),
        }
    }
    for set in &mut mine {
        let (wanted, revision) = if is_current(set) { (replicas, latest) } else { (0, revision(set)) };
        let written = core.modify(&sets, namespace, &set.metadata.name, &write(), true, |old| {
            let mut new = old.clone();
            self::set(&mut new, "spec.replicas", wanted);
            annotate(&mut new, "deployment.kubernetes.io/desired-replicas", &replicas.to_string());
            let most = replicas + surge(&deployment, replicas);
            annotate(&mut new, "deployment.kubernetes.io/max-replicas", &most.to_string());
            annotate(&mut new, REVISION, &revision.to_string());
            Ok(new)
        });
        *set = read(&written?.object);
    }
    let resource = core.builtin("apps", "deployments")?;
    core.modify(&resource, namespace, name, &write(), true, |old| {
        let mut new = old.clone();
        annotate(&mut new, REVISION, &latest.to_string());
        Ok(new)
    })?;
    write_status(core, "deployments", &deployment.metadata, &counts(&deployment, &mine, &current))
}

/// The ReplicaSet of the current template.
fn replica_set(deployment: &Deployment, name: &str, hash: &str) -> Value {
    let (mut template, mut selector) = (deployment.spec.template.clone(), deployment.spec.selector.clone());
    for labels in [&mut template.metadata.labels, &mut selector.match_labels] {
        labels.insert("pod-template-hash".into(), hash.into());
    }
    let owner = deployment.metadata.as_controller("apps/v1", "Deployment");
    json!({
        "metadata": {"name": name, "labels": template.metadata.labels, "ownerReferences": [owner]},
        "spec": {"replicas": deployment.spec.replicas, "selector": selector, "template": template},
    })
}

fn annotate(object: &mut Value, key: &str, value: &str) {
    let mut annotations = read::<Object>(object).metadata.annotations;
    annotations.insert(key.into(), value.into());
    set(object, "metadata.annotations", json!(annotations));
}

fn revision(set: &ReplicaSet) -> u64 {
    set.metadata.annotations.get(REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// `maxSurge`: the number of additional Pods during an update; a percentage is rounded up.
fn surge(deployment: &Deployment, replicas: usize) -> usize {
    match &deployment.spec.strategy.rolling_update.max_surge {
        Some(IntOrString::String(text)) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
            replicas.saturating_mul(percent).div_ceil(100)
        }
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or(0),
        None => 0,
    }
}

fn counts(deployment: &Deployment, mine: &[ReplicaSet], current: &str) -> Value {
    let replicas = deployment.spec.replicas;
    let newest = mine.iter().find(|set| set.metadata.name == current);
    let ready: usize = mine.iter().map(|set| set.status.ready_replicas).sum();
    let known = |kind: &str, good: bool, reason: &str, message: &str| {
        let before = Condition::find(&deployment.status.conditions, kind);
        let status = if good { "True" } else { "False" };
        before.filter(|before| before.status == status && before.reason == reason).cloned().unwrap_or_else(|| {
            let now = crate::moment::now();
            Condition {
                kind: kind.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message: message.to_owned(),
                last_update_time: Some(now.clone()),
                last_transition_time: Some(now),
            }
        })
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
        "replicas": mine.iter().map(|set| set.status.replicas).sum::<usize>(), "readyReplicas": ready, "availableReplicas": ready,
        "terminatingReplicas": mine.iter().map(|set| set.status.terminating_replicas).sum::<usize>(),
        "updatedReplicas": newest.map_or(0, |set| set.status.replicas),
        "unavailableReplicas": replicas.saturating_sub(ready), "observedGeneration": deployment.metadata.generation,
        "conditions": conditions,
    })
}
