//! Everything that the brain of the controller takes as input, in one type that can be recorded and replayed.

use serde::{Deserialize, Serialize};
use types::ObjectName;
use types::network_policy::NetworkPolicy;
use types::node::Namespace;
use types::pod::Pod;

/// A change of the cluster.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Event {
    /// A Pod was added or changed.
    Pod(Box<Pod>),
    /// A Pod was deleted.
    PodGone(ObjectName),
    /// A Namespace was added or changed.
    Namespace(Namespace),
    /// A Namespace was deleted.
    NamespaceGone(String),
    /// A NetworkPolicy was added or changed.
    Policy(Box<NetworkPolicy>),
    /// A NetworkPolicy was deleted.
    PolicyGone(ObjectName),
    /// The initial list of a kind is complete.
    Synced(Kind),
}

/// A kind of objects that policies depend on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Kind {
    Pod,
    Namespace,
    Policy,
}
