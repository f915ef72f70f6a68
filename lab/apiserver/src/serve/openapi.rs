//! OpenAPI documents for `kubectl apply` and `kubectl explain`.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Response;
use http::header::ACCEPT;
use serde_json::{Map, Value, json};

use super::{Asked, Body, answer};
use crate::core::Registry;
use crate::failure::Failure;
use crate::resources::Resource;
use crate::schema::{ListKind, MapKind, Schema, Shape};

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// OpenAPI v2 in JSON; for clients that accept only protobuf, an empty document.
pub(super) fn v2(registry: &Registry, asked: &Asked) -> Result<Response<Body>, Failure> {
    let accept = asked.header(ACCEPT);
    if accept.is_empty() || accept.contains("application/json") || accept.contains("*/*") {
        let resources: Vec<_> = registry.resources.values().cloned().collect();
        let (_, definitions) = described(&resources, DEFINITIONS);
        let info = json!({"title": "Kubernetes", "version": super::discovery::VERSION});
        return Ok(answer::json(
            200,
            &json!({"swagger": "2.0", "info": info, "paths": {}, "definitions": definitions}),
        ));
    }
    if accept.contains("proto-openapi.spec.v2") {
        return Ok(answer::bytes(200, PROTOBUF, empty_protobuf()));
    }
    Err(Failure::new(406, "NotAcceptable", "only the following media types are accepted: application/json"))
}

/// A document with title and version: fields 1 (`swagger`), 2 (`info`) and 8 (`paths`) of the message.
fn empty_protobuf() -> Vec<u8> {
    let field = |number: u8, content: &[u8]| {
        let length = u8::try_from(content.len()).unwrap_or(u8::MAX);
        [&[number << 3 | 2, length], content].concat()
    };
    let info = [field(1, b"Kubernetes"), field(2, super::discovery::VERSION.as_bytes())].concat();
    [field(1, b"2.0"), field(2, &info), field(8, b"")].concat()
}

/// Prefixes of references to types, in v3 and in v2.
const SCHEMAS: &str = "#/components/schemas/";
const DEFINITIONS: &str = "#/definitions/";

pub(super) fn v3(registry: &Registry, path: &[&str]) -> Result<Response<Body>, Failure> {
    if path.is_empty() {
        let versions: BTreeSet<_> =
            registry.resources.keys().map(|(group, version, _)| place(group, version)).collect();
        let paths: Map<_, _> = versions
            .into_iter()
            .map(|path| {
                // The hash lets clients cache the document.
                let url = format!("/openapi/v3/{path}?hash={:016X}", hash(registry, &path));
                (path, json!({"serverRelativeURL": url}))
            })
            .collect();
        return Ok(answer::json(200, &json!({"paths": paths})));
    }
    let (group, version) = match path {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return Err(Failure::no_such_path()),
    };
    let resources: Vec<_> = registry
        .resources
        .values()
        .filter(|resource| resource.group == group && resource.version == version)
        .cloned()
        .collect();
    if resources.is_empty() {
        return Err(Failure::no_such_path());
    }
    Ok(answer::json(200, &document(&resources)))
}

fn place(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn hash(registry: &Registry, path: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    super::discovery::VERSION.hash(&mut hasher);
    for ((group, version, plural), resource) in &registry.resources {
        if place(group, version) == path {
            plural.hash(&mut hasher);
            resource.custom.as_ref().map(|custom| custom.given.to_string()).hash(&mut hasher);
        }
    }
    hasher.finish()
}

fn document(resources: &[Arc<Resource>]) -> Value {
    let (paths, schemas) = described(resources, SCHEMAS);
    json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": super::discovery::VERSION},
        "paths": paths, "components": {"schemas": schemas},
    })
}

/// The operations and types of resources; `at` is the prefix of references.
fn described(resources: &[Arc<Resource>], at: &str) -> (Map<String, Value>, Map<String, Value>) {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in resources {
        let name = match &resource.custom {
            Some(custom) => {
                let reversed: Vec<_> = resource.group.split('.').rev().collect();
                let name = format!("{}.{}.{}", reversed.join("."), resource.version, resource.kind);
                let mut schema = custom.given.clone();
                let own = crate::value::object(&mut schema).entry("properties").or_insert(json!({}));
                for key in ["apiVersion", "kind"] {
                    crate::value::default_to(own, key, json!({"type": "string"}));
                }
                crate::value::set(own, "metadata", json!({"$ref": format!("{at}{}", full_name("meta.v1.ObjectMeta"))}));
                types(at, &Schema::builtin().named("meta.v1.ObjectMeta"), &mut schemas);
                schemas.insert(name.clone(), schema);
                name
            }
            None => {
                types(at, &resource.shape, &mut schemas);
                match &resource.shape {
                    Shape::Type(index) => {
                        Schema::builtin().get(*index).map(|kind| full_name(&kind.name)).unwrap_or_default()
                    }
                    _ => continue,
                }
            }
        };
        if let Some(schema) = schemas.get_mut(&name) {
            let kind = json!([{"group": resource.group, "version": resource.version, "kind": resource.kind}]);
            crate::value::object(schema).insert("x-kubernetes-group-version-kind".into(), kind);
        }
        operations(resource, &name, &mut paths);
    }
    (paths, schemas)
}

fn operations(resource: &Resource, name: &str, paths: &mut Map<String, Value>) {
    let base = format!("/{}", place(&resource.group, &resource.version));
    let collection = if resource.namespaced {
        format!("{base}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("{base}/{}", resource.plural)
    };
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let content = json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{name}")}}});
    let operation = |action: &str| {
        let mut operation = json!({
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
            "responses": {"200": {"description": "OK", "content": content}},
        });
        if matches!(action, "post" | "put" | "patch") {
            let parameters: Vec<_> = ["dryRun", "fieldManager", "fieldValidation"].map(parameter).into();
            crate::value::set(&mut operation, "parameters", parameters);
            crate::value::set(&mut operation, "requestBody", json!({"content": content}));
        }
        operation
    };
    let item = format!("{collection}/{{name}}");
    paths.insert(collection, json!({"get": operation("list"), "post": operation("post")}));
    let all = json!({"get": operation("get"), "put": operation("put"), "patch": operation("patch"), "delete": operation("delete")});
    paths.insert(item, all);
}

fn full_name(name: &str) -> String {
    let (package, rest) = name.split_once('.').unwrap_or_default();
    match package {
        "meta" => format!("io.k8s.apimachinery.pkg.apis.meta.{rest}"),
        "apiextensions" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{rest}"),
        "apiregistration" => format!("io.k8s.kube-aggregator.pkg.apis.apiregistration.{rest}"),
        package => format!("io.k8s.api.{package}.{rest}"),
    }
}

/// Adds a type and all types that it refers to.
fn types(at: &str, shape: &Shape, schemas: &mut Map<String, Value>) {
    match shape {
        Shape::Type(index) => {
            let Some(kind) = Schema::builtin().get(*index) else { return };
            let name = full_name(&kind.name);
            if schemas.contains_key(&name) {
                return;
            }
            schemas.insert(name.clone(), Value::Null);
            let mut properties = Map::new();
            for field in &kind.fields {
                types(at, &field.shape, schemas);
                properties.insert(field.name.clone(), describe(at, &field.shape));
            }
            let required: Vec<_> = kind
                .fields
                .iter()
                .filter(|field| field.required && field.name != "metadata")
                .map(|field| field.name.clone())
                .collect();
            let mut described = json!({"type": "object", "properties": properties});
            if !required.is_empty() {
                crate::value::set(&mut described, "required", required);
            }
            if kind.atomic {
                crate::value::set(&mut described, "x-kubernetes-map-type", "atomic");
            }
            schemas.insert(name, described);
        }
        Shape::List(item, _) | Shape::Map(item, _) => types(at, item, schemas),
        _ => {}
    }
}

fn describe(at: &str, shape: &Shape) -> Value {
    match shape {
        Shape::Text | Shape::Quantity => json!({"type": "string"}),
        Shape::Int32 => json!({"type": "integer", "format": "int32"}),
        Shape::Int64 => json!({"type": "integer", "format": "int64"}),
        Shape::Double => json!({"type": "number", "format": "double"}),
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Bytes => json!({"type": "string", "format": "byte"}),
        Shape::IntOrText => json!({"type": "string", "format": "int-or-string"}),
        Shape::Time | Shape::MicroTime => json!({"type": "string", "format": "date-time"}),
        Shape::Any => json!({"type": "object"}),
        Shape::Type(index) => {
            match Schema::builtin().get(*index).map(|kind| format!("{at}{}", full_name(&kind.name))) {
                // References with a default are wrapped in v3; v2 has no such form.
                Some(reference) if at == SCHEMAS => json!({"allOf": [{"$ref": reference}]}),
                Some(reference) => json!({"$ref": reference}),
                None => json!({"type": "object"}),
            }
        }
        Shape::List(item, kind) => {
            let mut list = json!({"type": "array", "items": describe(at, item)});
            match kind {
                ListKind::Atomic => crate::value::set(&mut list, "x-kubernetes-list-type", "atomic"),
                ListKind::Set => crate::value::set(&mut list, "x-kubernetes-list-type", "set"),
                ListKind::Keyed(keys) => {
                    crate::value::set(&mut list, "x-kubernetes-list-type", "map");
                    crate::value::set(&mut list, "x-kubernetes-list-map-keys", keys.clone());
                }
            }
            list
        }
        Shape::Map(item, kind) => {
            let mut map = json!({"type": "object", "additionalProperties": describe(at, item)});
            if *kind == MapKind::Atomic {
                crate::value::set(&mut map, "x-kubernetes-map-type", "atomic");
            }
            map
        }
    }
}
