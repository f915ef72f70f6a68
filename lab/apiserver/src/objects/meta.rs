//! Metadata, owner references and conditions.

use serde::{Deserialize, Serialize};

use super::{Strings, nullable};

/// An object of any kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Object {
    pub(crate) metadata: Metadata,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metadata {
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) namespace: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) uid: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) labels: Strings,
    #[serde(deserialize_with = "nullable")]
    pub(crate) annotations: Strings,
    #[serde(deserialize_with = "nullable")]
    pub(crate) owner_references: Vec<OwnerReference>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) finalizers: Vec<String>,
    pub(crate) creation_timestamp: Option<String>,
    pub(crate) deletion_timestamp: Option<String>,
    pub(crate) generation: Option<i64>,
}

impl Metadata {
    pub(crate) fn is_terminating(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// The reference that a dependent of this object has.
    pub(crate) fn as_controller(&self, api_version: &str, kind: &str) -> OwnerReference {
        OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: true,
            block_owner_deletion: true,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct OwnerReference {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) controller: bool,
    #[serde(deserialize_with = "nullable")]
    pub(crate) block_owner_deletion: bool,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_update_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_transition_time: Option<String>,
}

impl Condition {
    pub(crate) fn find<'a>(conditions: &'a [Self], kind: &str) -> Option<&'a Self> {
        conditions.iter().find(|condition| condition.kind == kind)
    }

    pub(crate) fn is_true(conditions: &[Self], kind: &str) -> bool {
        Self::find(conditions, kind).is_some_and(|condition| condition.status == "True")
    }
}
