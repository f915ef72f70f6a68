use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ObjectName;

/// The kinds of policy objects. A Kubernetes and an Antrea NetworkPolicy may have the same namespace and name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
pub enum PolicyKind {
    /// A NetworkPolicy of the group `networking.k8s.io`.
    #[default]
    Kubernetes,
    /// A NetworkPolicy of the group `crd.antrea.io`.
    Antrea,
    /// ClusterNetworkPolicy of `crd.antrea.io`, without namespace.
    AntreaCluster,
}

impl PolicyKind {
    /// The name of the kind in messages. It differs from the name in the API, which two kinds share.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "NetworkPolicy",
            Self::Antrea => "AntreaNetworkPolicy",
            Self::AntreaCluster => "AntreaClusterNetworkPolicy",
        }
    }

    /// Kind and version in the Kubernetes API.
    pub fn api(self) -> (&'static str, &'static str) {
        match self {
            Self::Kubernetes => ("NetworkPolicy", "networking.k8s.io/v1"),
            Self::Antrea => ("NetworkPolicy", "crd.antrea.io/v1beta1"),
            Self::AntreaCluster => ("ClusterNetworkPolicy", "crd.antrea.io/v1beta1"),
        }
    }
}

/// A policy object of any kind.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
pub struct PolicyName {
    /// Kind, which tells objects of the same name apart.
    #[serde(default, skip_serializing_if = "is_kubernetes")]
    pub kind: PolicyKind,
    /// Namespace and name of the object.
    #[serde(flatten)]
    pub object: ObjectName,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_kubernetes(kind: &PolicyKind) -> bool {
    *kind == PolicyKind::Kubernetes
}

impl PolicyName {
    /// The name of a Kubernetes NetworkPolicy.
    pub fn kubernetes(object: ObjectName) -> Self {
        Self { kind: PolicyKind::Kubernetes, object }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.object)
    }
}
