//! The built-in kinds that controllers and RBAC read, with the fields that they use.
//!
//! Patches, server-side apply, validation and storage work on any kind, and therefore on JSON values. Code that knows a kind
//! reads it as one of these types instead. Other fields are ignored, so a changed copy is never written back: objects are
//! changed with `Core::modify`.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

mod apiregistration;
mod apps;
mod discovery;
mod meta;
mod rbac;
mod service;
pub(crate) use apiregistration::ApiService;
pub(crate) use apps::{DaemonSet, Deployment, PodTemplate, ReplicaSet};
pub(crate) use discovery::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice, Hints, ObjectReference, Target};
pub(crate) use meta::{Condition, Metadata, Object, OwnerReference};
pub(crate) use rbac::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
pub(crate) use service::{IntOrString, Service, ServicePort, ServiceSpec};

/// A built-in kind, by the resource that serves it.
pub(crate) trait Kind: DeserializeOwned {
    const GROUP: &'static str;
    const PLURAL: &'static str;
}

/// Implements [`Kind`] for types, with group and plural.
macro_rules! kinds {
    ($($kind:ident: $group:literal, $plural:literal;)*) => {
        $(impl Kind for $kind {
            const GROUP: &'static str = $group;
            const PLURAL: &'static str = $plural;
        })*
    };
}

kinds! {
    ApiService: "apiregistration.k8s.io", "apiservices";
    ClusterRole: "rbac.authorization.k8s.io", "clusterroles";
    ClusterRoleBinding: "rbac.authorization.k8s.io", "clusterrolebindings";
    CustomResourceDefinition: "apiextensions.k8s.io", "customresourcedefinitions";
    DaemonSet: "apps", "daemonsets";
    Deployment: "apps", "deployments";
    EndpointSlice: "discovery.k8s.io", "endpointslices";
    Namespace: "", "namespaces";
    Node: "", "nodes";
    Pod: "", "pods";
    ReplicaSet: "apps", "replicasets";
    Role: "rbac.authorization.k8s.io", "roles";
    RoleBinding: "rbac.authorization.k8s.io", "rolebindings";
    Service: "", "services";
}

/// Reads a value; one that does not have the expected shape, which validation would have rejected, is empty.
pub(crate) fn read<T: DeserializeOwned + Default>(value: &Value) -> T {
    T::deserialize(value).unwrap_or_default()
}

/// Null is the same as missing.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CustomResourceDefinition {
    pub(crate) metadata: Metadata,
    pub(crate) spec: CustomResourceDefinitionSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CustomResourceDefinitionSpec {
    pub(crate) group: String,
    pub(crate) names: Names,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Names {
    pub(crate) plural: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Namespace {
    pub(crate) spec: NamespaceSpec,
    pub(crate) status: NamespaceStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NamespaceSpec {
    #[serde(deserialize_with = "nullable")]
    pub(crate) finalizers: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NamespaceStatus {
    pub(crate) phase: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) conditions: Vec<Condition>,
}

impl Namespace {
    pub(crate) fn is_terminating(&self) -> bool {
        self.status.phase == "Terminating"
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    pub(crate) metadata: Metadata,
    pub(crate) spec: NodeSpec,
    pub(crate) status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSpec {
    #[serde(rename = "podCIDRs", deserialize_with = "nullable")]
    pub(crate) pod_cidrs: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatus {
    #[serde(deserialize_with = "nullable")]
    pub(crate) conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Taint {
    pub(crate) key: String,
    pub(crate) effect: String,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub(crate) metadata: Metadata,
    pub(crate) spec: PodSpec,
    pub(crate) status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpec {
    pub(crate) node_name: String,
    pub(crate) hostname: String,
    pub(crate) subdomain: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Container {
    #[serde(deserialize_with = "nullable")]
    pub(crate) ports: Vec<ContainerPort>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ContainerPort {
    pub(crate) name: String,
    pub(crate) protocol: String,
    pub(crate) container_port: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodStatus {
    pub(crate) phase: String,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: String,
    #[serde(rename = "podIPs", deserialize_with = "nullable")]
    pub(crate) pod_ips: Vec<PodIp>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodIp {
    pub(crate) ip: String,
}

impl Pod {
    pub(crate) fn is_ready(&self) -> bool {
        Condition::is_true(&self.status.conditions, "Ready")
    }

    /// Whether all containers have terminated.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    pub(crate) fn ips(&self) -> impl Iterator<Item = &str> {
        let all = self.status.pod_ips.iter().map(|ip| ip.ip.as_str()).chain([self.status.pod_ip.as_str()]);
        all.filter(|ip| !ip.is_empty())
    }
}

/// Labels or annotations of an object.
pub(crate) type Strings = BTreeMap<String, String>;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_is_missing_and_other_fields_are_ignored() {
        let pod: Pod = read(&json!({
            "metadata": {"name": "p", "labels": null, "managedFields": [{}]},
            "spec": {"containers": null, "nodeName": "n"}, "status": {"podIPs": [{"ip": "10.0.0.1"}], "podIP": "10.0.0.1"},
        }));
        assert_eq!((pod.metadata.name.as_str(), pod.spec.node_name.as_str()), ("p", "n"));
        assert_eq!(pod.ips().collect::<Vec<_>>(), ["10.0.0.1", "10.0.0.1"]);
        assert!(!pod.is_ready() && !pod.is_over() && pod.metadata.labels.is_empty());
    }
}
