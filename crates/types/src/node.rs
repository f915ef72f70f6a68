//! Nodes and Namespaces.

use serde::Deserialize;

use crate::meta::Metadata;

/// The annotation by which a Node tells at which addresses others reach it, where these are not its own; commas separate them.
pub const TRANSPORT_ADDRESSES: &str = "node.antrea.io/transport-addresses";

/// A Namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespace {
    /// Name and labels.
    pub metadata: Metadata,
}

/// A Node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    /// Its name.
    pub metadata: Metadata,
    /// Its Pods' addresses.
    pub spec: NodeSpec,
    /// Its own addresses.
    pub status: NodeStatus,
}

/// What is wanted of a Node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Its Pods' subnet.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
    /// Its Pods' subnets, one a family.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
}

/// What is known of a Node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// Its addresses.
    pub addresses: Vec<NodeAddress>,
}

/// An address of a Node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// The address.
    pub address: String,
}
