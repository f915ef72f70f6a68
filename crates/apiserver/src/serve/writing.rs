//! Create, update, patch and delete.

use http::{Method, Response};
use serde_json::{Value, json};

use super::target::Place;
use super::{Asked, Body, State, Target, answer};
use crate::core::{DeleteOptions, PatchKind, Strictness, Write, Written};
use crate::failure::{Failure, FieldError, Of};
use crate::resources::{QUESTIONS, Resource};
use crate::value::{at, items, set, text};

pub(super) fn write(state: &State, asked: &Asked, body: &[u8]) -> Result<Response<Body>, Failure> {
    let Target::Resource(place) = &asked.target else { return Err(Failure::no_such_path()) };
    let question = QUESTIONS
        .iter()
        .find(|(group, plural, _, _)| *group == place.group && *plural == place.resource && place.version == "v1");
    if let Some((_, _, kind, _)) = question {
        if asked.method != Method::POST {
            return Err(Failure::method_not_allowed(Of { group: "", resource: "" }, asked.verb));
        }
        let review = parse(asked, body, kind)?;
        let answered = crate::auth::answer(&state.core, &state.rbac, &asked.user, kind, &place.namespace, review)?;
        return Ok(answer::json(201, &answered));
    }
    if place.group.is_empty() && place.resource == "bindings" && asked.method == Method::POST && place.name.is_empty() {
        let binding = parse(asked, body, "Binding")?;
        let pods = state.core.builtin("", "pods")?;
        let name = text(&binding, "metadata.name");
        return bind(state, &pods, &place.namespace, name, &binding, &options(asked, "")?);
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
            let object = parse(asked, body, &resource.kind)?;
            let write = options(asked, "")?;
            let namespace = if resource.namespaced { place.namespace.as_str() } else { "" };
            let Written { object, warnings, .. } = state.core.create(&resource, namespace, object, &write)?;
            answer::object(asked, &resource, 201, &object, &warnings)
        }
        ("PUT", false) if located => {
            let object = parse(asked, body, &resource.kind)?;
            let write = options(asked, "")?;
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
                for object in &mut gone {
                    crate::value::remove(object, "kind");
                    crate::value::remove(object, "apiVersion");
                }
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
        other => {
            let known = if resource.custom.is_some() { "" } else { "application/strategic-merge-patch+json, " };
            let why = format!(
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, {known}application/apply-patch+yaml"
            );
            let _ = other;
            return Err(Failure::new(415, "UnsupportedMediaType", why));
        }
    };
    if kind != PatchKind::Apply && asked.query.flag("force") {
        let errors = [FieldError::forbidden("force", "may not be specified for non-apply patch")];
        return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &errors));
    }
    let value: Value =
        serde_json::from_slice(body).map_err(|error| Failure::bad_request(super::body::syntax(body, &error)))?;
    let mut write = options(asked, subresource)?;
    if kind == PatchKind::Apply && asked.query.get("fieldManager").is_empty() {
        write.manager = String::new();
    }
    let Written { object, created, warnings } =
        state.core.patch(resource, &place.namespace, &place.name, kind, &value, &write)?;
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
            let object = parse(asked, body, &resource.kind)?;
            let write = options(asked, subresource)?;
            let Written { object, warnings, .. } = core.update(resource, namespace, name, object, &write)?;
            answer::object(asked, resource, 200, &object, &warnings)
        }
        ("status", "PATCH") => patch(state, asked, place, resource, body, "status"),
        ("scale", "PUT" | "PATCH") => {
            let current = scale_of(resource, &core.get(resource, namespace, name)?.value());
            let mut scale = if asked.method == Method::PATCH { parse_any(body)? } else { parse(asked, body, "Scale")? };
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
            let write = options(asked, "")?;
            let written =
                core.modify(resource, namespace, name, &Write { subresource: String::new(), ..write }, true, |old| {
                    let mut new = old.clone();
                    set(&mut new, &path, replicas);
                    Ok(new)
                })?;
            Ok(answer::json(200, &scale_of(resource, &written.object)))
        }
        ("binding", "POST") => {
            let binding = parse(asked, body, "Binding")?;
            bind(state, resource, namespace, name, &binding, &options(asked, "")?)
        }
        ("eviction", "POST") => {
            let eviction = parse(asked, body, "Eviction")?;
            let mut how = delete_options(asked, at(&eviction, "deleteOptions").to_string().as_bytes())?;
            how.dry_run |= asked.query.get("dryRun") == "All";
            core.delete(resource, namespace, name, &how)?;
            Ok(answer::json(201, &success()))
        }
        ("token", "POST") => {
            let mut request = parse(asked, body, "TokenRequest")?;
            let account = core.get(resource, namespace, name)?.value();
            if at(&request, "spec.expirationSeconds").as_i64().is_some_and(|seconds| seconds < 600) {
                let seconds = at(&request, "spec.expirationSeconds");
                let errors = [FieldError::invalid(
                    "spec.expirationSeconds",
                    seconds,
                    "may not specify a duration less than 10 minutes",
                )];
                return Err(Failure::invalid("authentication.k8s.io", "TokenRequest", "", &errors));
            }
            let (token, until) = core.token(&account, &request)?;
            set(&mut request, "kind", "TokenRequest");
            set(&mut request, "apiVersion", "authentication.k8s.io/v1");
            set(
                &mut request,
                "metadata",
                json!({"name": name, "namespace": namespace, "creationTimestamp": crate::moment::now()}),
            );
            if items(&request, "spec.audiences").is_empty() {
                set(&mut request, "spec.audiences", json!(["https://kubernetes.default.svc"]));
            }
            crate::value::default_to(&mut request, "spec.expirationSeconds", 3600);
            crate::value::default_to(&mut request, "spec.boundObjectRef", Value::Null);
            set(&mut request, "status", json!({"token": token, "expirationTimestamp": until}));
            Ok(answer::json(201, &request))
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
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": number(path("specReplicasPath", "spec.replicas"))},
        "status": {"replicas": number(path("statusReplicasPath", "status.replicas")), "selector": selector},
    })
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
    Ok(Write {
        manager: asked.manager(),
        dry_run: dry_run(query.all("dryRun"), kind)?,
        strictness,
        force: query.flag("force"),
        subresource: subresource.to_owned(),
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
    let given = match body.trim_ascii() {
        b"" | b"null" => json!({}),
        _ if asked.content_type() == "application/vnd.kubernetes.protobuf" => {
            let schema = crate::schema::Schema::builtin();
            crate::schema::from_protobuf(schema, |_, _| schema.named("meta.v1.DeleteOptions"), body).unwrap_or_default()
        }
        body => {
            let unreadable = |failure: Failure| {
                Failure::bad_request(format!("couldn't get version/kind; json parse error: {}", failure.message))
            };
            parse_any(body).map_err(unreadable)?
        }
    };
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

/// Reads the body of a request that must hold an object.
fn parse(asked: &Asked, body: &[u8], kind: &str) -> Result<Value, Failure> {
    let media = asked.content_type();
    if media == "application/vnd.kubernetes.protobuf" {
        let schema = crate::schema::Schema::builtin();
        let shape_of = |api_version: &str, kind: &str| {
            let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
            let package = group.split('.').next().unwrap_or_default();
            schema.named(&format!("{}.{version}.{kind}", if package.is_empty() { "core" } else { package }))
        };
        let object = crate::schema::from_protobuf(schema, shape_of, body);
        return object.ok_or_else(|| {
            Failure::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): it is not protobuf"
            ))
        });
    }
    if !matches!(media, "" | "application/json" | "*/*") {
        let why = "the body of the request was in an unknown format - accepted media types include: application/json, \
            application/yaml, application/vnd.kubernetes.protobuf, application/cbor";
        return Err(Failure::new(415, "UnsupportedMediaType", why));
    }
    serde_json::from_slice(body).map_err(|error| {
        let syntax = super::body::syntax(body, &error);
        let why = format!("couldn't get version/kind; json parse error: {syntax}");
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({})",
            super::body::dump(body)
        ))
    })
}

fn parse_any(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|error| Failure::bad_request(super::body::syntax(body, &error)))
}
