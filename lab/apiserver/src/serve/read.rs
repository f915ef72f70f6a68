//! Get, list, and the start of a watch.

use std::sync::Arc;

use http::Response;

use super::target::Place;
use super::{Asked, Body, State, Target, answer, watching};
use crate::core::ListOptions;
use crate::failure::{Failure, Of};
use crate::resources::{QUESTIONS, Resource};
use crate::selector::{Fields, Labels, Selector};

/// The resource that a path names.
pub(super) fn resource(state: &State, place: &Place) -> Result<Arc<Resource>, Failure> {
    let registry = state.core.registry();
    match registry.get(&place.group, &place.version, &place.resource) {
        Some(resource) => Ok(resource.clone()),
        None => Err(Failure::no_such_path()),
    }
}

/// The options of a list, from the query parameters.
pub(super) fn options(asked: &Asked, resource: &Resource) -> Result<ListOptions, Failure> {
    let query = &asked.query;
    let only = match (resource.fields.is_empty(), resource.namespaced) {
        (false, _) => "",
        (true, true) => "\"metadata.name\", \"metadata.namespace\"",
        (true, false) => "\"metadata.name\"",
    };
    let labels = Labels::parse(query.get("labelSelector"))?;
    let fields = Fields::parse(query.get("fieldSelector"), only, |path| resource.selectable(path))?;
    let limit = query.number("limit")?.unwrap_or(0);
    let options = ListOptions {
        selector: Selector { labels, fields },
        limit: usize::try_from(limit).unwrap_or(0),
        continue_token: query.get("continue").to_owned(),
        resource_version: query.get("resourceVersion").to_owned(),
        version_match: query.get("resourceVersionMatch").to_owned(),
    };
    version_match(asked, &options)?;
    Ok(options)
}

fn version_match(asked: &Asked, options: &ListOptions) -> Result<(), Failure> {
    if asked.verb == "watch" {
        return Ok(());
    }
    let invalid =
        |errors: &[crate::failure::FieldError]| Err(Failure::invalid("meta.k8s.io", "ListOptions", "", errors));
    use crate::failure::FieldError;
    let (given, version) = (options.version_match.as_str(), options.resource_version.as_str());
    if given.is_empty() {
        if !options.continue_token.is_empty() && !version.is_empty() && version != "0" {
            return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
        }
        return Ok(());
    }
    if !options.continue_token.is_empty() {
        return invalid(&[FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden when continue is provided",
        )]);
    }
    if version.is_empty() {
        let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
        return invalid(&[FieldError::forbidden("resourceVersionMatch", why)]);
    }
    if !["Exact", "NotOlderThan"].contains(&given) {
        return invalid(&[FieldError::not_supported(
            "resourceVersionMatch",
            &given.into(),
            &["Exact", "NotOlderThan", ""],
        )]);
    }
    if given == "Exact" && version == "0" {
        let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
        return invalid(&[FieldError::forbidden("resourceVersionMatch", why)]);
    }
    Ok(())
}

pub(super) fn get(state: &Arc<State>, asked: &Asked) -> Result<Response<Body>, Failure> {
    let Target::Resource(place) = &asked.target else { return Err(Failure::no_such_path()) };
    if QUESTIONS.iter().any(|(group, plural, _, _)| *group == place.group && *plural == place.resource) {
        return Err(Failure::method_not_allowed(Of { group: "", resource: "" }, "get"));
    }
    let resource = resource(state, place)?;
    if !place.namespace.is_empty() && !resource.namespaced && resource.plural != "namespaces" {
        return Err(Failure::no_such_path());
    }
    let form = answer::form(asked)?;
    if asked.verb == "watch" {
        return watching::watch(state, asked, place, resource, form);
    }
    if place.name.is_empty() {
        let options = options(asked, &resource)?;
        let listed = state.core.list(&resource, &place.namespace, &options)?;
        return answer::list(state, asked, &resource, &listed);
    }
    match place.subresource.as_str() {
        "" => {}
        "status" if resource.has("status") => {}
        "scale" if resource.has("scale") => {
            let object = state.core.get(&resource, &place.namespace, &place.name)?.value();
            return Ok(answer::json(200, &super::writing::scale_of(&resource, &object)));
        }
        subresource if resource.has(subresource) => {
            return Err(Failure::method_not_allowed(Of { group: "", resource: "" }, "get"));
        }
        _ if resource.custom.is_some() => return Err(Failure::not_found(resource.id(), &place.name)),
        _ => return Err(Failure::no_such_path()),
    }
    let stored = state.core.get(&resource, &place.namespace, &place.name)?;
    if form == answer::Form::Plain && resource.as_kept() {
        return Ok(answer::bytes(200, "application/json", stored.bytes));
    }
    answer::object(asked, &resource, 200, &state.core.seen_as(&resource, stored.value()))
}
