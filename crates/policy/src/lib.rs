//! NetworkPolicies of Kubernetes and Antrea: their rules, and which policies and groups each Node needs.
//!
//! *Role.* [`Controller`] is the brain of the controller program: it takes every input as one [`ControllerEvent`]. In it, [`Brain`]
//! processes events of Pods, Namespaces, policies, Tiers and groups, and computes for each Node the groups and policies that it
//! needs ([`types::control`]): a snapshot, then changes. [`Replica`] is the copy on a Node, and what the Node has to enforce.
//! [`presume`] is what a Node does without a controller. [`compute`] looks at everything at once: the reference that the others are measured against.
//!
//! *Invariants.* The result depends on the current objects, not on the order of events. An event changes only the groups, policies
//! and Nodes that it concerns; unused state is removed. An invalid policy fails closed: each invalid field is reported with object and
//! field, the Pods that the policy may apply to are isolated, invalid parts allow nothing, and other policies are not affected. Nodes
//! get nothing before the initial lists of all kinds are complete. In an Antrea policy, a part that is invalid or not supported matches
//! nothing, and a rule that an unknown field would narrow is left out if it allows, and enforced without the field otherwise.
//!
//! *Not here.* Flows (crate `pipeline`); the streams to Nodes (crate `api`, and the controller).

mod brain;
mod cluster;
mod controller;
mod endpoint;
mod group_id;
mod presume;
mod reading;
mod replica;
mod resolve;
mod rules;
pub mod status;

pub use brain::{Brain, Event, Kind, Stats, Subscription, Superseded};
pub use cluster::Cluster;
pub use controller::{Controller, ControllerEffect, ControllerEvent, StreamId};
pub use endpoint::Endpoint;
pub use presume::{Waiting, presume};
pub use replica::{Enforced, Groups, OutOfStep, Replica};
pub use resolve::PolicyRule;
pub use rules::{Computed, compute};
pub use types::control::{Direction, IpBlock, Ports};
