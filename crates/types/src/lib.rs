//! The vocabulary that the brains and the rim share: Kubernetes objects, as far as they are used here, and what a Node's kernel
//! should hold.
//!
//! *Role.* Plain values. Objects have the names and the shape that Kubernetes gives them, so that whoever reads them from a
//! server, a file or a test hands the same thing on; [`host`] is what a brain decides and the crate `host` carries out; [`control`] is
//! what the controller tells a Node.
//!
//! *Invariants.* What is read from outside and does not fit its type is an error that names the field. Fields that nobody here
//! uses are not kept.
//!
//! *Not here.* What the objects mean together (crates `selector`, `policy`, `proxy`).

pub mod config_map;
pub mod control;
pub mod host;
pub mod meta;
pub mod network_policy;
pub mod node;
pub mod pod;
pub mod service;

mod mac;
mod object;

pub use mac::{InvalidMac, Mac};
pub use object::Object;

use std::fmt;

/// A namespaced name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ObjectName {
    /// The namespace; empty for objects that are in none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// A value of an object that cannot be what it is: the object, the field, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind} {name}: {field}: {problem}")]
pub struct InvalidField {
    /// The object's kind.
    pub kind: &'static str,
    /// The object's name.
    pub name: ObjectName,
    /// The path to the field, as in `spec.podSelector.matchExpressions[0].operator`.
    pub field: String,
    /// What is wrong, and what it should be.
    pub problem: String,
}
