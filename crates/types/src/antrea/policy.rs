//! ClusterNetworkPolicies and NetworkPolicies of `crd.antrea.io`.

use serde::{Deserialize, Serialize};

use super::Decimal;
use crate::meta::{IntOrString, LabelSelector, Metadata, UnknownFields, WrittenProtocol};
use crate::network_policy::IpBlock;

/// A ClusterNetworkPolicy, or a NetworkPolicy of a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    /// Name, namespace and generation; a ClusterNetworkPolicy has no namespace.
    pub metadata: Metadata,
    /// Its place in the order of evaluation, and its rules.
    pub spec: PolicySpec,
}

/// `spec` of an Antrea policy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicySpec {
    /// Name of the Tier; empty means `application`.
    pub tier: String,
    /// 1 to 10000, not validated; within a Tier, the lowest is evaluated first.
    pub priority: Option<Decimal>,
    /// What all rules apply to; empty if each rule has its own.
    pub applied_to: Vec<AppliedTo>,
    /// Rules for connections to these Pods, in order of evaluation.
    pub ingress: Vec<Rule>,
    /// Rules for connections from these Pods, in order of evaluation.
    pub egress: Vec<Rule>,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// What a policy or a rule applies to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AppliedTo {
    /// Selects Pods: of the policy's namespace, or of all namespaces for a ClusterNetworkPolicy.
    pub pod_selector: Option<LabelSelector>,
    /// Selects Namespaces; all their Pods unless `pod_selector` is set.
    pub namespace_selector: Option<LabelSelector>,
    /// Selects ExternalEntities of the policy's namespace.
    pub external_entity_selector: Option<LabelSelector>,
    /// Selects Nodes by their labels.
    pub node_selector: Option<LabelSelector>,
    /// Name of a ClusterGroup, or of a Group of the policy's namespace; empty if there is none.
    pub group: String,
    /// The Pods that use a ServiceAccount.
    pub service_account: Option<ServiceReference>,
    /// A Service of type NodePort, on all Nodes.
    pub service: Option<ServiceReference>,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A rule of an Antrea policy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// `Allow`, `Drop`, `Reject` or `Pass`.
    pub action: String,
    /// Unique within the policy; empty if nothing has set it.
    pub name: String,
    /// Clients of an ingress rule; all if empty.
    pub from: Vec<Peer>,
    /// Destinations of an egress rule; all if empty.
    pub to: Vec<Peer>,
    /// Services as the destinations of an egress rule.
    pub to_services: Vec<ServiceReference>,
    /// Destination ports; with `protocols` also empty, all ports of all protocols.
    pub ports: Vec<Port>,
    /// Protocols without ports, in addition to `ports`.
    pub protocols: Vec<NumberedProtocol>,
    /// Whether connections that the rule decides are logged.
    pub enable_logging: bool,
    /// Text for the log, with the syntax of a label value.
    pub log_label: String,
    /// What the rule applies to; empty if the policy says it.
    pub applied_to: Vec<AppliedTo>,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// Clients or destinations of a rule.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Peer {
    /// Selects Pods: of the policy's namespace, or of all namespaces for a ClusterNetworkPolicy.
    pub pod_selector: Option<LabelSelector>,
    /// Selects Namespaces; all their Pods unless `pod_selector` is set.
    pub namespace_selector: Option<LabelSelector>,
    /// Namespaces relative to that of each Pod that the rule applies to.
    pub namespaces: Option<PeerNamespaces>,
    /// Selects ExternalEntities, in the policy's namespace unless `namespace_selector` is set.
    pub external_entity_selector: Option<LabelSelector>,
    /// Selects Nodes by their labels.
    pub node_selector: Option<LabelSelector>,
    /// Name of a ClusterGroup, or of a Group of the policy's namespace; empty if there is none.
    pub group: String,
    /// The Pods that use a ServiceAccount.
    pub service_account: Option<ServiceReference>,
    /// A range of addresses with exceptions.
    pub ip_block: Option<IpBlock>,
    /// A domain name, which may contain `*`; empty if there is none.
    pub fqdn: String,
    /// `Cluster`, or `ClusterSet` for several clusters; empty means `Cluster`.
    pub scope: String,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// Namespaces relative to that of each Pod that a rule applies to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeerNamespaces {
    /// `Self` for the namespace of the Pod; may be empty.
    #[serde(rename = "match")]
    pub matching: String,
    /// Label keys: the Namespaces that have the same values of all of them.
    pub same_labels: Vec<String>,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// Name and namespace of a Service or ServiceAccount.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceReference {
    /// Name of the referenced object.
    pub name: String,
    /// Namespace of the referenced object; empty may mean that of the policy.
    pub namespace: String,
    /// `Cluster`, or `ClusterSet` for several clusters; empty means `Cluster`.
    pub scope: String,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A port, or a range of ports.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Transport protocol; TCP by default.
    pub protocol: WrittenProtocol,
    /// Number or name of the destination port; all ports if `None`.
    pub port: Option<IntOrString>,
    /// Last port of a range that begins with `port`.
    pub end_port: Option<i64>,
    /// Number of the source port; all ports if `None`.
    pub source_port: Option<i64>,
    /// Last port of a range that begins with `source_port`.
    pub source_end_port: Option<i64>,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A protocol without ports.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NumberedProtocol {
    /// ICMP, or ICMPv6 with the same numbers.
    pub icmp: Option<Icmp>,
    /// Names of unknown fields, such as `igmp`.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// Messages of ICMP; all if both are `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Icmp {
    /// 0 to 255, not validated.
    pub icmp_type: Option<i64>,
    /// 0 to 255, not validated.
    pub icmp_code: Option<i64>,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}
