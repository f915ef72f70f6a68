//! Deployments, ReplicaSets and DaemonSets.

use serde_json::{Value, json};

use super::{Errors, immutable, label_selector, template};
use crate::failure::FieldError;
use crate::selector::Labels;
use crate::value::{at, text};

pub(crate) fn workload(object: &Value, errors: &mut Errors) {
    if at(object, "spec.replicas").as_i64().is_some_and(|replicas| replicas < 0) {
        errors.push(FieldError::invalid(
            "spec.replicas",
            at(object, "spec.replicas"),
            "must be greater than or equal to 0",
        ));
    }
    let selector = at(object, "spec.selector");
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else {
        label_selector(selector, "spec.selector", errors);
        let empty = |key: &str| at(selector, key).as_object().is_none_or(serde_json::Map::is_empty);
        if empty("matchLabels") && crate::value::items(selector, "matchExpressions").is_empty() {
            let kind = match text(object, "kind") {
                "Deployment" => "deployment",
                "ReplicaSet" => "replicaset",
                _ => "daemonset",
            };
            let why = format!("empty selector is invalid for {kind}");
            errors.push(FieldError::invalid("spec.selector", selector, &why));
        }
    }
    let labels = at(object, "spec.template.metadata.labels");
    if selector.is_null() || !Labels::of_object(selector).matches_labels(labels) {
        let rendered = if labels.is_null() { json!(null) } else { labels.clone() };
        let why = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", &rendered, why));
    }
    template(at(object, "spec.template"), "spec.template", errors);
    let strategy = text(object, "spec.updateStrategy.type");
    if text(object, "kind") == "DaemonSet" && !["RollingUpdate", "OnDelete"].contains(&strategy) {
        let rendered = format!("{{\"Type\":{strategy:?},\"RollingUpdate\":null}}");
        errors.push(FieldError::not_supported_rendered(
            "spec.updateStrategy",
            &rendered,
            &["RollingUpdate", "OnDelete"],
        ));
    }
    let policy = at(object, "spec.template.spec.restartPolicy");
    if policy != "Always" {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
}

pub(crate) fn selector_update(new: &Value, old: &Value, errors: &mut Errors) {
    if at(new, "spec.selector") != at(old, "spec.selector") {
        errors.push(immutable("spec.selector", at(new, "spec.selector")));
    }
}
