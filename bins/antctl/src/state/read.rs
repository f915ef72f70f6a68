//! From YAML to objects.

use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;
use types::ObjectName;
use types::meta::Metadata;

use super::State;

/// Kinds that may be in a file, for errors.
const KINDS: &str = "NodeState, Namespace, Node, Pod, Service, EndpointSlice, NetworkPolicy, List";

impl State {
    /// Reads a stream of YAML documents; `file` is for errors.
    pub(super) fn read(file: &str, text: &str) -> Result<Self> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|e| anyhow!("{file}: {e}"))?;
        let mut state = State { file: file.to_owned(), ..State::default() };
        for (number, document) in (1..).zip(documents) {
            state.take(&format!("document {number}"), document).with_context(|| file.to_owned())?;
        }
        Ok(state)
    }

    /// An error about an object, which it begins with, with the place of the object.
    pub(super) fn placed(&self, error: &anyhow::Error) -> anyhow::Error {
        let text = format!("{error:#}");
        let is_about = |(object, _): &(&String, &String)| {
            text.strip_prefix(object.as_str()).is_some_and(|rest| rest.starts_with(": "))
        };
        match self.places.iter().find(is_about) {
            Some((_, place)) => anyhow!("{}: {place}: {text}", self.file),
            None => anyhow!("{}: {text}", self.file),
        }
    }

    fn take(&mut self, place: &str, document: Value) -> Result<()> {
        if document.is_null() {
            return Ok(());
        }
        let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if kind.ends_with("List") {
            let Some(Value::Array(items)) = document.get("items").cloned() else {
                bail!("{place}: {kind}: items: needs a list");
            };
            for (number, item) in (0..).zip(items) {
                self.take(&format!("{place}: items[{number}]"), item)?;
            }
            return Ok(());
        }
        let object = format!("{kind} {}", name_of(&kind, &document));
        self.take_object(&kind, document).with_context(|| format!("{place}: {object}"))?;
        self.places.insert(object, place.to_owned());
        Ok(())
    }

    fn take_object(&mut self, kind: &str, document: Value) -> Result<()> {
        match kind {
            "NodeState" => {
                if self.node_state.replace(typed(document)?).is_some() {
                    bail!("there is one already: a file describes one Node");
                }
            }
            "Namespace" => {
                insert(&mut self.namespaces, typed(document)?, |n: &types::node::Namespace| n.metadata.name.clone())?;
            }
            "Node" => insert(&mut self.nodes, typed(document)?, |n: &types::node::Node| n.metadata.name.clone())?,
            "Pod" => insert(&mut self.pods, typed(document)?, |p: &types::pod::Pod| named(&p.metadata))?,
            "Service" => {
                insert(&mut self.services, typed(document)?, |s: &types::service::Service| named(&s.metadata))?;
            }
            "NetworkPolicy" => {
                insert(&mut self.policies, typed(document)?, |p: &types::network_policy::NetworkPolicy| {
                    named(&p.metadata)
                })?;
            }
            "EndpointSlice" => self.slices.push(typed(document)?),
            "" => bail!("kind: needs to be one of {KINDS}"),
            other => bail!("kind: `{other}` is none of {KINDS}"),
        }
        Ok(())
    }
}

fn insert<K: Ord, T>(into: &mut std::collections::BTreeMap<K, T>, object: T, key: impl Fn(&T) -> K) -> Result<()> {
    match into.insert(key(&object), object) {
        None => Ok(()),
        Some(_) => bail!("metadata.name: there is one already"),
    }
}

fn named(metadata: &Metadata) -> ObjectName {
    let mut name = metadata.object_name();
    if name.namespace.is_empty() {
        "default".clone_into(&mut name.namespace);
    }
    name
}

/// The object as its type, or an error that names the field.
fn typed<T: DeserializeOwned>(document: Value) -> Result<T> {
    serde_path_to_error::deserialize(document).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." => anyhow!("{}", error.inner()),
            path => anyhow!("{path}: {}", error.inner()),
        }
    })
}

fn name_of(kind: &str, document: &Value) -> String {
    let part = |name: &str| document.pointer(&format!("/metadata/{name}")).and_then(Value::as_str).unwrap_or_default();
    match (part("namespace"), part("name")) {
        ("", "") => document.get("node").and_then(Value::as_str).unwrap_or("without a name").to_owned(),
        ("", name) if matches!(kind, "Pod" | "Service" | "EndpointSlice" | "NetworkPolicy") => {
            format!("default/{name}")
        }
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}
