//! Policies: who may talk to whom, and what each Node has to know of it.
//!
//! *Role.* [`Brain`] follows what happens to Pods, Namespaces and policies, and tells each Node the groups and policies that it
//! needs ([`types::control`]): a snapshot, then what changes. [`Replica`] is what a Node holds of it, and what it has to enforce.
//! [`presume`] is what a Node does without a controller. [`compute`] looks at everything at once: the reference that the others are measured against.
//!
//! *Invariants.* The result depends on the objects, not on their order, and not on the way to them. A change touches only the
//! groups, policies and Nodes that it is about; what nobody needs any more is forgotten. A policy that cannot be understood is
//! reported, names object and field, isolates the Pods it would apply to as far as they are known, allows nothing that is not
//! understood, and holds up no other: missing information fails closed. Nobody is told anything before everything is known.
//!
//! *Not here.* Flows (crate `pipeline`); how Nodes are told (crate `api`, and the controller).

mod brain;
mod cluster;
mod endpoint;
mod group_id;
mod presume;
mod reading;
mod replica;
mod resolve;
mod rules;

pub use brain::{Brain, Event, Held, Kind, Subscription, Superseded};
pub use cluster::Cluster;
pub use endpoint::Endpoint;
pub use presume::presume;
pub use replica::{Enforced, Groups, OutOfStep, Replica};
pub use resolve::PolicyRule;
pub use rules::{Computed, compute};
pub use types::control::{Direction, IpBlock, Ports};
