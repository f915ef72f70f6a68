//! ConfigMaps: configuration and CA certificates.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::meta::Metadata;

/// A ConfigMap, without its binary data.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMap {
    /// Name and namespace of the ConfigMap.
    pub metadata: Metadata,
    /// Text values by key.
    pub data: BTreeMap<String, String>,
}
