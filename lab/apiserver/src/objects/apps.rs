//! Deployments, ReplicaSets and DaemonSets.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Condition, IntOrString, Metadata, Strings, nullable};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Deployment {
    pub(crate) metadata: Metadata,
    pub(crate) spec: DeploymentSpec,
    pub(crate) status: DeploymentStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeploymentSpec {
    pub(crate) replicas: usize,
    pub(crate) selector: LabelSelector,
    pub(crate) strategy: Strategy,
    pub(crate) template: PodTemplate,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LabelSelector {
    #[serde(deserialize_with = "nullable")]
    pub(crate) match_labels: Strings,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Strategy {
    #[serde(deserialize_with = "nullable")]
    pub(crate) rolling_update: RollingUpdate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct RollingUpdate {
    pub(crate) max_surge: Option<IntOrString>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeploymentStatus {
    #[serde(deserialize_with = "nullable")]
    pub(crate) conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReplicaSet {
    pub(crate) metadata: Metadata,
    pub(crate) spec: ReplicaSetSpec,
    pub(crate) status: ReplicaSetStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReplicaSetSpec {
    pub(crate) replicas: usize,
    pub(crate) template: PodTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ReplicaSetStatus {
    pub(crate) replicas: usize,
    pub(crate) ready_replicas: usize,
    pub(crate) terminating_replicas: usize,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonSet {
    pub(crate) metadata: Metadata,
    pub(crate) spec: DaemonSetSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonSetSpec {
    pub(crate) template: PodTemplate,
}

/// Copied as a whole into ReplicaSets and Pods, so no field is dropped.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct PodTemplate {
    pub(crate) metadata: TemplateMetadata,
    pub(crate) spec: TemplateSpec,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct TemplateMetadata {
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Strings::is_empty")]
    pub(crate) labels: Strings,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Strings::is_empty")]
    pub(crate) annotations: Strings,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct TemplateSpec {
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Strings::is_empty")]
    pub(crate) node_selector: Strings,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(crate) tolerations: Vec<Value>,
    #[serde(flatten)]
    other: Map<String, Value>,
}
