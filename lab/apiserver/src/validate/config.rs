//! ConfigMaps, Secrets, roles, bindings and APIServices.

use serde_json::{Value, json};

use super::{Errors, immutable};
use crate::failure::FieldError;
use crate::names;
use crate::value::{at, items, text};

const MAX_SIZE: usize = 1024 * 1024;

pub(crate) fn config_map(object: &Value, errors: &mut Errors) {
    let mut size = 0;
    for list in ["data", "binaryData"] {
        for (key, value) in at(object, list).as_object().into_iter().flatten() {
            for why in names::config_key(key) {
                errors.push(FieldError::invalid(format!("{list}[{key}]"), &json!(key), &why));
            }
            if list == "data" && at(object, "binaryData").get(key).is_some() {
                let why = "duplicate of key present in binaryData";
                errors.push(FieldError::invalid(format!("{list}[{key}]"), &json!(key), why));
            }
            size += value.as_str().unwrap_or_default().len();
        }
    }
    if size > MAX_SIZE {
        errors.push(FieldError::too_long("", MAX_SIZE));
    }
}

pub(crate) fn secret(object: &Value, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in at(object, "data").as_object().into_iter().flatten() {
        for why in names::config_key(key) {
            errors.push(FieldError::invalid(format!("data[{key}]"), &json!(key), &why));
        }
        size += value.as_str().unwrap_or_default().len() / 4 * 3;
    }
    if size > MAX_SIZE {
        errors.push(FieldError::too_long("data", MAX_SIZE));
    }
    let has = |key: &str| at(object, "data").get(key).is_some();
    match text(object, "type") {
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| !has(key)) {
                errors.push(FieldError::required(format!("data[{key}]"), ""));
            }
        }
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            let name = at(object, "metadata.annotations").get(key).and_then(Value::as_str).unwrap_or_default();
            if name.is_empty() {
                errors.push(FieldError::required(format!("metadata.annotations[{key}]"), ""));
            }
        }
        "kubernetes.io/dockerconfigjson" => docker(object, ".dockerconfigjson", errors),
        "kubernetes.io/dockercfg" => docker(object, ".dockercfg", errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            errors.push(FieldError::required("data[username]", ""));
            errors.push(FieldError::required("data[password]", ""));
        }
        "kubernetes.io/ssh-auth" if !has("ssh-privatekey") => {
            errors.push(FieldError::required("data[ssh-privatekey]", ""));
        }
        _ => {}
    }
}

/// A docker configuration must be JSON.
fn docker(object: &Value, key: &str, errors: &mut Errors) {
    use base64::Engine as _;
    let field = format!("data[{key}]");
    let Some(given) = at(object, "data").get(key).and_then(Value::as_str) else {
        errors.push(FieldError::required(field, ""));
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD.decode(given).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes) {
        let redacted = json!("<secret contents redacted>");
        errors.push(FieldError::invalid(field, &redacted, &crate::syntax::syntax(&bytes, &error)));
    }
}

pub(crate) fn secret_update(new: &Value, old: &Value, errors: &mut Errors) {
    let kind = text(old, "kind");
    if kind == "Secret" && at(new, "type") != at(old, "type") {
        errors.push(immutable("type", at(new, "type")));
    }
    if at(old, "immutable") == true {
        if at(new, "immutable") != true {
            errors.push(FieldError::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        for key in ["data", "binaryData"] {
            if at(new, key) != at(old, key) {
                errors.push(FieldError::forbidden(key, "field is immutable when `immutable` is set"));
            }
        }
    }
}

pub(crate) fn role(object: &Value, errors: &mut Errors) {
    let cluster = text(object, "kind") == "ClusterRole";
    for (index, rule) in items(object, "rules").iter().enumerate() {
        let field = format!("rules[{index}]");
        if items(rule, "verbs").is_empty() {
            errors.push(FieldError::required(format!("{field}.verbs"), "verbs must contain at least one value"));
        }
        let paths = !items(rule, "nonResourceURLs").is_empty();
        if paths {
            if !cluster {
                let why = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(format!("{field}.nonResourceURLs"), at(rule, "nonResourceURLs"), why));
            }
            continue;
        }
        if items(rule, "apiGroups").is_empty() {
            errors.push(FieldError::required(
                format!("{field}.apiGroups"),
                "resource rules must supply at least one api group",
            ));
        }
        if items(rule, "resources").is_empty() {
            errors.push(FieldError::required(
                format!("{field}.resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
}

pub(crate) fn binding(object: &Value, errors: &mut Errors) {
    let cluster = text(object, "kind") == "ClusterRoleBinding";
    let kinds: &[&str] = if cluster { &["ClusterRole"] } else { &["Role", "ClusterRole"] };
    if text(object, "roleRef.apiGroup") != "rbac.authorization.k8s.io" {
        errors.push(FieldError::not_supported(
            "roleRef.apiGroup",
            at(object, "roleRef.apiGroup"),
            &["rbac.authorization.k8s.io"],
        ));
    }
    if !kinds.contains(&text(object, "roleRef.kind")) {
        errors.push(FieldError::not_supported("roleRef.kind", &json!(text(object, "roleRef.kind")), kinds));
    }
    if text(object, "roleRef.name").is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    for (index, subject) in items(object, "subjects").iter().enumerate() {
        let field = format!("subjects[{index}]");
        if text(subject, "name").is_empty() {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        }
        match text(subject, "kind") {
            "ServiceAccount" if text(subject, "namespace").is_empty() => {
                errors.push(FieldError::required(format!("{field}.namespace"), ""));
            }
            "ServiceAccount" | "User" | "Group" => {}
            _ => errors.push(FieldError::not_supported(
                format!("{field}.kind"),
                at(subject, "kind"),
                &["ServiceAccount", "User", "Group"],
            )),
        }
    }
}

pub(crate) fn binding_update(new: &Value, old: &Value, errors: &mut Errors) {
    if at(new, "roleRef") != at(old, "roleRef") {
        let part = |key: &str| at(new, &format!("roleRef.{key}"));
        let rendered =
            format!("{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}", part("apiGroup"), part("kind"), part("name"));
        errors.push(FieldError::invalid_rendered("roleRef", &rendered, "cannot change roleRef"));
    }
}

pub(crate) fn api_service(object: &Value, errors: &mut Errors) {
    let expected = format!("{}.{}", text(object, "spec.version"), text(object, "spec.group"));
    let name = text(object, "metadata.name");
    if name != expected {
        errors.push(FieldError::invalid(
            "metadata.name",
            &json!(name),
            &format!("must be `spec.version+\".\"+spec.group`: {expected:?}"),
        ));
    }
    for key in ["groupPriorityMinimum", "versionPriority"] {
        let value = at(object, &format!("spec.{key}"));
        let most = if key == "versionPriority" { 1000 } else { 20000 };
        if !value.as_i64().is_some_and(|value| (1..=most).contains(&value)) {
            let why = format!("must be positive and less than {most}");
            errors.push(FieldError::invalid(format!("spec.{key}"), value, &why));
        }
    }
}
