//! Everything that the brain of the controller takes as input, in one type that can be recorded and replayed.

use serde::{Deserialize, Serialize};
use types::ObjectName;
use types::antrea;
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
    /// A Tier was added or changed.
    Tier(Box<antrea::Tier>),
    /// A Tier was deleted.
    TierGone(String),
    /// A ClusterNetworkPolicy or NetworkPolicy of Antrea was added or changed.
    AntreaPolicy(Box<antrea::Policy>),
    /// A ClusterNetworkPolicy, which has no namespace, or a NetworkPolicy of Antrea was deleted.
    AntreaPolicyGone(ObjectName),
    /// A ClusterGroup or Group was added or changed.
    Group(Box<antrea::Group>),
    /// A ClusterGroup, which has no namespace, or a Group was deleted.
    GroupGone(ObjectName),
    /// An ExternalEntity was added or changed.
    ExternalEntity(Box<antrea::ExternalEntity>),
    /// An ExternalEntity was deleted.
    ExternalEntityGone(ObjectName),
    /// The API server serves this kind of Antrea, so that its initial list is awaited. Comes before the list.
    Watched(Kind),
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
    /// Awaited only after [`Event::Watched`], like all kinds of Antrea: their CRDs may not be installed.
    Tier,
    ClusterNetworkPolicy,
    AntreaNetworkPolicy,
    ClusterGroup,
    Group,
    ExternalEntity,
}

impl Kind {
    /// The kinds that every API server serves.
    pub(super) const ALWAYS: [Self; 3] = [Self::Pod, Self::Namespace, Self::Policy];
}
