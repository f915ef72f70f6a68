//! Kubernetes NetworkPolicies.

use serde::Deserialize;

use crate::meta::{IntOrString, LabelSelector, Metadata, WrittenProtocol};

/// A NetworkPolicy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicy {
    /// Name and namespace.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: NetworkPolicySpec,
}

/// What is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct NetworkPolicySpec {
    /// The Pods of its namespace that it applies to.
    pub pod_selector: LabelSelector,
    /// `Ingress`, `Egress` or both; if empty, ingress and what there are rules for.
    pub policy_types: Vec<String>,
    /// What may come in.
    pub ingress: Vec<IngressRule>,
    /// What may go out.
    pub egress: Vec<EgressRule>,
}

/// One way in.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct IngressRule {
    /// From whom; from anyone if empty.
    pub from: Vec<PolicyPeer>,
    /// To which ports; to all if empty.
    pub ports: Vec<PolicyPort>,
}

/// One way out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct EgressRule {
    /// To whom; to anyone if empty.
    pub to: Vec<PolicyPeer>,
    /// To which ports; to all if empty.
    pub ports: Vec<PolicyPort>,
}

/// The other end.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PolicyPeer {
    /// Pods, of the policy's namespace unless another is selected.
    pub pod_selector: Option<LabelSelector>,
    /// Namespaces; all their Pods unless some are selected.
    pub namespace_selector: Option<LabelSelector>,
    /// A range of addresses.
    pub ip_block: Option<IpBlock>,
}

/// A range of addresses with holes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct IpBlock {
    /// The range.
    pub cidr: String,
    /// Its holes.
    pub except: Vec<String>,
}

/// A port, or a range of them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PolicyPort {
    /// The protocol.
    pub protocol: WrittenProtocol,
    /// The port; all if not given.
    pub port: Option<IntOrString>,
    /// The last port of a range.
    pub end_port: Option<i64>,
}
