//! NetworkPolicies of `networking.k8s.io/v1`.
//!
//! Unknown fields are kept by name: a policy with a field of a newer version must neither be enforced without it, nor
//! prevent other policies from being read.

use serde::{Deserialize, Serialize};

use crate::meta::{IntOrString, LabelSelector, Metadata, UnknownFields, WrittenProtocol};

/// A NetworkPolicy as the API server has it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicy {
    /// Name, namespace and generation.
    pub metadata: Metadata,
    /// Selected Pods and allowed connections.
    pub spec: NetworkPolicySpec,
}

/// `spec` of a NetworkPolicy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicySpec {
    /// The Pods of its namespace that the policy applies to.
    pub pod_selector: LabelSelector,
    /// `Ingress`, `Egress` or both. If empty: ingress, and egress if there are egress rules.
    pub policy_types: Vec<String>,
    /// Allowed connections to the selected Pods.
    pub ingress: Vec<IngressRule>,
    /// Allowed connections from the selected Pods.
    pub egress: Vec<EgressRule>,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A rule that allows connections to the selected Pods.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressRule {
    /// Allowed clients; all if empty.
    pub from: Vec<PolicyPeer>,
    /// Allowed ports of the selected Pods; all if empty.
    pub ports: Vec<PolicyPort>,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A rule that allows connections from the selected Pods.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EgressRule {
    /// Allowed destinations; all if empty.
    pub to: Vec<PolicyPeer>,
    /// Allowed ports of the destinations; all if empty.
    pub ports: Vec<PolicyPort>,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// Clients or destinations of a rule.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyPeer {
    /// Selects Pods, in the policy's namespace unless `namespace_selector` is set.
    pub pod_selector: Option<LabelSelector>,
    /// Selects Namespaces; all their Pods unless `pod_selector` is set.
    pub namespace_selector: Option<LabelSelector>,
    /// A range of addresses; excludes the selectors.
    pub ip_block: Option<IpBlock>,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A range of addresses with exceptions.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpBlock {
    /// Range such as `10.0.0.0/8`.
    pub cidr: String,
    /// Ranges within `cidr` that are left out.
    pub except: Vec<String>,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A port, or a range of ports.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyPort {
    /// Transport protocol; TCP by default.
    pub protocol: WrittenProtocol,
    /// Number or name; all ports if `None`.
    pub port: Option<IntOrString>,
    /// Last port of a range that begins with `port`.
    pub end_port: Option<i64>,
    /// Names of unknown fields.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Protocol;

    #[test]
    fn unknown_fields_of_a_newer_version_are_kept_by_name() {
        let text = r#"{
            "metadata": {"name": "p", "namespace": "x", "uid": "u", "generation": 3, "labels": {"a": "b"}},
            "spec": {
                "podSelector": {"matchLabels": {"app": "web"}},
                "priority": 7,
                "ingress": [{
                    "from": [{"podSelector": {}, "nodeSelector": {"a": "b"}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}],
                    "ports": [{"protocol": "ICMP"}, {"protocol": "SCTP", "port": "web"}, {"port": 80, "endPort": 90}]
                }]
            }
        }"#;
        let policy: NetworkPolicy = serde_json::from_str(text).unwrap();
        assert_eq!((policy.metadata.uid.as_str(), policy.metadata.generation), ("u", 3));
        let unknown = |name: &str| UnknownFields([name.to_owned()].into());
        let rule = &policy.spec.ingress[0];
        assert_eq!((&policy.spec.unknown, &rule.from[0].unknown), (&unknown("priority"), &unknown("nodeSelector")));
        assert_eq!((&rule.unknown, &rule.from[1].unknown), (&UnknownFields::default(), &UnknownFields::default()));
        assert_eq!(rule.from[1].ip_block.as_ref().unwrap().cidr, "10.0.0.0/8");
        let protocols: Vec<&WrittenProtocol> = rule.ports.iter().map(|port| &port.protocol).collect();
        let expected = [WrittenProtocol::Other("ICMP".to_owned()), Protocol::Sctp.into(), Protocol::Tcp.into()];
        assert_eq!(protocols, expected.iter().collect::<Vec<_>>());
        assert_eq!((rule.ports[2].port.clone(), rule.ports[2].end_port), (Some(IntOrString::Int(80)), Some(90)));
        // It is written as it was read, but for the values of what is not known.
        let written = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<NetworkPolicy>(&written).unwrap(), policy);
    }
}
