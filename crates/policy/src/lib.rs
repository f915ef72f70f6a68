//! Policies to rules: who may talk to whom, with selectors, names and ranges resolved.
//!
//! *Role.* [`compute`] looks at everything and says which rules there are and which Pods are isolated.
//!
//! *Invariants.* The result depends on the objects, not on their order. A policy that cannot be understood is reported, names
//! object and field, and isolates the Pods it would apply to as far as they are known: missing information fails closed.
//!
//! *Not here.* Flows (crate `pipeline`), and the incremental computation, whose result must be this one's.

mod cluster;
mod rules;

pub use cluster::{Cluster, Endpoint};
pub use rules::{Computed, Direction, IpBlock, PolicyRule, Ports, compute};
