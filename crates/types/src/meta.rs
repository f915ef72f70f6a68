//! What all objects have.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use crate::ObjectName;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// An object's metadata.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// What tells it from others that had or will have its name.
    pub uid: String,
    /// Counts the changes of what is wanted of it.
    pub generation: i64,
    /// Its labels.
    pub labels: Labels,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// When it was asked to go, if it was.
    pub deletion_timestamp: Option<String>,
}

impl Metadata {
    /// Namespace and name.
    pub fn object_name(&self) -> ObjectName {
        ObjectName { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// A selector of objects by their labels, as it is written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels that must have these values.
    pub match_labels: Labels,
    /// Further requirements.
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement of a selector.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelRequirement {
    /// The label's key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// What it is compared with.
    #[serde(default)]
    pub values: Vec<String>,
}

/// A port by number or by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// By number.
    Int(i64),
    /// By name.
    String(String),
}

/// A transport protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Its number in packets.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }
}

/// Kubernetes writes a list that is required and empty as `null`.
pub(crate) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

/// A transport protocol as it is written: one that is not known is kept, so that whoever wrote it can be told.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize)]
#[serde(untagged)]
pub enum WrittenProtocol {
    /// One that is known.
    Known(Protocol),
    /// Another.
    Other(String),
}

impl Default for WrittenProtocol {
    fn default() -> Self {
        Protocol::default().into()
    }
}

impl From<Protocol> for WrittenProtocol {
    fn from(protocol: Protocol) -> Self {
        Self::Known(protocol)
    }
}

/// Names of fields that are not known here: somebody else's newer version has them, and they may mean anything.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnknownFields(pub BTreeSet<String>);

impl<'de> Deserialize<'de> for UnknownFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields: BTreeMap<String, IgnoredAny> = BTreeMap::deserialize(deserializer)?;
        Ok(Self(fields.into_keys().collect()))
    }
}
