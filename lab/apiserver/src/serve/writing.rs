//! Create, update, patch and delete.

use http::{Method, Response};
use serde_json::json;

use super::target::Place;
use super::{Asked, Body, State, Target, answer, reading};
use crate::core::{PatchKind, Write};
use crate::failure::{Failure, FieldError, Of};
use crate::resources::{QUESTIONS, Resource};
use crate::value::text;

mod below;
mod options;
pub(super) use below::scale_of;
use below::{below, bind};
use options::{delete_options, options, sent};

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
    // Namespaced objects are written only below their namespace.
    let located = !resource.namespaced || !place.namespace.is_empty();
    match (asked.method.as_str(), collection) {
        ("POST", true) if located => {
            let (object, write) = sent(asked, body, &resource, "")?;
            let namespace = if resource.namespaced { place.namespace.as_str() } else { "" };
            answer::written(asked, &resource, &state.core.create(&resource, namespace, object, &write)?)
        }
        ("PUT", false) if located => {
            let (object, write) = sent(asked, body, &resource, "")?;
            let written = state.core.update(&resource, &place.namespace, &place.name, object, &write)?;
            answer::written(asked, &resource, &written)
        }
        ("PATCH", false) if located => patch(state, asked, place, &resource, body, ""),
        ("DELETE", false) if located => {
            let options = delete_options(asked, body)?;
            let object = state.core.delete(&resource, &place.namespace, &place.name, &options)?;
            answer::object(asked, &resource, 200, &object)
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
    loop {
        let read = if kind == PatchKind::Apply { reading::configuration(body)? } else { reading::patch(body)? };
        let mut write = Write { duplicates: read.duplicates, ..options(asked, subresource)? };
        if kind == PatchKind::Apply && asked.query.get("fieldManager").is_empty() {
            write.manager = String::new();
        }
        match state.core.patch(resource, &place.namespace, &place.name, kind, read.value, &write) {
            Err(failure) if kind == PatchKind::Apply && failure.lost_creation_race() => {}
            result => return answer::written(asked, resource, &result?),
        }
    }
}
