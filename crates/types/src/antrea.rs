//! Objects of `crd.antrea.io`: Tiers, policies, groups and ExternalEntities.
//!
//! Unknown fields are kept by name, as in [`network_policy`](crate::network_policy): a reader can report them, and other objects are
//! read. Values of enumerations are kept as text for the same reason.

mod policy;

pub use policy::{
    AppliedTo, Icmp, NumberedProtocol, Peer, PeerNamespaces, Policy, PolicySpec, Port, Rule, ServiceReference,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::meta::{LabelSelector, Metadata, UnknownFields, WrittenProtocol};
use crate::network_policy::IpBlock;

/// A number that may have a fraction, as the object has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Decimal(u64);

impl Decimal {
    /// The value of the number.
    pub fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for Decimal {
    fn from(value: f64) -> Self {
        Self(value.to_bits())
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self::from)
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.value())
    }
}

/// A Tier: all of its policies are evaluated before those of a Tier with a higher number.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tier {
    /// Name, by which policies refer to it.
    pub metadata: Metadata,
    /// Priority and description of it.
    pub spec: TierSpec,
}

/// `spec` of a Tier.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TierSpec {
    /// 0 to 255, not validated; the lowest is evaluated first.
    pub priority: Option<i64>,
    /// Free text for users.
    pub description: String,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A ClusterGroup, or a Group of a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Group {
    /// Name and namespace; a ClusterGroup has no namespace.
    pub metadata: Metadata,
    /// What the group selects.
    pub spec: GroupSpec,
}

/// `spec` of a ClusterGroup or Group: one kind of content, or the two selectors together.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSpec {
    /// Selects Pods: of the Group's namespace, or of all namespaces for a ClusterGroup.
    pub pod_selector: Option<LabelSelector>,
    /// Selects Namespaces; all their Pods unless `pod_selector` is set.
    pub namespace_selector: Option<LabelSelector>,
    /// Selects ExternalEntities by their labels.
    pub external_entity_selector: Option<LabelSelector>,
    /// Selects Nodes by their labels.
    pub node_selector: Option<LabelSelector>,
    /// Ranges of addresses in or outside the cluster.
    pub ip_blocks: Vec<IpBlock>,
    /// A Service, for the Pods that it selects.
    pub service_reference: Option<ServiceReference>,
    /// Names of groups of the same kind and namespace; they have no children themselves.
    pub child_groups: Vec<String>,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// An ExternalEntity: addresses outside the cluster, with labels.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalEntity {
    /// Name, namespace and labels; policies select it by its labels.
    pub metadata: Metadata,
    /// Addresses and named ports.
    pub spec: ExternalEntitySpec,
}

/// `spec` of an ExternalEntity.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExternalEntitySpec {
    /// The addresses of the entity.
    pub endpoints: Vec<ExternalEndpoint>,
    /// Named ports, which policies may refer to.
    pub ports: Vec<ExternalPort>,
    /// Name of the ExternalNode that enforces policies for it; empty if there is none.
    pub external_node: String,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// An address of an ExternalEntity.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ExternalEndpoint {
    /// Address without a prefix length.
    pub ip: String,
    /// Name for users, which may be empty.
    pub name: String,
}

/// A named port of an ExternalEntity.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ExternalPort {
    /// Transport protocol; TCP by default.
    pub protocol: WrittenProtocol,
    /// Port number, not validated.
    pub port: i64,
    /// Name for policies; empty if the port has none.
    pub name: String,
}

#[cfg(test)]
mod tests;
