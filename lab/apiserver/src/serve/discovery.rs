//! Discovery: groups, versions and resources; health and version of the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::ACCEPT;
use http::{Method, Response};
use serde_json::{Value, json};

use super::{Asked, Body, State, answer, openapi, proxy};
use crate::auth::AUDIENCE;
use crate::core::Registry;
use crate::failure::{Failure, Of};
use crate::resources::{QUESTIONS, Resource};
use crate::value::text;

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The Kubernetes version whose behaviour is implemented.
pub(crate) const VERSION: &str = "v1.36.3";

pub(super) async fn path(state: &State, asked: &Asked) -> Result<Response<Body>, Failure> {
    if asked.method != Method::GET && asked.method != Method::HEAD {
        return Err(Failure::method_not_allowed(Of { group: "", resource: "" }, ""));
    }
    let registry = state.core.registry();
    let aggregated = asked.header(ACCEPT).contains("as=APIGroupDiscoveryList") && asked.header(ACCEPT).contains("v=v2");
    let parts: Vec<_> = asked.path.split('/').filter(|part| !part.is_empty()).collect();
    let value = match parts.as_slice() {
        ["api"] if aggregated => return Ok(aggregate(&registry, true, Vec::new())),
        ["apis"] if aggregated => {
            return Ok(aggregate(&registry, false, proxy::discover(state).await));
        }
        ["api"] => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]})
        }
        ["apis"] => {
            let mut all: Vec<_> = groups(&registry)
                .iter()
                .filter(|(group, _)| !group.is_empty())
                .map(|(group, versions)| one_group(group, versions))
                .collect();
            all.extend(
                state
                    .backends
                    .groups(&state.core)
                    .iter()
                    .map(|(group, version)| one_group(group, std::slice::from_ref(version))),
            );
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": all})
        }
        ["apis", group] => match groups(&registry).get(*group) {
            Some(versions) if !group.is_empty() => {
                let mut value = one_group(group, versions);
                crate::value::set(&mut value, "kind", "APIGroup");
                crate::value::set(&mut value, "apiVersion", "v1");
                value
            }
            _ => return Ok(answer::page_not_found()),
        },
        ["api", version] => resources(&registry, "", version)?,
        ["apis", group, version] => resources(&registry, group, version)?,
        ["version"] => json!({
            "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36", "minCompatibilityMajor": "1",
            "minCompatibilityMinor": "35", "gitVersion": VERSION, "gitCommit": "", "gitTreeState": "clean", "buildDate": "",
            "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
        }),
        ["healthz" | "livez" | "readyz", ..] => return Ok(answer::bytes(200, "text/plain; charset=utf-8", "ok")),
        [".well-known", "openid-configuration"] => json!({
            "issuer": AUDIENCE, "jwks_uri": format!("{AUDIENCE}/openid/v1/jwks"), "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"],
        }),
        ["openid", "v1", "jwks"] => state.core.signer.keys(),
        ["openapi", "v3", rest @ ..] => return openapi::v3(&registry, rest),
        ["openapi", "v2"] => return openapi::v2(&registry, asked),
        [] => {
            json!({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]})
        }
        _ => return Ok(answer::page_not_found()),
    };
    Ok(answer::json(200, &value))
}

/// Groups with their versions, the preferred one first.
fn groups(registry: &Registry) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let named = registry.resources.values().map(|resource| (resource.group.clone(), resource.version.clone()));
    for (group, version) in named.chain(QUESTIONS.iter().map(|(group, ..)| ((*group).to_owned(), "v1".to_owned()))) {
        let versions = groups.entry(group).or_default();
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
    }
    groups
}

/// Stable versions before beta before alpha, and later ones first.
fn rank(version: &str) -> (u8, u32, u32) {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    let major = number(version.trim_start_matches('v'));
    match (version.split_once("beta"), version.split_once("alpha")) {
        (Some((_, minor)), _) => (2, major, number(minor)),
        (_, Some((_, minor))) => (1, major, number(minor)),
        _ => (3, major, 0),
    }
}

fn one_group(group: &str, versions: &[String]) -> Value {
    let version = |version: &String| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let all: Vec<_> = versions.iter().map(version).collect();
    json!({"name": group, "versions": all, "preferredVersion": all.first()})
}

fn of_version<'a>(registry: &'a Registry, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
    registry.resources.values().filter(move |resource| resource.group == group && resource.version == version)
}

/// Kind, group, version and verbs of a subresource.
fn subresource(resource: &Resource, name: &str) -> (String, &'static str, &'static str, &'static [&'static str]) {
    match name {
        "binding" => ("Binding".to_owned(), "", "", &["create"]),
        "eviction" => ("Eviction".to_owned(), "policy", "v1", &["create"]),
        "token" => ("TokenRequest".to_owned(), "authentication.k8s.io", "v1", &["create"]),
        "scale" => ("Scale".to_owned(), "autoscaling", "v1", &["get", "patch", "update"]),
        "attach" => ("PodAttachOptions".to_owned(), "", "", &["create", "get"]),
        "exec" => ("PodExecOptions".to_owned(), "", "", &["create", "get"]),
        "portforward" => ("PodPortForwardOptions".to_owned(), "", "", &["create", "get"]),
        "log" => (resource.kind.clone(), "", "", &["get"]),
        "finalize" => (resource.kind.clone(), "", "", &["update"]),
        _ => (resource.kind.clone(), "", "", &["get", "patch", "update"]),
    }
}

fn verbs(resource: &Resource) -> Vec<&'static str> {
    if resource.custom.is_some() {
        return vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    }
    VERBS.into_iter().filter(|verb| resource.kind != "Namespace" || *verb != "deletecollection").collect()
}

fn resources(registry: &Registry, group: &str, version: &str) -> Result<Value, Failure> {
    let mut list = Vec::new();
    for resource in of_version(registry, group, version) {
        let mut row = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced, "kind": resource.kind,
            "verbs": verbs(resource),
        });
        for (key, names) in [("shortNames", &resource.short), ("categories", &resource.categories)] {
            if !names.is_empty() {
                crate::value::set(&mut row, key, names.clone());
            }
        }
        list.push(row);
        for name in &resource.subresources {
            let (kind, of, of_version, verbs) = subresource(resource, name);
            let mut row = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "", "namespaced": resource.namespaced, "kind": kind, "verbs": verbs,
            });
            if !of_version.is_empty() {
                crate::value::set(&mut row, "group", of);
                crate::value::set(&mut row, "version", of_version);
            }
            list.push(row);
        }
    }
    for (_, plural, kind, namespaced) in QUESTIONS.iter().filter(|(of, ..)| *of == group && version == "v1") {
        list.push(json!({"name": plural, "singularName": kind.to_lowercase(), "namespaced": namespaced, "kind": kind, "verbs": ["create"]}));
    }
    if list.is_empty() {
        return Err(Failure::no_such_path());
    }
    list.sort_by_key(|row| text(row, "name").split('/').next().unwrap_or_default().to_owned());
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list =
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list});
    if group.is_empty() {
        crate::value::remove(&mut list, "apiVersion");
    }
    Ok(list)
}

/// Aggregated discovery: everything in one document.
fn aggregate(registry: &Registry, core: bool, foreign: Vec<Value>) -> Response<Body> {
    let mut list = Vec::new();
    for (group, versions) in groups(registry).iter().filter(|(group, _)| group.is_empty() == core) {
        let versions: Vec<_> = versions
            .iter()
            .map(|version| json!({"version": version, "resources": discovered(registry, group, version), "freshness": "Current"}))
            .collect();
        let metadata = if core { json!({}) } else { json!({"name": group}) };
        list.push(json!({"metadata": metadata, "versions": versions}));
    }
    list.extend(foreign);
    let body =
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": list});
    let mut response = answer::json(200, &body);
    let media = http::HeaderValue::from_static("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    response.headers_mut().insert(http::header::CONTENT_TYPE, media);
    response
}

fn discovered(registry: &Registry, group: &str, version: &str) -> Vec<Value> {
    let scope = |namespaced: bool| if namespaced { "Namespaced" } else { "Cluster" };
    let kind_of = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut list = Vec::new();
    for resource in of_version(registry, group, version) {
        let mut row = json!({
            "resource": resource.plural, "responseKind": kind_of("", "", &resource.kind), "scope": scope(resource.namespaced),
            "singularResource": resource.singular, "verbs": verbs(resource),
        });
        for (key, names) in [("shortNames", &resource.short), ("categories", &resource.categories)] {
            if !names.is_empty() {
                crate::value::set(&mut row, key, names.clone());
            }
        }
        let below: Vec<_> = resource
            .subresources
            .iter()
            .map(|name| {
                let (kind, of, at, verbs) = subresource(resource, name);
                json!({"subresource": name, "responseKind": kind_of(of, at, &kind), "verbs": verbs})
            })
            .collect();
        if !below.is_empty() {
            crate::value::set(&mut row, "subresources", below);
        }
        list.push(row);
    }
    for (_, plural, kind, namespaced) in QUESTIONS.iter().filter(|(of, ..)| *of == group && version == "v1") {
        list.push(json!({
            "resource": plural, "responseKind": kind_of("", "", kind), "scope": scope(*namespaced),
            "singularResource": kind.to_lowercase(), "verbs": ["create"],
        }));
    }
    list.sort_by_key(|row| text(row, "resource").to_owned());
    list
}
