//! Kubernetes NetworkPolicies.
//!
//! Fields that are not known are kept by name: a policy that says more than is understood must not be read as if it did not, and
//! must not keep the others from being read.

use serde::Deserialize;

use crate::meta::{IntOrString, LabelSelector, Metadata, UnknownFields, WrittenProtocol};

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
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicySpec {
    /// The Pods of its namespace that it applies to.
    pub pod_selector: LabelSelector,
    /// `Ingress`, `Egress` or both; if empty, ingress and what there are rules for.
    pub policy_types: Vec<String>,
    /// What may come in.
    pub ingress: Vec<IngressRule>,
    /// What may go out.
    pub egress: Vec<EgressRule>,
    /// What else is written there.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// One way in.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressRule {
    /// From whom; from anyone if empty.
    pub from: Vec<PolicyPeer>,
    /// To which ports; to all if empty.
    pub ports: Vec<PolicyPort>,
    /// What else is written there.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// One way out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EgressRule {
    /// To whom; to anyone if empty.
    pub to: Vec<PolicyPeer>,
    /// To which ports; to all if empty.
    pub ports: Vec<PolicyPort>,
    /// What else is written there.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// The other end.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyPeer {
    /// Pods, of the policy's namespace unless another is selected.
    pub pod_selector: Option<LabelSelector>,
    /// Namespaces; all their Pods unless some are selected.
    pub namespace_selector: Option<LabelSelector>,
    /// A range of addresses.
    pub ip_block: Option<IpBlock>,
    /// What else is written there.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A range of addresses with holes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpBlock {
    /// The range.
    pub cidr: String,
    /// Its holes.
    pub except: Vec<String>,
    /// What else is written there.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// A port, or a range of them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyPort {
    /// The protocol.
    pub protocol: WrittenProtocol,
    /// The port; all if not given.
    pub port: Option<IntOrString>,
    /// The last port of a range.
    pub end_port: Option<i64>,
    /// What else is written there.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Protocol;

    #[test]
    fn a_policy_of_a_newer_version_is_read_and_what_is_new_is_kept_by_name() {
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
    }
}
