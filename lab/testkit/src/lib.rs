//! For tests and the lab: a private Open vSwitch for each test, waiting for conditions, and the rules of this workspace.
//!
//! *Role.* [`Ovs`] runs a private ovsdb-server and ovs-vswitchd in a temporary directory: on the dummy datapath, where
//! packets go in and come out as bytes, or inside a [`Netns`] on the userspace datapath, where a [`Host`] is a Pod that
//! pings and connects. [`ControlPlane`] is a private Kubernetes. [`Process`] and [`Scratch`] are what they are made of;
//! [`wait`] turns "it should happen soon" into a condition; [`mutate`] is the short version of the fuzzer; [`frames`]
//! composes packets, and [`hostile`] composes and judges those of an attacker; [`recorded`] has what earlier versions wrote. The unit tests in `workspace_rules` check the crate graph, the manifests, every file, and the language of comments and messages.
//!
//! *Invariants.* Nothing is shared between two sandboxes, so tests run in parallel. Nothing outlives the process,
//! even when it is killed: children get a death signal from a thread that never ends, and namespaces have no name. (A
//! directory may stay behind, until the next process that uses this crate sweeps it.) Nothing sleeps outside [`wait`].
//!
//! *Not here.* Knowledge of what this project puts into the switch: this crate depends on no other crate here, and is a
//! dev-dependency, except of the lab.

pub mod dice;
pub mod frames;
pub mod host;
pub mod hostile;
pub mod kubernetes;
pub mod mutate;
pub mod netns;
pub mod ovs;
pub mod process;
pub mod recorded;
pub mod scratch;
pub mod wait;

#[cfg(test)]
mod lifetime_tests;
#[cfg(test)]
mod workspace_rules;

pub use host::{Host, Nic};
pub use kubernetes::ControlPlane;
pub use netns::{Netns, veth_pair};
pub use ovs::Ovs;
pub use process::Process;
pub use scratch::Scratch;
