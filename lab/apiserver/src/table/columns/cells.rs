//! The values of cells of the built-in resources.

use serde_json::Value;

use super::age;
use crate::value::{at, items, text};

pub(super) fn or_none(text: &str) -> Value {
    if text.is_empty() { "<none>".into() } else { text.into() }
}

pub(super) fn or_unknown(text: &str) -> Value {
    if text.is_empty() { "<unknown>".into() } else { text.into() }
}

pub(super) fn amount(object: &Value, path: &str) -> i64 {
    at(object, path).as_i64().unwrap_or(0)
}

pub(super) fn count(object: &Value, path: &str) -> usize {
    at(object, path).as_object().map_or(0, serde_json::Map::len)
}

pub(super) fn join(object: &Value, list: &str, key: &str) -> Value {
    items(object, list).iter().map(|item| text(item, key)).collect::<Vec<_>>().join(",").into()
}

/// Labels in the form `a=b,c=d`.
pub(super) fn labels(labels: &Value) -> Value {
    let pairs: Vec<_> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    or_none(&pairs.join(","))
}

/// A label selector as text.
pub(in crate::table) fn selector(selector: &Value) -> Value {
    let mut parts: Vec<String> = labels(at(selector, "matchLabels"))
        .as_str()
        .filter(|text| *text != "<none>")
        .map(str::to_owned)
        .into_iter()
        .collect();
    for term in items(selector, "matchExpressions") {
        let values: Vec<_> = items(term, "values").iter().filter_map(Value::as_str).collect();
        let (key, values) = (text(term, "key"), values.join(","));
        parts.push(match text(term, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    or_none(&parts.join(","))
}

pub(super) fn node_status(node: &Value) -> Value {
    let ready = items(node, "status.conditions").iter().find(|condition| text(condition, "type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if at(node, "spec.unschedulable") == true {
        status.push_str(",SchedulingDisabled");
    }
    status.into()
}

pub(super) fn kernel(node: &Value) -> Value {
    match (text(node, "status.nodeInfo.kernelVersion"), text(node, "status.nodeInfo.architecture")) {
        ("", _) => "<unknown>".into(),
        (version, "") => version.into(),
        (version, architecture) => format!("{version} ({architecture})").into(),
    }
}

pub(super) fn node_roles(node: &Value) -> Value {
    let roles: Vec<_> = at(node, "metadata.labels")
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role.to_owned()),
            None => (key == "kubernetes.io/role").then(|| value.as_str().unwrap_or_default().to_owned()),
        })
        .filter(|role| !role.is_empty())
        .collect();
    or_none(&roles.join(","))
}

pub(super) fn node_address(node: &Value, kind: &str) -> Value {
    let found = items(node, "status.addresses").iter().find(|address| text(address, "type") == kind);
    or_none(found.map(|address| text(address, "address")).unwrap_or_default())
}

pub(super) fn external_ip(service: &Value) -> Value {
    let listed: Vec<_> = items(service, "spec.externalIPs").iter().filter_map(Value::as_str).collect();
    let balancers: Vec<_> = items(service, "status.loadBalancer.ingress")
        .iter()
        .map(|ingress| if text(ingress, "ip").is_empty() { text(ingress, "hostname") } else { text(ingress, "ip") })
        .collect();
    match text(service, "spec.type") {
        "ExternalName" => text(service, "spec.externalName").into(),
        "LoadBalancer" => match [balancers, listed].concat().join(",") {
            all if all.is_empty() => "<pending>".into(),
            all => all.into(),
        },
        _ => or_none(&listed.join(",")),
    }
}

pub(super) fn service_ports(service: &Value) -> Value {
    let port = |port: &Value| {
        let (number, protocol) = (amount(port, "port"), text(port, "protocol"));
        match amount(port, "nodePort") {
            0 => format!("{number}/{protocol}"),
            node => format!("{number}:{node}/{protocol}"),
        }
    };
    or_none(&items(service, "spec.ports").iter().map(port).collect::<Vec<_>>().join(","))
}

fn shortened(all: &[String], unset: &str) -> Value {
    match all {
        [] => unset.into(),
        [a, b, c, rest @ ..] if !rest.is_empty() => format!("{a},{b},{c} + {} more...", rest.len()).into(),
        all => all.join(",").into(),
    }
}

pub(super) fn slice_ports(slice: &Value) -> Value {
    let ports: Vec<_> = items(slice, "ports")
        .iter()
        .map(|port| at(port, "port").as_i64().map_or_else(|| "*".to_owned(), |port| port.to_string()))
        .collect();
    shortened(&ports, "<unset>")
}

pub(super) fn slice_endpoints(slice: &Value) -> Value {
    let addresses: Vec<_> = items(slice, "endpoints")
        .iter()
        .flat_map(|endpoint| items(endpoint, "addresses"))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    shortened(&addresses, "<unset>")
}

pub(super) fn event_age(event: &Value, key: &str) -> Value {
    let time = [text(event, key), text(event, "eventTime"), text(event, "firstTimestamp")];
    age(time.into_iter().find(|time| !time.is_empty()).unwrap_or_default()).into()
}

pub(super) fn event_source(event: &Value) -> Value {
    match (text(event, "source.component"), text(event, "source.host")) {
        ("", _) => text(event, "reportingComponent").into(),
        (component, "") => component.into(),
        (component, host) => format!("{component}, {host}").into(),
    }
}

pub(super) fn subjects(binding: &Value, kind: &str) -> Value {
    let names: Vec<_> = items(binding, "subjects")
        .iter()
        .filter(|subject| text(subject, "kind") == kind)
        .map(|subject| match text(subject, "namespace") {
            "" => text(subject, "name").to_owned(),
            namespace => format!("{namespace}/{}", text(subject, "name")),
        })
        .collect();
    names.join(", ").into()
}

pub(super) fn api_service(service: &Value) -> Value {
    match at(service, "spec.service") {
        Value::Null => "Local".into(),
        backend => format!("{}/{}", text(backend, "namespace"), text(backend, "name")).into(),
    }
}

pub(super) fn api_service_available(service: &Value) -> Value {
    let condition = items(service, "status.conditions").iter().find(|condition| text(condition, "type") == "Available");
    match condition.map(|condition| (text(condition, "status"), text(condition, "reason"))) {
        Some(("True", _)) => "True".into(),
        Some((status, reason)) => format!("{status} ({reason})").into(),
        None => "Unknown".into(),
    }
}
