//! A Node described in a file: Kubernetes objects, and what Kubernetes does not know of the Node.

mod compile;
mod node_state;
#[cfg(test)]
mod oracle;
mod read;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use types::ObjectName;
use types::network_policy::NetworkPolicy;
use types::node::{Namespace, Node};
use types::pod::Pod;
use types::service::{EndpointSlice, Service};

pub(crate) use compile::Compiled;
use node_state::NodeState;

/// Everything that a file says.
#[derive(Debug, Default)]
pub(crate) struct State {
    file: String,
    /// Where in the file each object is, by kind and name.
    places: BTreeMap<String, String>,
    node_state: Option<NodeState>,
    namespaces: BTreeMap<String, Namespace>,
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<ObjectName, Pod>,
    services: BTreeMap<ObjectName, Service>,
    slices: Vec<EndpointSlice>,
    policies: BTreeMap<ObjectName, NetworkPolicy>,
}

impl State {
    /// Reads a file.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| file.clone())?;
        Self::read(&file, &text)
    }
}
