//! Responses in the requested format.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, WARNING};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{Asked, Body, State};
use crate::core::Written;
use crate::failure::Failure;
use crate::resources::Resource;
use crate::table::{self, Include};
use crate::value::text;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The formats of objects in responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Plain,
    Table,
    Metadata,
}

/// The best of the accepted formats.
pub(super) fn form(asked: &Asked) -> Result<Form, Failure> {
    let accept = asked.header(ACCEPT);
    if accept.is_empty() {
        return Ok(Form::Plain);
    }
    let mut known = false;
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameter =
            |name: &str| range.split(';').map(str::trim).find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        match (media, parameter("as"), parameter("v")) {
            (JSON | YAML | "application/*" | "*/*", None, _) => return Ok(Form::Plain),
            (JSON | YAML, Some("Table"), Some("v1")) => return Ok(Form::Table),
            (JSON | YAML, Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("v1")) => {
                return Ok(Form::Metadata);
            }
            (JSON | YAML | PROTOBUF, Some(_), _) => known = true,
            _ => {}
        }
    }
    let all = format!("{JSON}, {YAML}, {PROTOBUF}");
    Err(match known {
        true => Failure::new(406, "NotAcceptable", format!("only the following media types are accepted: {all}")),
        false => Failure::new(406, "NotAcceptable", format!("406: Not Acceptable\n\nAvailable representations: {all}"))
            .about(json!({})),
    })
}

/// The response as YAML, if the client prefers that.
pub(super) fn in_media(accept: &str, response: Response<Body>) -> Response<Body> {
    let media = accept.split(',').map(|range| range.split(';').next().unwrap_or_default().trim());
    let wanted = media.into_iter().find(|media| [JSON, YAML, "application/*", "*/*"].contains(media));
    let plain = response.headers().get(CONTENT_TYPE).is_some_and(|value| value == JSON);
    match (wanted, response.into_parts()) {
        (Some(YAML), (mut parts, Body::Full(body))) if plain => {
            let value: Value = serde_json::from_slice(&body).unwrap_or_default();
            parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(YAML));
            Response::from_parts(parts, Body::Full(yaml(&value).into()))
        }
        (_, (parts, body)) => Response::from_parts(parts, body),
    }
}

fn yaml(value: &Value) -> String {
    let options = serde_saphyr::ser_options! { compact_list_indent: true };
    // JSON values can always be written as YAML.
    serde_saphyr::to_string_with_options(value, options).unwrap_or_default()
}

fn include(asked: &Asked) -> Result<Include, Failure> {
    match asked.query.get("includeObject") {
        "None" => Ok(Include::None),
        "Object" => Ok(Include::Object),
        "" | "Metadata" => Ok(Include::Metadata),
        other => {
            let why = format!("Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty");
            Err(Failure::bad_request(format!("Unable to convert to Table as requested: includeObject: {why}")))
        }
    }
}

pub(super) fn bytes(code: u16, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::Full(body.into()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The response for unknown paths.
pub(super) fn page_not_found() -> Response<Body> {
    plain(404, "404 page not found\n")
}

pub(super) fn plain(code: u16, text: &'static str) -> Response<Body> {
    bytes(code, "text/plain; charset=utf-8", text)
}

pub(super) fn json(code: u16, value: &Value) -> Response<Body> {
    let mut body = Vec::with_capacity(1024);
    crate::store::write(&mut body, value);
    bytes(code, "application/json", body)
}

pub(super) fn failure(failure: &Failure) -> Response<Body> {
    let mut response = json(failure.code, &failure.to_status());
    if failure.code == 504 || failure.code == 429 {
        response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// An object in the requested format.
pub(super) fn object(asked: &Asked, resource: &Resource, code: u16, object: &Value) -> Result<Response<Body>, Failure> {
    Ok(match form(asked)? {
        Form::Plain => json(code, object),
        Form::Metadata => json(code, &table::partial(object)),
        Form::Table => {
            let metadata = json!({"resourceVersion": text(object, "metadata.resourceVersion")});
            json(code, &table::table(resource, std::slice::from_ref(object), metadata, include(asked)?, true))
        }
    })
}

/// The result of a write in the requested format, with warnings as headers.
pub(super) fn written(asked: &Asked, resource: &Resource, written: &Written) -> Result<Response<Body>, Failure> {
    let code = if written.created { 201 } else { 200 };
    let mut response = match &written.kept {
        // Already encoded for the store.
        Some(kept) if form(asked)? == Form::Plain => bytes(code, JSON, kept.clone()),
        _ => object(asked, resource, code, &written.object)?,
    };
    for warning in &written.warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    Ok(response)
}

/// An object of a watch in the requested format; the `first` table has the column definitions.
pub(super) fn watched(asked: &Asked, form: Form, resource: &Resource, object: &Value, first: bool) -> Value {
    match form {
        Form::Plain => object.clone(),
        Form::Metadata => table::partial(object),
        Form::Table => {
            let metadata = json!({"resourceVersion": text(object, "metadata.resourceVersion")});
            table::table(
                resource,
                std::slice::from_ref(object),
                metadata,
                include(asked).unwrap_or(Include::Metadata),
                first,
            )
        }
    }
}

/// A list in the requested format.
pub(super) fn list(
    state: &State,
    asked: &Asked,
    resource: &Resource,
    listed: &crate::core::Listed,
) -> Result<Response<Body>, Failure> {
    let value = |stored: &crate::store::Stored| state.core.seen_as(resource, stored.value());
    let values = || listed.objects.iter().map(value).collect::<Vec<_>>();
    match form(asked)? {
        Form::Table => Ok(json(200, &table::table(resource, &values(), listed.metadata(), include(asked)?, true))),
        Form::Metadata => {
            let items: Vec<_> = values().iter().map(table::partial).collect();
            let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": listed.metadata(), "items": items});
            Ok(json(200, &list))
        }
        Form::Plain if resource.alias.is_some() => {
            let (kind, version) = (&resource.list_kind, resource.api_version());
            let mut items = values();
            items.iter_mut().for_each(bare);
            Ok(json(200, &json!({"kind": kind, "apiVersion": version, "metadata": listed.metadata(), "items": items})))
        }
        Form::Plain => Ok(bytes(200, "application/json", plain_list(resource, listed))),
    }
}

/// An item of a built-in list has no `kind` and `apiVersion`: the list implies them.
pub(super) fn bare(item: &mut Value) {
    crate::value::remove(item, "kind");
    crate::value::remove(item, "apiVersion");
}

/// A list, joined from the bytes of its objects.
fn plain_list(resource: &Resource, listed: &crate::core::Listed) -> Vec<u8> {
    let size: usize = listed.objects.iter().map(|object| object.bytes.len() + 1).sum();
    let mut body = Vec::with_capacity(size + 256);
    let mut metadata = listed.metadata();
    if resource.custom.is_some() {
        crate::value::default_to(&mut metadata, "continue", "");
    }
    let (kind, version) = (&resource.list_kind, resource.api_version());
    let head = format!("{{\"kind\":{kind:?},\"apiVersion\":{version:?},\"metadata\":{metadata},\"items\":[");
    body.extend_from_slice(head.as_bytes());
    // Items of built-in lists have no `kind` and `apiVersion`: the list implies them.
    let prefix = match &resource.custom {
        None => format!("{{\"kind\":{:?},\"apiVersion\":{:?},", resource.kind, resource.api_version()),
        Some(custom) => format!("{{\"kind\":{:?},\"apiVersion\":{:?},", resource.kind, custom.stored),
    };
    for (index, object) in listed.objects.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        match object.bytes.strip_prefix(prefix.as_bytes()) {
            Some(rest) => {
                if resource.custom.is_some() {
                    let head = format!("{{\"kind\":{:?},\"apiVersion\":{:?},", resource.kind, resource.api_version());
                    body.extend_from_slice(head.as_bytes());
                } else {
                    body.push(b'{');
                }
                body.extend_from_slice(rest);
            }
            None => body.extend_from_slice(&object.bytes),
        }
    }
    body.extend_from_slice(b"]}\n");
    body
}
