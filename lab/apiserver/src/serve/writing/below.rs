//! Subresources: status, scale, binding and eviction of Pods, tokens of ServiceAccounts.

use http::{Method, Response};
use serde_json::{Value, json};

use super::options::{delete_options, options, sent};
use super::patch;
use crate::core::Write;
use crate::failure::{Failure, FieldError, Of};
use crate::objects::Object;
use crate::resources::Resource;
use crate::serve::target::Place;
use crate::serve::{Asked, Body, State, answer, reading};
use crate::value::{at, items, set, text};

/// Writes to a subresource.
pub(super) fn below(
    state: &State,
    asked: &Asked,
    place: &Place,
    resource: &Resource,
    body: &[u8],
) -> Result<Response<Body>, Failure> {
    let (core, namespace, name) = (&state.core, place.namespace.as_str(), place.name.as_str());
    if !resource.has(&place.subresource) {
        return Err(Failure::no_such_path());
    }
    match (place.subresource.as_str(), asked.method.as_str()) {
        (subresource @ ("status" | "finalize"), "PUT") => {
            let (object, write) = sent(asked, body, resource, subresource)?;
            answer::written(asked, resource, &core.update(resource, namespace, name, object, &write)?)
        }
        ("status", "PATCH") => patch(state, asked, place, resource, body, "status"),
        ("scale", "PUT" | "PATCH") => scale(state, asked, place, resource, body),
        ("binding", "POST") => {
            let binding = reading::object(asked, body, "Binding", false)?.value;
            bind(state, resource, namespace, name, &binding, &options(asked, "")?)
        }
        ("eviction", "POST") => {
            let eviction = reading::object(asked, body, "Eviction", false)?.value;
            let mut how = delete_options(asked, at(&eviction, "deleteOptions").to_string().as_bytes())?;
            how.dry_run |= asked.query.get("dryRun") == "All";
            core.delete(resource, namespace, name, &how)?;
            Ok(answer::json(201, &success()))
        }
        ("token", "POST") => {
            let request = reading::object(asked, body, "TokenRequest", false)?.value;
            let Object { metadata } = core.get(resource, namespace, name)?.read().unwrap_or_default();
            Ok(answer::json(201, &core.token_request(&metadata, request)?))
        }
        _ => Err(Failure::method_not_allowed(Of { group: "", resource: "" }, asked.verb)),
    }
}

/// Sets the number of replicas.
fn scale(
    state: &State,
    asked: &Asked,
    place: &Place,
    resource: &Resource,
    body: &[u8],
) -> Result<Response<Body>, Failure> {
    let (core, namespace, name) = (&state.core, place.namespace.as_str(), place.name.as_str());
    let current = scale_of(resource, &core.get(resource, namespace, name)?.value());
    let mut scale = match asked.method == Method::PATCH {
        true => reading::patch(body)?.value,
        false => reading::object(asked, body, "Scale", false)?.value,
    };
    if asked.method == Method::PATCH {
        let mut patched = current.clone();
        match asked.content_type() {
            "application/json-patch+json" => crate::patch::json(&mut patched, &scale)?,
            _ => crate::patch::merge(&mut patched, &scale),
        }
        scale = patched;
    }
    let path = match &resource.custom {
        Some(custom) => text(&custom.scale, "specReplicasPath").trim_start_matches('.').to_owned(),
        None => "spec.replicas".to_owned(),
    };
    let replicas = at(&scale, "spec.replicas").as_i64().unwrap_or(0);
    if replicas < 0 {
        let errors = [FieldError::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0")];
        return Err(Failure::invalid("autoscaling", "Scale", name, &errors));
    }
    let write = options(asked, "scale")?;
    let written = core.modify(resource, namespace, name, &write, true, |old| {
        let mut new = old.clone();
        set(&mut new, &path, replicas);
        Ok(new)
    })?;
    Ok(answer::json(200, &scale_of(resource, &written.object)))
}

/// Assigns a Pod to a Node.
pub(super) fn bind(
    state: &State,
    resource: &Resource,
    namespace: &str,
    name: &str,
    binding: &Value,
    write: &Write,
) -> Result<Response<Body>, Failure> {
    let node = text(binding, "target.name").to_owned();
    if node.is_empty() {
        return Err(Failure::new(500, "", "target.name: Required value"));
    }
    let write = Write { subresource: "binding".to_owned(), ..write.clone() };
    state.core.modify(resource, namespace, name, &write, false, |old| {
        let there = text(old, "spec.nodeName");
        if !at(old, "metadata.deletionTimestamp").is_null() {
            return Err(Failure::conflict(Of { group: "", resource: "pods/binding" }, name, &format!("pod {name} is being deleted, cannot be assigned to a host")));
        }
        if !there.is_empty() {
            return Err(Failure::conflict(Of { group: "", resource: "pods/binding" }, name, &format!("pod {name} is already assigned to node {there:?}")));
        }
        let mut new = old.clone();
        set(&mut new, "spec.nodeName", node.as_str());
        state.core.place(&mut new);
        let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": crate::moment::now()});
        let mut conditions = items(&new, "status.conditions").to_vec();
        conditions.retain(|condition| text(condition, "type") != "PodScheduled");
        conditions.push(condition);
        set(&mut new, "status.conditions", conditions);
        Ok(new)
    })?;
    Ok(answer::json(201, &success()))
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// The `Scale` object of a workload.
pub(in crate::serve) fn scale_of(resource: &Resource, object: &Value) -> Value {
    let path = |name: &str, otherwise: &str| match &resource.custom {
        Some(custom) => text(&custom.scale, name).trim_start_matches('.').to_owned(),
        None => otherwise.to_owned(),
    };
    let number = |path: String| at(object, &path).as_i64().unwrap_or(0);
    let selector = at(object, &path("labelSelectorPath", "spec.selector"));
    let selector = match selector.as_str() {
        Some(text) => text.to_owned(),
        None => crate::table::selector_text(selector),
    };
    let mut metadata = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        crate::value::copy(at(object, "metadata"), &mut metadata, key);
    }
    let mut status = json!({"replicas": number(path("statusReplicasPath", "status.replicas"))});
    if !selector.is_empty() {
        set(&mut status, "selector", selector);
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": number(path("specReplicasPath", "spec.replicas"))}, "status": status,
    })
}
