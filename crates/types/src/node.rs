//! Nodes and Namespaces: addresses, Pod CIDRs and labels.

use serde::{Deserialize, Serialize};

use crate::meta::Metadata;

/// The annotation with the addresses at which other Nodes reach this one, if they differ from its own; separated by
/// commas.
pub const TRANSPORT_ADDRESSES: &str = "node.antrea.io/transport-addresses";

/// A Namespace, for its labels.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespace {
    /// Name and labels; policies select Namespaces by their labels.
    pub metadata: Metadata,
}

/// A Node as the API server has it, without the fields that nothing uses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    /// Name, labels such as the zone, and annotations.
    pub metadata: Metadata,
    /// Subnets for the Pods of the Node.
    pub spec: NodeSpec,
    /// Addresses of the Node itself.
    pub status: NodeStatus,
}

/// `spec` of a Node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// First Pod subnet; empty until one is assigned.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
    /// All Pod subnets, at most one for each family.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
}

/// `status` of a Node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// Addresses of all types, written by the kubelet.
    pub addresses: Vec<NodeAddress>,
}

/// An entry of `status.addresses`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// IP address, or a name, depending on the type.
    pub address: String,
}
