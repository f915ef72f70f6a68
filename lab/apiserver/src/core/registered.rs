//! APIServices of the groups that this server serves: one for each version of a group.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Core, DeleteOptions, Write};
use crate::moment;
use crate::objects::{ApiService, Condition, read};
use crate::resources::QUESTIONS;
use crate::value::set;

const GROUP: &str = "apiregistration.k8s.io";
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

impl Core {
    /// Creates missing APIServices, and deletes those of which the definitions are gone.
    pub(crate) fn register(&self) {
        let Ok(resource) = self.builtin(GROUP, "apiservices") else { return };
        let registry = self.registry();
        let builtin = QUESTIONS.iter().map(|(group, ..)| ((*group).to_owned(), "v1".to_owned(), false));
        let kept = registry.resources.values();
        let kept = kept.map(|resource| (resource.group.clone(), resource.version.clone(), resource.custom.is_some()));
        let wanted: BTreeMap<_, _> = builtin
            .chain(kept)
            .map(|(group, version, custom)| (format!("{version}.{group}"), (group, version, custom)))
            .collect();
        let write = Write::by("kube-apiserver");
        for (name, (group, version, custom)) in &wanted {
            if self.get(&resource, "", name).is_err() {
                // It may exist already.
                let _ = self.create(&resource, "", local(name, group, version, *custom), &write);
            }
        }
        for ApiService { metadata, .. } in self.read_all() {
            if metadata.label(MANAGED).is_some() && !wanted.contains_key(&metadata.name) {
                let _ = self.delete(&resource, "", &metadata.name, &DeleteOptions::default());
            }
        }
    }
}

/// Local groups have priority over those of backends, and built-in ones over custom ones.
fn local(name: &str, group: &str, version: &str, custom: bool) -> Value {
    let (managed, priority) = match (custom, group) {
        (true, _) => ("true", (1000, 100)),
        (false, "") => ("onstart", (18000, 1)),
        (false, _) => ("onstart", (17500, 15)),
    };
    let mut spec = json!({"version": version, "groupPriorityMinimum": priority.0, "versionPriority": priority.1});
    if !group.is_empty() {
        set(&mut spec, "group", group);
    }
    let mut labels = json!({});
    crate::value::object(&mut labels).insert(MANAGED.into(), managed.into());
    json!({"metadata": {"name": name, "labels": labels}, "spec": spec})
}

/// The initial status of an APIService: available if it is served locally.
pub(super) fn first_status(service: &Value) -> Value {
    match read::<ApiService>(service).spec.service {
        None => json!({"conditions": [available("True", "Local", "Local APIServices are always available")]}),
        Some(_) => json!({}),
    }
}

/// The `Available` condition of an APIService.
pub(crate) fn available(status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        kind: "Available".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Some(moment::now()),
        ..Condition::default()
    }
}
