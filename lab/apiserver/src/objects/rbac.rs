//! Roles and their bindings.

use serde::{Deserialize, Serialize};

use super::{Metadata, nullable};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RoleBinding {
    pub(crate) kind: String,
    pub(crate) metadata: Metadata,
    pub(crate) role_ref: RoleRef,
    #[serde(deserialize_with = "nullable")]
    pub(crate) subjects: Vec<Subject>,
}

/// A ClusterRoleBinding has the fields of a RoleBinding.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct ClusterRoleBinding(pub(crate) RoleBinding);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RoleRef {
    pub(crate) kind: String,
    pub(crate) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Subject {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Role {
    #[serde(deserialize_with = "nullable")]
    pub(crate) rules: Vec<PolicyRule>,
}

/// A ClusterRole has the fields of a Role.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct ClusterRole(pub(crate) Role);

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PolicyRule {
    #[serde(deserialize_with = "nullable")]
    pub(crate) verbs: Vec<String>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(crate) api_groups: Vec<String>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(crate) non_resource_urls: Vec<String>,
}
