//! Metadata, selectors, and other parts that several kinds share.

mod timestamp;

pub use timestamp::{InvalidTimestamp, Timestamp};

use std::collections::{BTreeMap, BTreeSet};

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ObjectName;

/// Labels of an object by key.
pub type Labels = BTreeMap<String, String>;

/// `metadata` of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Name, unique within the namespace and kind.
    pub name: String,
    /// Namespace; empty for objects without one.
    pub namespace: String,
    /// Unique for all time, unlike the name.
    pub uid: String,
    /// Incremented by the API server with each change of the spec.
    pub generation: i64,
    /// Labels, which selectors match.
    pub labels: Labels,
    /// Annotations; their keys have a domain, as `node.antrea.io/` is.
    pub annotations: BTreeMap<String, String>,
    /// When it was created, by the API server's clock.
    #[serde(deserialize_with = "timestamp::lenient")]
    pub creation_timestamp: Option<Timestamp>,
    /// Time of the deletion request, if there was one.
    pub deletion_timestamp: Option<String>,
}

impl Metadata {
    /// Namespace and name together.
    pub fn object_name(&self) -> ObjectName {
        ObjectName { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// A label selector as the API has it, not validated.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LabelSelector {
    /// Labels that must have these values.
    pub match_labels: Labels,
    /// Requirements in addition to the labels.
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement of a label selector.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelRequirement {
    /// Key of the label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values for `In` and `NotIn`.
    #[serde(default)]
    pub values: Vec<String>,
}

/// A port by number or by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// Port number, not validated.
    Int(i64),
    /// Port name, as a container declares it.
    String(String),
}

/// Transport protocol of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// The default of Kubernetes.
    #[default]
    Tcp,
    /// User Datagram Protocol, number 17.
    Udp,
    /// Stream Control Transmission Protocol, number 132.
    Sctp,
}

impl Protocol {
    /// Protocol number in the IP header.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }
}

/// The API server writes an empty list that is required as `null`.
pub(crate) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}

/// A transport protocol that may be unknown: an error can then name it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum WrittenProtocol {
    /// A protocol that policies can be enforced for.
    Known(Protocol),
    /// The unknown text, as it is in the object.
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

/// Names of unknown fields: a newer version of the API has them, and their meaning is unknown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnknownFields(pub BTreeSet<String>);

impl<'de> Deserialize<'de> for UnknownFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields: BTreeMap<String, IgnoredAny> = BTreeMap::deserialize(deserializer)?;
        Ok(Self(fields.into_keys().collect()))
    }
}

impl Serialize for UnknownFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|name| (name, ())))
    }
}
