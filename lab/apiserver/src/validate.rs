//! Validation of built-in kinds, with the messages of the real server.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::failure::FieldError;
use crate::names::{self, NameRule};
use crate::value::{at, items, text};

mod config;
mod event;
mod node;
mod pod;
mod policy;
mod service;
mod workload;
pub(crate) use config::{api_service, binding, binding_update, config_map, role, secret, secret_update};
pub(crate) use event::{event, new_event};
pub(crate) use node::{lease, node, node_update};
pub(crate) use pod::{pod, pod_update, template};
pub(crate) use policy::{endpoint_slice, endpoint_slice_update, network_policy};
pub(crate) use service::{service, service_update, service_warnings};
pub(crate) use workload::{selector_update, workload};

const CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Validation errors of an object.
pub(crate) type Errors = Vec<FieldError>;

/// For kinds without validation.
pub(crate) fn none(_: &Value, _: &mut Errors) {}

/// For kinds without validation of changes.
pub(crate) fn no_update(_: &Value, _: &Value, _: &mut Errors) {}

/// For kinds without warnings.
pub(crate) fn no_warnings(_: &Value) -> Vec<String> {
    Vec::new()
}

/// Validates the metadata that all objects share.
pub(crate) fn metadata(object: &Value, namespaced: bool, rule: NameRule, errors: &mut Errors) {
    let (name, prefix) = (text(object, "metadata.name"), text(object, "metadata.generateName"));
    if !prefix.is_empty() {
        for why in rule.check(prefix, true) {
            errors.push(FieldError::invalid("metadata.generateName", &json!(prefix), &why));
        }
    }
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        for why in rule.check(name, false) {
            errors.push(FieldError::invalid("metadata.name", &json!(name), &why));
        }
    }
    let namespace = text(object, "metadata.namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required("metadata.namespace", "")),
        (true, false) => {
            for why in names::label(namespace) {
                errors.push(FieldError::invalid("metadata.namespace", &json!(namespace), &why));
            }
        }
        (false, false) => {
            errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
        }
        (false, true) => {}
    }
    labels(at(object, "metadata.labels"), "metadata.labels", errors);
    annotations(at(object, "metadata.annotations"), errors);
    for owner in items(object, "metadata.ownerReferences") {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, key).is_empty() {
                let why = if key == "apiVersion" { "version must not be empty" } else { "must not be empty" };
                errors.push(FieldError::invalid(format!("metadata.ownerReferences.{key}"), &json!(""), why));
            }
        }
    }
    let owners = items(object, "metadata.ownerReferences");
    let mut controllers = owners.iter().filter(|owner| at(owner, "controller") == true);
    if let (Some(one), Some(other)) = (controllers.next(), controllers.next()) {
        let rendered: Vec<_> = owners.iter().map(render_owner).collect();
        let [one, other] = [one, other].map(|owner| format!("{}/{}", text(owner, "kind"), text(owner, "name")));
        let what = "Only one reference can have Controller set to true. Found \"true\" in references for";
        let why = &format!("{what} {one} and {other}");
        errors.push(FieldError::invalid_rendered(
            "metadata.ownerReferences",
            &format!("[{}]", rendered.join(",")),
            why,
        ));
    }
    for finalizer in items(object, "metadata.finalizers") {
        for why in names::qualified_name(finalizer.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid("metadata.finalizers", finalizer, &why));
        }
    }
    for (index, finalizer) in items(object, "metadata.finalizers").iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        if !name.contains('/') && !matches!(name, "orphan" | "foregroundDeletion" | "kubernetes") {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(format!("metadata.finalizers[{index}]"), finalizer, why));
        }
    }
}

/// An owner reference in the format of Go: in the order of its fields.
fn render_owner(owner: &Value) -> String {
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"].into_iter();
    let given = fields.filter_map(|key| Some(format!("{key:?}:{}", owner.get(key)?)));
    format!("{{{}}}", given.collect::<Vec<_>>().join(","))
}

/// Validates labels at any path.
pub(crate) fn labels(labels: &Value, field: &str, errors: &mut Errors) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        for why in names::label_key(key) {
            errors.push(FieldError::invalid(field, &json!(key), &why));
        }
        for why in names::label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(field, value, &why));
        }
    }
}

fn annotations(annotations: &Value, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        for why in names::qualified_name(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", &json!(key), &why));
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > 256 * 1024 {
        errors.push(FieldError::too_long("metadata.annotations", 256 * 1024));
    }
}

/// Validates the immutable fields of an object's metadata.
pub(crate) fn metadata_update(new: &Value, old: &Value, errors: &mut Errors) {
    for key in ["name", "namespace", "uid", "creationTimestamp"] {
        let path = format!("metadata.{key}");
        if at(new, &path) != at(old, &path) {
            errors.push(immutable(&path, at(new, &path)));
        }
    }
}

/// An object that is being deleted gets no new finalizers.
pub(crate) fn no_new_finalizers(new: &Value, old: &Value, errors: &mut Errors) {
    let before = items(old, "metadata.finalizers");
    let added: Vec<_> = items(new, "metadata.finalizers")
        .iter()
        .filter(|finalizer| !before.contains(finalizer))
        .map(Value::to_string)
        .collect();
    if !at(old, "metadata.deletionTimestamp").is_null() && !added.is_empty() {
        let why = "no new finalizers can be added if the object is being deleted, found new finalizers";
        let error = FieldError::forbidden("metadata.finalizers", &format!("{why} []string{{{}}}", added.join(", ")));
        // The real server validates twice, and reports the cause twice.
        errors.extend([error.clone(), error]);
    }
}

/// The error for a changed immutable field.
pub(crate) fn immutable(field: &str, value: &Value) -> FieldError {
    FieldError::invalid(field, value, "field is immutable")
}

/// Validates a label selector.
pub(crate) fn label_selector(selector: &Value, field: &str, errors: &mut Errors) {
    labels(at(selector, "matchLabels"), &format!("{field}.matchLabels"), errors);
    for (index, term) in items(selector, "matchExpressions").iter().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        let none = items(term, "values").is_empty();
        match text(term, "operator") {
            "In" | "NotIn" if none => {
                let why = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(format!("{field}.values"), why));
            }
            "Exists" | "DoesNotExist" if !none => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(format!("{field}.values"), why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(FieldError::invalid(
                format!("{field}.operator"),
                at(term, "operator"),
                "not a valid selector operator",
            )),
        }
        for why in names::qualified_name(text(term, "key")) {
            errors.push(FieldError::invalid(format!("{field}.key"), at(term, "key"), &why));
        }
        for (value_index, value) in items(term, "values").iter().enumerate() {
            for why in names::label_value(value.as_str().unwrap_or_default()) {
                errors.push(FieldError::invalid(format!("{field}.values[{value_index}]"), value, &why));
            }
        }
    }
}

/// Parses an address; reports an invalid one.
pub(crate) fn address_of(value: &Value, field: impl Into<String>, errors: &mut Errors) -> Option<IpAddr> {
    let address = value.as_str().unwrap_or_default().parse().ok();
    if address.is_none() {
        let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid(field, value, why));
    }
    address
}

/// Addresses of endpoints must not be loopback, link-local, multicast or unspecified.
pub(crate) fn ordinary(address: IpAddr, value: &Value, field: &str, errors: &mut Errors) {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let link_multicast = match address {
        IpAddr::V4(address) => address.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(address) => address.segments().first().is_some_and(|first| first & 0xff0f == 0xff02),
    };
    if address.is_unspecified() {
        errors.push(FieldError::invalid(field, value, &format!("may not be unspecified ({address})")));
    }
    if address.is_loopback() {
        errors.push(FieldError::invalid(field, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)"));
    }
    if link_local {
        errors.push(FieldError::invalid(
            field,
            value,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ));
    }
    if link_multicast {
        let why = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        errors.push(FieldError::invalid(field, value, why));
    }
}

/// Validates a port number.
pub(crate) fn port(value: &Value, field: impl Into<String>, errors: &mut Errors) {
    if !value.as_i64().is_some_and(|port| (1..=65535).contains(&port)) {
        errors.push(FieldError::invalid(field, value, "must be between 1 and 65535, inclusive"));
    }
}

/// Validates a port number or name.
pub(crate) fn port_or_name(value: &Value, field: &str, errors: &mut Errors) {
    match value.as_str() {
        None => port(value, field, errors),
        Some(name) => {
            for why in names::port_name(name) {
                errors.push(FieldError::invalid(field, value, &why));
            }
        }
    }
}

/// Validates that a string is one of a few.
pub(crate) fn one_of(value: &Value, field: impl Into<String>, values: &[&str], errors: &mut Errors) {
    let field = field.into();
    match value.as_str().unwrap_or_default() {
        "" => errors.push(FieldError::required(field, "")),
        text if !values.contains(&text) => errors.push(FieldError::not_supported(field, value, values)),
        _ => {}
    }
}
