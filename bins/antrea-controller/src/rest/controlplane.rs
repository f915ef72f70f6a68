//! The API group `controlplane.antrea.io`: computed policies and groups, and the status of policies.

use std::sync::Arc;

use http::StatusCode;
use policy::status::{StatusByNode, merge, realization};
use policy::{Brain, Controller};
use serde_json::{Value, json};
use types::control::Policy;

use super::objects::{self, GROUP_VERSION, RESOURCES};
use super::{Answer, Rest, respond};
use crate::engine::ReadError;
use crate::peers::PeerReports;

pub(super) const PREFIX: &str = "/apis/controlplane.antrea.io/v1beta2";

/// The target of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The list of resources.
    Resources,
    /// All objects of a resource, or one.
    Objects { resource: usize, name: Option<String> },
}

impl Target {
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

/// A policy with its span, the reports for it, and its invalid fields.
type PolicyView = (Arc<Policy>, Vec<Arc<str>>, StatusByNode, Vec<String>);

impl Rest {
    /// The resources, for discovery.
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

    /// Groups and resources in one response, for aggregated discovery.
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
        let found = match plural {
            "networkpolicies" => self.policies().await,
            "appliedtogroups" => {
                self.groups(kind, |brain| brain.applied_to_groups().map(|(group, _)| group).collect()).await
            }
            _ => self.groups(kind, |brain| brain.address_groups().map(|(group, _)| group).collect()).await,
        };
        let mut objects = match found {
            Ok(objects) => objects,
            Err(error) => return unavailable(&error),
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

    /// The reports of the agents of this replica.
    pub(super) async fn reports(&self) -> Answer {
        match self.engine.read(peer_reports).await {
            Ok(reports) => json_answer(StatusCode::OK, &json!(reports)),
            Err(error) => unavailable(&error),
        }
    }

    async fn groups(
        &self,
        kind: &'static str,
        groups: impl FnOnce(&Brain) -> Vec<types::control::Group> + Send + 'static,
    ) -> Result<Vec<Value>, ReadError> {
        let found = self.engine.read(move |state| groups(state.brain())).await?;
        Ok(found.iter().map(|group| objects::group(kind, group)).collect())
    }

    async fn policies(&self) -> Result<Vec<Value>, ReadError> {
        let (views, others) = tokio::join!(self.engine.read(policy_views), self.peers.reports());
        let object = |(policy, span, mut reports, problems): PolicyView| {
            for PeerReports { connected, policies } in &others {
                let other = policies.get(&policy.name.to_string()).cloned().unwrap_or_default();
                merge(&mut reports, other, |node| connected.contains(node));
            }
            objects::policy(&policy, &realization(&policy, &span, &reports, problems))
        };
        Ok(views?.into_iter().map(object).collect())
    }
}

fn policy_views(state: &Controller) -> Vec<PolicyView> {
    let view = |(policy, span): (Arc<Policy>, Vec<Arc<str>>)| {
        let problems = state.brain().problems(&policy.name).iter().map(|it| format!("{}: {}", it.field, it.problem));
        let (reports, problems) = (state.reports().of(&policy.name), problems.collect());
        (policy, span, reports, problems)
    };
    state.brain().policies().map(view).collect()
}

fn peer_reports(state: &Controller) -> PeerReports {
    PeerReports {
        connected: state.reports().connected_nodes().clone(),
        policies: state.reports().all().map(|(name, reports)| (name.to_string(), reports.clone())).collect(),
    }
}

/// The table that `kubectl get` prints.
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

fn unavailable(error: &ReadError) -> Answer {
    failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", &error.to_string())
}

fn json_answer(status: StatusCode, body: &Value) -> Answer {
    respond(status, "application/json", format!("{body}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_group_and_no_others() {
        let target = |rest: &str| Target::read(&format!("{PREFIX}{rest}"));
        assert_eq!(target(""), Some(Target::Resources));
        assert_eq!(target("/addressgroups"), Some(Target::Objects { resource: 2, name: None }));
        let one = Target::Objects { resource: 0, name: Some("x".to_owned()) };
        assert_eq!(target("/networkpolicies/x"), Some(one));
        assert_eq!((target("/pods"), target("/networkpolicies/x/status"), Target::read("/apis")), (None, None, None));
    }
}
