//! Types of objects and their fields: one description for decoding, patches, server-side apply and OpenAPI.
//!
//! Built-in types are read from a table; custom ones are made from their structural schema.

use std::collections::HashMap;
use std::sync::OnceLock;

mod decode;
mod normal;
mod protobuf;
pub(crate) use decode::{Decoded, decode, json_kind, restore};
pub(crate) use normal::normalise;
pub(crate) use protobuf::from_protobuf;

/// The type of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    Text,
    Int32,
    Int64,
    Double,
    Bool,
    Bytes,
    IntOrText,
    Quantity,
    Time,
    MicroTime,
    /// Any value; objects merge by field, lists as a whole.
    Any,
    /// An object of the type with this index.
    Type(usize),
    List(Box<Shape>, ListKind),
    Map(Box<Shape>, MapKind),
}

/// How lists are merged, and who owns their items.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ListKind {
    /// As a single value.
    Atomic,
    /// By the value of the items.
    Set,
    /// By these fields of the items.
    Keyed(Vec<String>),
}

/// How maps are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    Granular,
    Atomic,
}

/// A field of a type.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) required: bool,
    /// Whether it is written even if it is empty.
    pub(crate) always: bool,
    pub(crate) shape: Shape,
    /// Field number in protobuf; two if it is inlined from a message of its own, 0 if it is never sent in protobuf.
    pub(crate) number: (u32, u32),
}

/// The fields of an object, sorted by name.
#[derive(Clone, Debug)]
pub(crate) struct Type {
    /// Name with its package, such as `core.v1.PodSpec`.
    pub(crate) name: String,
    pub(crate) fields: Vec<Field>,
    /// Whether it is merged and owned as a single value.
    pub(crate) atomic: bool,
    /// Whether unknown fields are kept.
    pub(crate) open: bool,
}

impl Type {
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        let index = self.fields.binary_search_by(|field| field.name.as_str().cmp(name)).ok()?;
        self.fields.get(index)
    }

    /// Name without the package: `PodSpec`.
    pub(crate) fn short(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or_default()
    }
}

/// Types that refer to each other.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    types: Vec<Type>,
    by_name: HashMap<String, usize>,
    /// Whether scalars of a wrong type are reported by validation instead of decoding.
    lenient: bool,
}

impl Schema {
    /// The types of Kubernetes, parsed once.
    pub(crate) fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Schema> = OnceLock::new();
        BUILTIN.get_or_init(|| Self::parse(include_str!("../schema/kubernetes.txt")))
    }

    /// An empty schema of which scalars are checked by validation.
    pub(crate) fn lenient() -> Self {
        Self { lenient: true, ..Self::default() }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&Type> {
        self.types.get(index)
    }

    /// The shape of the type with this name; [`Shape::Any`] if there is none.
    pub(crate) fn named(&self, name: &str) -> Shape {
        self.by_name.get(name).map_or(Shape::Any, |&index| Shape::Type(index))
    }

    /// Adds a type, and returns its index.
    pub(crate) fn add(&mut self, mut new: Type) -> usize {
        new.fields.sort_by(|a, b| a.name.cmp(&b.name));
        let index = self.types.len();
        self.by_name.insert(new.name.clone(), index);
        self.types.push(new);
        index
    }

    fn parse(text: &str) -> Self {
        let lines = || text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(' '));
        let names = lines().filter_map(|mut words| words.next());
        let by_name: HashMap<_, _> = names.enumerate().map(|(index, name)| (name.to_owned(), index)).collect();
        let types = lines().map(|mut words| {
            let name = words.next().unwrap_or_default();
            let mut fields: Vec<_> = words.filter_map(|word| read_field(name, word, &by_name)).collect();
            fields.sort_by(|a, b| a.name.cmp(&b.name));
            let short = name.rsplit('.').next().unwrap_or_default();
            Type { name: name.to_owned(), fields, atomic: ATOMIC.contains(&short), open: false }
        });
        Self { types: types.collect(), by_name, lenient: false }
    }
}

/// Types with a single owner for all fields.
const ATOMIC: &[&str] = &[
    "LabelSelector",
    "ObjectReference",
    "LocalObjectReference",
    "SecretKeySelector",
    "ConfigMapKeySelector",
    "OwnerReference",
    "ObjectFieldSelector",
    "ResourceFieldSelector",
    "NodeSelector",
    "NodeSelectorTerm",
    "SecretReference",
    "TypedLocalObjectReference",
    "EndpointPort",
    "RoleRef",
    "Subject",
    "FileKeySelector",
];

/// Fields that are optional in requests and always present in responses.
const ALWAYS: &[(&str, &str)] = &[
    ("Container", "resources"),
    ("EphemeralContainer", "resources"),
    ("PodTemplateSpec", "metadata"),
    ("PodTemplateSpec", "spec"),
    ("DeploymentSpec", "strategy"),
    ("DaemonSetSpec", "updateStrategy"),
    ("ReplicaSetSpec", "template"),
    ("ServiceStatus", "loadBalancer"),
    ("NodeStatus", "daemonEndpoints"),
    ("NodeStatus", "nodeInfo"),
    ("NodeDaemonEndpoints", "kubeletEndpoint"),
    ("ContainerStatus", "state"),
    ("ContainerStatus", "lastState"),
    ("Event", "source"),
    ("Event", "reportingComponent"),
    ("Event", "reportingInstance"),
    ("Endpoint", "conditions"),
    ("NetworkPolicySpec", "podSelector"),
    ("PodCondition", "lastProbeTime"),
    ("PodCondition", "lastTransitionTime"),
    ("NodeCondition", "lastHeartbeatTime"),
    ("NodeCondition", "lastTransitionTime"),
    ("DeploymentCondition", "lastUpdateTime"),
    ("DeploymentCondition", "lastTransitionTime"),
    ("ContainerStateRunning", "startedAt"),
    ("ContainerStateTerminated", "startedAt"),
    ("ContainerStateTerminated", "finishedAt"),
    ("Event", "eventTime"),
    ("Event", "firstTimestamp"),
    ("Event", "lastTimestamp"),
    ("Event", "deprecatedSource"),
    ("Event", "deprecatedFirstTimestamp"),
    ("Event", "deprecatedLastTimestamp"),
    ("EndpointSlice", "endpoints"),
    ("EndpointSlice", "ports"),
];

fn read_field(of: &str, word: &str, types: &HashMap<String, usize>) -> Option<Field> {
    let mark = word.find(['?', '!'])?;
    let (name, rest) = (word.get(..mark)?, word.get(mark + 1..)?);
    let (rest, number) = rest.split_once('#').unwrap_or((rest, "0"));
    let (first, second) = number.split_once('.').unwrap_or((number, "0"));
    let number = (first.parse().ok()?, second.parse().ok()?);
    let required = word.get(mark..=mark)? == "!";
    let (package, short) = of.rsplit_once('.')?;
    let top = !package.starts_with("meta.") && matches!(name, "metadata" | "spec" | "status");
    let always = required || ALWAYS.contains(&(short, name)) || (top && !short.ends_with("Spec"));
    Some(Field { name: name.to_owned(), required, always, shape: read_shape(rest, types), number })
}

fn read_shape(text: &str, types: &HashMap<String, usize>) -> Shape {
    let inner = |from: usize, until: usize| Box::new(read_shape(text.get(from..until).unwrap_or_default(), types));
    match text {
        "string" => Shape::Text,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "double" => Shape::Double,
        "bool" => Shape::Bool,
        "bytes" => Shape::Bytes,
        "intOrString" => Shape::IntOrText,
        "quantity" => Shape::Quantity,
        "time" => Shape::Time,
        "microtime" => Shape::MicroTime,
        _ if text.starts_with('[') => Shape::List(inner(1, text.len() - 1), ListKind::Atomic),
        _ if text.starts_with('{') => Shape::List(inner(1, text.len() - 1), ListKind::Set),
        _ if text.starts_with('(') => {
            let colon = text.find(':').unwrap_or_default();
            let keys = text.get(1..colon).unwrap_or_default().split(',').map(str::to_owned).collect();
            Shape::List(inner(colon + 1, text.len() - 1), ListKind::Keyed(keys))
        }
        _ if text.starts_with('*') => Shape::Map(inner(1, text.len()), MapKind::Granular),
        _ if text.starts_with('%') => Shape::Map(inner(1, text.len()), MapKind::Atomic),
        _ => types.get(text).map_or(Shape::Any, |&index| Shape::Type(index)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_types_is_parsed() {
        let schema = Schema::builtin();
        let Shape::Type(spec) = schema.named("core.v1.ServiceSpec") else { panic!("no ServiceSpec") };
        let ports = &schema.get(spec).unwrap().field("ports").unwrap().shape;
        let Shape::List(item, ListKind::Keyed(keys)) = ports else { panic!("{ports:?}") };
        assert_eq!(keys, &["port", "protocol"]);
        assert_eq!(**item, schema.named("core.v1.ServicePort"));
        let Shape::Type(pod) = schema.named("core.v1.Pod") else { panic!("no Pod") };
        assert!(schema.get(pod).unwrap().field("status").unwrap().always);
        let meta = schema.get(pod).unwrap().field("metadata").unwrap();
        let Shape::Type(meta) = meta.shape else { panic!("{meta:?}") };
        assert!(!schema.get(meta).unwrap().field("labels").unwrap().always);
    }
}
