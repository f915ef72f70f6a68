//! ConfigMaps.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::meta::Metadata;

/// A ConfigMap.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigMap {
    /// Name and namespace.
    pub metadata: Metadata,
    /// Its texts.
    pub data: BTreeMap<String, String>,
}
