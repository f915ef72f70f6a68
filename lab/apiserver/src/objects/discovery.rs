//! EndpointSlices, as their controller writes and compares them.

use serde::{Deserialize, Serialize};

use super::{Metadata, nullable};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EndpointSlice {
    pub(crate) metadata: Metadata,
    pub(crate) address_type: String,
    /// Null, not empty, in a slice without endpoints.
    pub(crate) ports: Option<Vec<EndpointPort>>,
    pub(crate) endpoints: Option<Vec<Endpoint>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EndpointPort {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) app_protocol: Option<String>,
    pub(crate) name: String,
    pub(crate) port: i64,
    pub(crate) protocol: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Endpoint {
    #[serde(deserialize_with = "nullable")]
    pub(crate) addresses: Vec<String>,
    pub(crate) conditions: EndpointConditions,
    pub(crate) target_ref: ObjectReference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hostname: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hints: Option<Hints>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct EndpointConditions {
    pub(crate) ready: bool,
    pub(crate) serving: bool,
    pub(crate) terminating: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ObjectReference {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Topology hints: the zones and Nodes that should use an endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Hints {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) for_zones: Vec<Target>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) for_nodes: Vec<Target>,
}

/// A zone or Node, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Target {
    pub(crate) name: String,
}
