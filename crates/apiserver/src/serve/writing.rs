//! Create, update, patch and delete.

use http::{Method, Response};
use serde_json::{Value, json};

use super::target::Place;
use super::{Asked, Body, State, Target, answer, reading};
use crate::core::{DeleteOptions, PatchKind, Strictness, Write, Written};
use crate::failure::{Failure, FieldError, Of};
use crate::resources::{QUESTIONS, Resource};
use crate::value::{at, items, set, text};

/// The longest name of a field manager.
const MANAGER: usize = 128;

pub(super) fn write(state: &State, asked: &Asked, body: &[u8]) -> Result<Response<Body>, Failure> {
    let Target::Resource(place) = &asked.target else { return Err(Failure::no_such_path()) };
    let question = QUESTIONS
        .iter()
        .find(|(group, plural, _, _)| *group == place.group && *plural == place.resource && place.version == "v1");
    if let Some((group, _, kind, _)) = question {
        if asked.method != Method::POST {
            return Err(Failure::method_not_allowed(Of { group: "", resource: "" }, asked.verb));
        }
        let review = reading::object(asked, body, kind, false)?.value;
        state.core.check_question(group, kind, &review)?;
        if *kind == "Binding" {
            let pods = state.core.builtin("", "pods")?;
            let name = text(&review, "metadata.name");
            return bind(state, &pods, &place.namespace, name, &review, &options(asked, "")?);
        }
        let answered = crate::auth::answer(&state.core, &state.rbac, &asked.user, kind, &place.namespace, review)?;
        return Ok(answer::json(201, &answered));
    }
    let resource = super::read::resource(state, place)?;
    let collection = place.name.is_empty();
    if !place.subresource.is_empty() {
        return below(state, asked, place, &resource, body);
    }
    // What is in a namespace is made and changed there.
    let located = !resource.namespaced || !place.namespace.is_empty();
    match (asked.method.as_str(), collection) {
        ("POST", true) if located => {
            let (object, write) = sent(asked, body, &resource, "")?;
            let namespace = if resource.namespaced { place.namespace.as_str() } else { "" };
            let Written { object, warnings, .. } = state.core.create(&resource, namespace, object, &write)?;
            answer::object(asked, &resource, 201, &object, &warnings)
        }
        ("PUT", false) if located => {
            let (object, write) = sent(asked, body, &resource, "")?;
            let Written { object, warnings, .. } =
                state.core.update(&resource, &place.namespace, &place.name, object, &write)?;
            answer::object(asked, &resource, 200, &object, &warnings)
        }
        ("PATCH", false) if located => patch(state, asked, place, &resource, body, ""),
        ("DELETE", false) if located => {
            let options = delete_options(asked, body)?;
            let object = state.core.delete(&resource, &place.namespace, &place.name, &options)?;
            answer::object(asked, &resource, 200, &object, &[])
        }
        ("DELETE", true) if located && resource.plural != "namespaces" => {
            let options = delete_options(asked, body)?;
            let list = super::read::options(asked, &resource)?;
            let gone = state.core.delete_collection(&resource, &place.namespace, &list, &options)?;
            let mut gone = gone;
            if resource.custom.is_none() {
                gone.iter_mut().for_each(answer::bare);
            }
            let metadata = json!({"resourceVersion": state.core.store.revision().to_string()});
            let list = json!({"kind": resource.list_kind, "apiVersion": resource.api_version(), "metadata": metadata, "items": gone});
            Ok(answer::json(200, &list))
        }
        _ => Err(Failure::method_not_allowed(Of { group: "", resource: "" }, asked.verb)),
    }
}

fn patch(
    state: &State,
    asked: &Asked,
    place: &Place,
    resource: &Resource,
    body: &[u8],
    subresource: &str,
) -> Result<Response<Body>, Failure> {
    let kind = match asked.content_type() {
        "application/json-patch+json" => PatchKind::Json,
        "application/merge-patch+json" => PatchKind::Merge,
        "application/strategic-merge-patch+json" => PatchKind::Strategic,
        "application/apply-patch+yaml" => PatchKind::Apply,
        _ => {
            let failure = Failure::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
            return Err(failure.about(json!({})));
        }
    };
    if kind != PatchKind::Apply && asked.query.flag("force") {
        let errors = [FieldError::forbidden("force", "may not be specified for non-apply patch")];
        return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &errors));
    }
    let read = if kind == PatchKind::Apply { reading::configuration(body)? } else { reading::patch(body)? };
    let mut write = Write { twice: read.twice, ..options(asked, subresource)? };
    if kind == PatchKind::Apply && asked.query.get("fieldManager").is_empty() {
        write.manager = String::new();
    }
    let Written { object, created, warnings } =
        state.core.patch(resource, &place.namespace, &place.name, kind, &read.value, &write)?;
    answer::object(asked, resource, if created { 201 } else { 200 }, &object, &warnings)
}

/// Subresources.
fn below(
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
            let Written { object, warnings, .. } = core.update(resource, namespace, name, object, &write)?;
            answer::object(asked, resource, 200, &object, &warnings)
        }
        ("status", "PATCH") => patch(state, asked, place, resource, body, "status"),
        ("scale", "PUT" | "PATCH") => {
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
                let errors =
                    [FieldError::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0")];
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
            let account = core.get(resource, namespace, name)?.value();
            Ok(answer::json(201, &core.token_request(&account, request)?))
        }
        _ => Err(Failure::method_not_allowed(Of { group: "", resource: "" }, asked.verb)),
    }
}

/// Puts a Pod on a Node.
fn bind(
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

/// The scale of a workload.
pub(super) fn scale_of(resource: &Resource, object: &Value) -> Value {
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

/// The object that was sent, and how to write it.
fn sent(asked: &Asked, body: &[u8], resource: &Resource, subresource: &str) -> Result<(Value, Write), Failure> {
    let sent = reading::object(asked, body, &resource.kind, resource.custom.is_some())?;
    Ok((sent.value, Write { twice: sent.twice, ..options(asked, subresource)? }))
}

fn options(asked: &Asked, subresource: &str) -> Result<Write, Failure> {
    let query = &asked.query;
    let kind = match asked.verb {
        "create" => "CreateOptions",
        "patch" => "PatchOptions",
        _ => "UpdateOptions",
    };
    let strictness = match query.get("fieldValidation") {
        "Strict" => Strictness::Strict,
        "Ignore" => Strictness::Ignore,
        "" | "Warn" => Strictness::Warn,
        other => {
            let errors =
                [FieldError::not_supported("fieldValidation", &other.into(), &["", "Ignore", "Strict", "Warn"])];
            return Err(Failure::invalid("meta.k8s.io", kind, "", &errors));
        }
    };
    if query.get("fieldManager").len() > MANAGER {
        return Err(Failure::invalid("meta.k8s.io", kind, "", &[FieldError::too_long("fieldManager", MANAGER)]));
    }
    Ok(Write {
        manager: asked.manager(),
        dry_run: dry_run(query.all("dryRun"), kind)?,
        strictness,
        force: query.flag("force"),
        subresource: subresource.to_owned(),
        twice: Vec::new(),
    })
}

fn dry_run<'a>(mut values: impl Iterator<Item = &'a str>, kind: &str) -> Result<bool, Failure> {
    values.try_fold(false, |_, value| match value {
        "All" => Ok(true),
        other => {
            let errors = [FieldError::not_supported("dryRun", &json!([other]), &["All"])];
            Err(Failure::invalid("meta.k8s.io", kind, "", &errors))
        }
    })
}

fn delete_options(asked: &Asked, body: &[u8]) -> Result<DeleteOptions, Failure> {
    let given = reading::delete_options(asked, body)?;
    let kind = text(&given, "kind");
    if !["", "DeleteOptions"].contains(&kind) {
        let version = text(&given, "apiVersion");
        let scheme = "pkg/runtime/scheme.go:111";
        let why = format!("no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}");
        return Err(Failure::bad_request(why));
    }
    let query = &asked.query;
    let own = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let mut propagation = own(text(&given, "propagationPolicy")).or_else(|| own(query.get("propagationPolicy")));
    let orphan = match (at(&given, "orphanDependents"), query.get("orphanDependents")) {
        (Value::Bool(orphan), _) => Some(*orphan),
        (_, "") => None,
        (_, text) => Some(text == "true"),
    };
    if let (Some(_), Some(policy)) = (orphan, &propagation) {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        let errors = [FieldError::invalid("propagationPolicy", &json!(policy), why)];
        return Err(Failure::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
    }
    if orphan == Some(true) {
        propagation = Some("Orphan".to_owned());
    }
    if let Some(other) =
        propagation.as_deref().filter(|policy| !["Background", "Foreground", "Orphan"].contains(policy))
    {
        let known = &["Foreground", "Background", "Orphan", "nil"];
        let errors = [FieldError::not_supported("propagationPolicy", &other.into(), known)];
        return Err(Failure::invalid("meta.k8s.io", "DeleteOptions", "", &errors));
    }
    let mut runs = query.all("dryRun").chain(items(&given, "dryRun").iter().filter_map(Value::as_str));
    Ok(DeleteOptions {
        grace_seconds: at(&given, "gracePeriodSeconds").as_i64().or(query.number("gracePeriodSeconds")?),
        propagation,
        uid: own(text(&given, "preconditions.uid")),
        resource_version: own(text(&given, "preconditions.resourceVersion")),
        dry_run: dry_run(&mut runs, "DeleteOptions")?,
    })
}
