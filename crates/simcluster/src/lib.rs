//! A cluster in memory: the controller, an agent for every Node, and a simulated switch for every agent.
//!
//! *Role.* [`Cluster`] takes Kubernetes objects and runs them through the code of the product: `policy::Brain` computes what
//! each Node needs, `node::Brain` turns that into flows, groups and the host's routes and rules, and the simulator is the switch
//! that holds them. [`Cluster::probe`] opens a connection through those switches and tells where it ended. [`Scenario`] is a
//! cluster with steps, for golden files. `antctl` renders and traces with the same cluster.
//!
//! *Invariants.* Nothing here decides: a Node does what `antrea-agent` would do with the same events. Equal inputs give
//! equal outputs, byte for byte. An error names the document, the object and the field.
//!
//! *Not here.* Files and processes; the kernel, of which [`Cluster::probe`] implements routes, NodePorts and
//! masquerading.

mod agent;
mod cluster;
mod controller;
mod host;
mod network;
mod object;
mod probe;
mod scenario;
mod settings;
mod text;

pub use agent::Agent;
pub use cluster::{Cluster, Delivery};
pub use network::{Connection, Place};
pub use object::{Manifest, Object, ObjectKey};
pub use probe::{Probe, Target};
pub use scenario::{Final, Outcome, Scenario, Step};
pub use settings::NodeSettings;
pub use text::flows as render_flows;

/// An invalid input: the document, the object, the field and the fix.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    /// An error with this text.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        Self(format!("{place}: {}", self.0))
    }
}

impl From<types::InvalidField> for Error {
    fn from(field: types::InvalidField) -> Self {
        Self(field.to_string())
    }
}
