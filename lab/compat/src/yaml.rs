//! Reads the data files.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;

/// Parses a YAML file. Only `true` and `false` are booleans: `y` and `no` are strings, as in Kubernetes' YAML.
pub(crate) fn read<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&text, options).with_context(|| format!("{} is malformed", file.display()))
}
