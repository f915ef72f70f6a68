//! Sets of fields, as trees.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A step of a path in the notation of `fieldsV1`: `f:name`, `k:{"name":"x"}` or `v:"x"`.
pub(crate) type Step = String;

/// A set of paths to fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(BTreeMap<Step, Node>);

#[derive(Clone, Debug, Default, PartialEq)]
struct Node {
    /// Whether the path that ends here is in the set.
    member: bool,
    below: Fields,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl Fields {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, path: &[Step]) {
        let [first, rest @ ..] = path else { return };
        let node = self.0.entry(first.clone()).or_default();
        if rest.is_empty() {
            node.member = true;
        } else {
            node.below.insert(rest);
        }
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        for (step, node) in &other.0 {
            let mine = all.0.entry(step.clone()).or_default();
            mine.member |= node.member;
            mine.below = mine.below.union(&node.below);
        }
        all
    }

    fn combine(&self, other: &Self, keep: fn(bool, bool) -> bool) -> Self {
        let nothing = Node::default();
        let nodes = self.0.iter().map(|(step, node)| {
            let other = other.0.get(step).unwrap_or(&nothing);
            let member = keep(node.member, other.member);
            (step.clone(), Node { member, below: node.below.combine(&other.below, keep) })
        });
        Self(nodes.filter(|(_, node)| !node.is_empty()).collect())
    }

    pub(crate) fn minus(&self, other: &Self) -> Self {
        self.combine(other, |mine, other| mine && !other)
    }

    pub(crate) fn both(&self, other: &Self) -> Self {
        self.combine(other, |mine, other| mine && other)
    }

    /// All paths in the set.
    pub(crate) fn paths(&self) -> Vec<Vec<Step>> {
        let mut all = Vec::new();
        for (step, node) in &self.0 {
            if node.member {
                all.push(vec![step.clone()]);
            }
            all.extend(node.below.paths().into_iter().map(|mut path| {
                path.insert(0, step.clone());
                path
            }));
        }
        all
    }

    /// Whether the set has the path or one below it.
    pub(crate) fn reaches(&self, path: &[Step]) -> bool {
        match path {
            [] => true,
            [first, rest @ ..] => self.0.get(first).is_some_and(|node| node.below.reaches(rest)),
        }
    }

    /// Removes fields without owner, such as names and versions, and those in `more`.
    pub(crate) fn strip(&mut self, more: &[&str]) {
        for step in ["f:apiVersion", "f:kind"].iter().chain(more) {
            self.0.remove(*step);
        }
        if let Some(metadata) = self.0.get_mut("f:metadata") {
            metadata.member = false;
            for name in NEVER_OWNED {
                metadata.below.0.remove(*name);
            }
            if metadata.is_empty() {
                self.0.remove("f:metadata");
            }
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let node = |(step, node): (&Step, &Node)| {
            let mut inner = match node.below.to_json() {
                Value::Object(map) => map,
                _ => Map::new(),
            };
            if node.member && !inner.is_empty() {
                inner.insert(".".into(), Value::Object(Map::new()));
            }
            (step.clone(), Value::Object(inner))
        };
        Value::Object(self.0.iter().map(node).collect())
    }

    pub(crate) fn from_json(value: &Value) -> Self {
        let nodes = value.as_object().into_iter().flatten().filter(|(step, _)| *step != ".").map(|(step, inner)| {
            let leaf = inner.as_object().is_none_or(Map::is_empty);
            (step.clone(), Node { member: leaf || inner.get(".").is_some(), below: Self::from_json(inner) })
        });
        Self(nodes.collect())
    }
}

const NEVER_OWNED: &[&str] = &[
    "f:name",
    "f:namespace",
    "f:creationTimestamp",
    "f:selfLink",
    "f:uid",
    "f:generation",
    "f:managedFields",
    "f:resourceVersion",
    "f:deletionTimestamp",
    "f:deletionGracePeriodSeconds",
];

/// A path in the format of conflicts: `.spec.containers[name="c"].image`.
pub(crate) fn display(path: &[Step]) -> String {
    let step = |step: &Step| match step.split_at_checked(2) {
        Some(("f:", name)) => format!(".{name}"),
        Some(("v:", value)) => format!("[={value}]"),
        Some(("i:", index)) => format!("[{index}]"),
        Some(("k:", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        _ => step.clone(),
    };
    path.iter().map(step).collect()
}
