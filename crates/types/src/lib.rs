//! Types that the brains and the rim share: Kubernetes objects, and the desired state of a Node's network.
//!
//! *Role.* Plain values. Kubernetes objects have the names and fields of the API, as far as something uses them, so
//! that a watch, a file and a test all yield the same type. [`host`] is the desired state of the kernel, which the
//! crate `host` applies. [`control`] is what the controller sends to a Node. [`backoff`] computes delays for all that retry.
//!
//! *Invariants.* Input that does not fit its type is an error that names the field. Unused fields are not kept.
//!
//! *Not here.* How objects affect each other (crates `selector`, `policy`, `proxy`).

pub mod antrea;
pub mod backoff;
pub mod config_map;
pub mod control;
pub mod host;
pub mod meta;
pub mod network;
pub mod network_policy;
pub mod node;
pub mod pod;
pub mod service;

mod mac;
mod object;

pub use mac::{InvalidMac, Mac};
pub use object::Object;

use std::fmt;

use serde::{Deserialize, Serialize};

/// Namespace and name of an object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
pub struct ObjectName {
    /// Namespace; empty for objects without one.
    pub namespace: String,
    /// Name, unique within the namespace and kind.
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

/// An invalid field of an object.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{kind} {name}: {field}: {problem}")]
pub struct InvalidField {
    /// Kind of the object, such as `Service`.
    pub kind: &'static str,
    /// Namespace and name of the object.
    pub name: ObjectName,
    /// Path to the field, as in `spec.podSelector.matchExpressions[0].operator`.
    pub field: String,
    /// The invalid value, and what is allowed.
    pub problem: String,
}
