//! A Kubernetes cluster on one machine: `antrea-lab up`.
//!
//! *Role.* Each Node is a set of namespaces on an underlay with a router and an external host, with its own Open vSwitch,
//! network and kubelet; Pods are processes in namespaces; the Kubernetes API is embedded. The network runs as on any Node: it
//! gets its configuration, a kubeconfig and a CNI call for each Pod. Public are the command line ([`Cli`], [`run`]) and what
//! tests need to inspect a running lab: its directory ([`Home`], [`Lab`]) and its addresses ([`plan`]).
//!
//! *Invariants.* Nothing on the host changes except the lab's directory, and labs share nothing. All processes of a lab die
//! with its supervisor, and with them all namespaces and mounts; a directory that is left over is removed by the next `up` or
//! `down`.
//!
//! *Not here.* The network itself: `node::network` starts it, and nothing else in the lab depends on which one it is.

mod accept;
mod cgroups;
mod check;
mod cli;
mod client;
mod commands;
mod container;
mod container_log;
mod endpoint;
mod kubelet;
mod mounts;
mod node;
mod nsenter;
pub mod plan;
mod program;
mod progress;
mod query;
mod request;
mod servers;
mod state;
mod supervisor;

pub use cli::{Cli, run};
pub use state::{Home, Lab};
