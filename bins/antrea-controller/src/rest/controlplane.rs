//! The API group `controlplane.antrea.io`: what the policies of the cluster have become, and how far they are carried out.

use std::sync::Arc;

use http::StatusCode;
use policy::Brain;
use serde_json::{Value, json};
use types::control::Policy;

use super::objects::{self, GROUP_VERSION, RESOURCES};
use super::{Answer, Rest, respond};
use crate::engine::State;
use crate::peers::Heard;
use crate::status::{ByNode, merge, realisation};

/// Where the group is.
pub(super) const PREFIX: &str = "/apis/controlplane.antrea.io/v1beta2";

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// What resources there are.
    Resources,
    /// All of a resource, or one.
    Objects { resource: usize, name: Option<String> },
}

impl Asked {
    /// From a path; nothing if there is no such thing.
    pub(super) fn read(path: &str) -> Option<Self> {
        let rest = path.strip_prefix(PREFIX)?.trim_matches('/');
        if rest.is_empty() {
            return Some(Self::Resources);
        }
        let (plural, name) = rest.split_once('/').map_or((rest, None), |(plural, name)| (plural, Some(name)));
        let resource = RESOURCES.iter().position(|(known, _, _)| *known == plural)?;
        let name = name.map(str::to_owned);
        (!name.as_deref().is_some_and(|name| name.contains('/'))).then_some(Self::Objects { resource, name })
    }
}

/// A policy with its span, what is said of it, and what is not understood of it.
type Told = (Arc<Policy>, Vec<Arc<str>>, ByNode, Vec<String>);

impl Rest {
    /// What resources there are, as discovery asks for it.
    pub(super) fn resources() -> Answer {
        let resource = |(plural, kind, _): &(&str, &str, &[&str])| {
            let singular = kind.to_lowercase();
            json!({"name": plural, "singularName": singular, "namespaced": false, "kind": kind, "verbs": ["get", "list"]})
        };
        let resources: Vec<Value> = RESOURCES.iter().map(resource).collect();
        let list = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": resources,
        });
        json_answer(StatusCode::OK, &list)
    }

    /// All that is served here, in one answer, as newer API servers ask for it.
    pub(super) fn groups_and_resources() -> Answer {
        let resource = |(plural, kind, _): &(&str, &str, &[&str])| {
            let of = json!({"group": "controlplane.antrea.io", "version": "v1beta2", "kind": kind});
            let singular = kind.to_lowercase();
            json!({"resource": plural, "responseKind": of, "scope": "Cluster", "singularResource": singular, "verbs": ["get", "list"]})
        };
        let resources: Vec<Value> = RESOURCES.iter().map(resource).collect();
        let version = json!({"version": "v1beta2", "resources": resources, "freshness": "Current"});
        let group = json!({"metadata": {"name": "controlplane.antrea.io"}, "versions": [version]});
        let list = json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [group],
        });
        let kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        respond(StatusCode::OK, kind, format!("{list}\n"))
    }

    /// All objects of a resource, or one.
    pub(super) async fn objects(&self, resource: usize, name: Option<&str>, as_table: bool) -> Answer {
        let (plural, kind, columns) = RESOURCES[resource];
        let mut objects = match plural {
            "networkpolicies" => self.policies().await,
            "appliedtogroups" => {
                self.groups(kind, |brain| brain.applied_to_groups().map(|(group, _)| group).collect()).await
            }
            _ => self.groups(kind, |brain| brain.address_groups().map(|(group, _)| group).collect()).await,
        };
        objects.sort_by_cached_key(|object| object["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        if let Some(name) = name {
            objects.retain(|object| object["metadata"]["name"] == name);
            if objects.is_empty() {
                let why = format!("{plural}.controlplane.antrea.io \"{name}\" not found");
                return failure(StatusCode::NOT_FOUND, "NotFound", &why);
            }
        }
        if as_table {
            return json_answer(StatusCode::OK, &table(columns, &objects));
        }
        match (name, objects.pop()) {
            (Some(_), Some(object)) => json_answer(StatusCode::OK, &object),
            (_, last) => {
                objects.extend(last);
                let kind = format!("{kind}List");
                let metadata = json!({"resourceVersion": ""});
                let list = json!({"kind": kind, "apiVersion": GROUP_VERSION, "metadata": metadata, "items": objects});
                json_answer(StatusCode::OK, &list)
            }
        }
    }

    /// What the agents that are told here have reported.
    pub(super) async fn heard(&self) -> Answer {
        let heard = self.engine.look(heard).await.unwrap_or_default();
        json_answer(StatusCode::OK, &json!(heard))
    }

    async fn groups(
        &self,
        kind: &'static str,
        groups: impl FnOnce(&Brain) -> Vec<types::control::Group> + Send + 'static,
    ) -> Vec<Value> {
        let found = self.engine.look(move |state| groups(&state.brain)).await.unwrap_or_default();
        found.iter().map(|group| objects::group(kind, group)).collect()
    }

    async fn policies(&self) -> Vec<Value> {
        let (told, others) = tokio::join!(self.engine.look(all_told), self.peers.ask());
        let object = |(policy, span, mut said, not_understood): Told| {
            for Heard { connected, policies } in &others {
                let other = policies.get(&policy.name.to_string()).cloned().unwrap_or_default();
                merge(&mut said, other, |node| connected.contains(node));
            }
            objects::policy(&policy, &realisation(&policy, &span, &said, not_understood))
        };
        told.unwrap_or_default().into_iter().map(object).collect()
    }
}

fn all_told(state: &State) -> Vec<Told> {
    let told = |(policy, span): (Arc<Policy>, Vec<Arc<str>>)| {
        let problems = state.brain.problems(&policy.name).iter().map(|it| format!("{}: {}", it.field, it.problem));
        let (said, problems) = (state.reports.of(&policy.name), problems.collect());
        (policy, span, said, problems)
    };
    state.brain.policies().map(told).collect()
}

fn heard(state: &State) -> Heard {
    Heard {
        connected: state.reports.listeners().clone(),
        policies: state.reports.all().map(|(name, said)| (name.to_string(), said.clone())).collect(),
    }
}

/// What `kubectl get` prints.
fn table(columns: &[&str], objects: &[Value]) -> Value {
    let column = |name: &&str| {
        let format = if *name == "Name" { "name" } else { "" };
        json!({"name": name, "type": "string", "format": format, "description": "", "priority": 0})
    };
    let row = |object: &Value| {
        let partial = json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
        });
        json!({"cells": objects::cells(object), "object": partial})
    };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": ""},
        "columnDefinitions": columns.iter().map(column).collect::<Vec<_>>(),
        "rows": objects.iter().map(row).collect::<Vec<_>>(),
    })
}

pub(super) fn failure(status: StatusCode, reason: &str, message: &str) -> Answer {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": status.as_u16(),
    });
    json_answer(status, &body)
}

fn json_answer(status: StatusCode, body: &Value) -> Answer {
    respond(status, "application/json", format!("{body}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_group_and_no_others() {
        let asked = |rest: &str| Asked::read(&format!("{PREFIX}{rest}"));
        assert_eq!(asked(""), Some(Asked::Resources));
        assert_eq!(asked("/addressgroups"), Some(Asked::Objects { resource: 2, name: None }));
        let one = Asked::Objects { resource: 0, name: Some("x".to_owned()) };
        assert_eq!(asked("/networkpolicies/x"), Some(one));
        assert_eq!((asked("/pods"), asked("/networkpolicies/x/status"), Asked::read("/apis")), (None, None, None));
    }
}
