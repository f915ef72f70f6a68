//! Kubernetes objects and the settings of Nodes, from YAML.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;
use types::ObjectName;
use types::meta::Metadata;
use types::network_policy::NetworkPolicy;
use types::node::{Namespace, Node};
use types::pod::Pod;
use types::service::{EndpointSlice, Service};

use crate::Error;
use crate::settings::NodeSettings;

/// The kinds that a manifest may contain, for errors.
const KINDS: &str = "NodeState, Namespace, Node, Pod, Service, EndpointSlice, NetworkPolicy, List";

/// An object of the Kubernetes API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Object {
    /// Core `v1`, for its labels
    Namespace(Namespace),
    /// Core `v1`, for its addresses and Pod subnets
    Node(Node),
    /// Core `v1`, attached if it has an address
    Pod(Box<Pod>),
    /// Core `v1`, with endpoints in EndpointSlices
    Service(Box<Service>),
    /// Of `discovery.k8s.io/v1`, with a label for its Service
    EndpointSlice(EndpointSlice),
    /// Of `networking.k8s.io/v1`, in one namespace
    NetworkPolicy(Box<NetworkPolicy>),
}

/// Kind and name of an object, as in `Pod default/web`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ObjectKey {
    /// Kind without a group, such as `Pod`
    pub kind: String,
    /// Namespace and name; the namespace may be empty.
    pub name: ObjectName,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

impl std::str::FromStr for ObjectKey {
    type Err = Error;

    /// Reads `Pod default/web` or `Node node1`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = || Error::new(format!("`{text}` is not a kind and a name, as in `Pod default/web`"));
        let (kind, name) = text.split_once(' ').ok_or_else(invalid)?;
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        let name = ObjectName { namespace: namespace.to_owned(), name: name.to_owned() };
        Ok(Self { kind: kind.to_owned(), name })
    }
}

impl Object {
    /// Kind and name of the object.
    pub fn key(&self) -> ObjectKey {
        let (kind, metadata) = match self {
            Object::Namespace(object) => ("Namespace", &object.metadata),
            Object::Node(object) => ("Node", &object.metadata),
            Object::Pod(object) => ("Pod", &object.metadata),
            Object::Service(object) => ("Service", &object.metadata),
            Object::EndpointSlice(object) => ("EndpointSlice", &object.metadata),
            Object::NetworkPolicy(object) => ("NetworkPolicy", &object.metadata),
        };
        ObjectKey { kind: kind.to_owned(), name: metadata.object_name() }
    }

    fn metadata_mut(&mut self) -> &mut Metadata {
        match self {
            Object::Namespace(object) => &mut object.metadata,
            Object::Node(object) => &mut object.metadata,
            Object::Pod(object) => &mut object.metadata,
            Object::Service(object) => &mut object.metadata,
            Object::EndpointSlice(object) => &mut object.metadata,
            Object::NetworkPolicy(object) => &mut object.metadata,
        }
    }

    fn read(kind: &str, document: Value) -> Result<Self, Error> {
        let mut object = match kind {
            "Namespace" => Object::Namespace(typed(document)?),
            "Node" => Object::Node(typed(document)?),
            "Pod" => Object::Pod(typed(document)?),
            "Service" => Object::Service(typed(document)?),
            "EndpointSlice" => Object::EndpointSlice(typed(document)?),
            "NetworkPolicy" => Object::NetworkPolicy(typed(document)?),
            "" => return Err(Error::new(format!("kind: needs to be one of {KINDS}"))),
            other => return Err(Error::new(format!("kind: `{other}` is none of {KINDS}"))),
        };
        if !matches!(kind, "Namespace" | "Node") && object.metadata_mut().namespace.is_empty() {
            "default".clone_into(&mut object.metadata_mut().namespace);
        }
        Ok(object)
    }
}

/// Objects and Node settings of a YAML stream.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// The objects in the order of the stream.
    pub objects: Vec<Object>,
    /// The documents of kind `NodeState`, by Node.
    pub nodes: BTreeMap<String, NodeSettings>,
    /// The document of each object, for errors: `document 3` or `document 1: items[2]`.
    places: BTreeMap<String, String>,
}

impl Manifest {
    /// Reads a YAML stream.
    pub fn read(text: &str) -> Result<Self, Error> {
        let mut manifest = Manifest::default();
        manifest.extend(text)?;
        Ok(manifest)
    }

    /// Adds the documents of another YAML stream.
    pub(crate) fn extend(&mut self, text: &str) -> Result<(), Error> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| Error::new(error.to_string()))?;
        (1..).zip(documents).try_for_each(|(number, document)| self.take(&format!("document {number}"), document))
    }

    /// Reads objects from a list.
    pub(crate) fn from_values(values: impl IntoIterator<Item = Value>) -> Result<Self, Error> {
        let mut manifest = Manifest::default();
        for (number, value) in (0..).zip(values) {
            manifest.take(&format!("[{number}]"), value)?;
        }
        Ok(manifest)
    }

    /// Prepends the document of the object with which an error begins.
    pub fn locate(&self, error: Error) -> Error {
        let text = error.to_string();
        let is_about = |(object, _): &(&String, &String)| {
            text.strip_prefix(object.as_str()).is_some_and(|rest| rest.starts_with(": "))
        };
        match self.places.iter().find(is_about) {
            Some((_, place)) => error.at(place),
            None => error,
        }
    }

    fn take(&mut self, place: &str, document: Value) -> Result<(), Error> {
        if document.is_null() {
            return Ok(());
        }
        let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if kind.ends_with("List") {
            let Some(Value::Array(items)) = document.get("items").cloned() else {
                return Err(Error::new(format!("{place}: {kind}: items: needs a list")));
            };
            return (0..)
                .zip(items)
                .try_for_each(|(number, item)| self.take(&format!("{place}: items[{number}]"), item));
        }
        if kind == "NodeState" {
            let node = document.get("node").and_then(Value::as_str).unwrap_or("without a name").to_owned();
            let at = |error: Error| error.at(format!("{place}: NodeState {node}"));
            let settings: NodeSettings = typed(document).map_err(at)?;
            self.places.insert(format!("NodeState {node}"), place.to_owned());
            return match self.nodes.insert(node.clone(), settings) {
                None => Ok(()),
                Some(_) => Err(at(Error::new("node: there is one already for this Node"))),
            };
        }
        let name = name_of(&kind, &document);
        let object = Object::read(&kind, document).map_err(|error| error.at(format!("{place}: {kind} {name}")))?;
        let key = object.key().to_string();
        if self.places.insert(key.clone(), place.to_owned()).is_some() {
            return Err(Error::new(format!("{place}: {key}: metadata.name: there is one already")));
        }
        self.objects.push(object);
        Ok(())
    }
}

/// The document as its type, or an error that names the field.
fn typed<T: DeserializeOwned>(document: Value) -> Result<T, Error> {
    serde_path_to_error::deserialize(document).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." => Error::new(error.inner().to_string()),
            path => Error::new(format!("{path}: {}", error.inner())),
        }
    })
}

/// The name of an object that may be invalid.
fn name_of(kind: &str, document: &Value) -> String {
    let part = |name: &str| document.pointer(&format!("/metadata/{name}")).and_then(Value::as_str).unwrap_or_default();
    match (part("namespace"), part("name")) {
        ("", "") => "without a name".to_owned(),
        ("", name) if matches!(kind, "Pod" | "Service" | "EndpointSlice" | "NetworkPolicy") => {
            format!("default/{name}")
        }
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}
