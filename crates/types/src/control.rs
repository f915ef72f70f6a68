//! What the controller sends to a Node: groups of Pods, the policies that use them, and their changes.
//!
//! A Node stores AppliedToGroups with its own Pods, AddressGroups with the Pods of all Nodes, the policies that apply to its Pods, and
//! which of its Pods the controller has processed. It receives them in batches, and applies a batch when it is complete. Within a
//! batch, groups are set before the policies that refer to them, and deleted after. The first batch is a snapshot, which replaces
//! the whole state. This lets a Node fail closed: a Kubernetes policy isolates the Pods of its AppliedToGroups, and a rule allows
//! nothing until the Node has every group that the rule refers to; until then, a rule of a tiered policy that does not allow
//! drops the connections to and from all peers.

mod group_id;
mod policy_name;
mod rank;

pub use group_id::{GroupId, InvalidGroupId};
pub use policy_name::{PolicyKind, PolicyName};
pub use rank::{Action, Order, Priority, Rank};

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::ObjectName;
use crate::meta::Protocol;

/// A named port of a Pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct NamedPort {
    pub protocol: Protocol,
    pub name: String,
    pub number: u16,
}

/// A Pod as a member of groups.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
pub struct Member {
    /// The name of the Pod. It identifies the member: two Pods may have the same address for a moment.
    pub pod: ObjectName,
    /// The addresses of the Pod. A Pod without addresses is only in AppliedToGroups.
    pub addresses: Vec<IpAddr>,
    /// The named ports, sorted; a name occurs once per protocol.
    pub ports: Vec<NamedPort>,
}

impl Member {
    /// The number of a named port.
    pub fn port(&self, protocol: Protocol, name: &str) -> Option<u16> {
        self.ports.iter().find(|port| port.protocol == protocol && port.name == name).map(|port| port.number)
    }
}

/// A whole group. An AppliedToGroup has only the Pods of the Node that receives it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Group {
    /// The same on all Nodes and replicas.
    pub id: GroupId,
    /// The members, sorted by Pod.
    pub members: Vec<Arc<Member>>,
}

/// A change of a group.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Patch {
    /// The group to change.
    pub id: GroupId,
    /// New and changed members.
    pub added: Vec<Arc<Member>>,
    /// Members that left the group.
    pub removed: Vec<ObjectName>,
}

/// The direction of connections, seen from the Pods that a policy applies to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
pub enum Direction {
    /// Connections to the Pods.
    Ingress,
    /// Connections from the Pods.
    Egress,
}

/// A CIDR with exceptions.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
pub struct IpBlock {
    /// Addresses that the block includes.
    pub cidr: IpNet,
    /// The excluded addresses within `cidr`.
    pub except: Vec<IpNet>,
}

impl From<IpAddr> for IpBlock {
    fn from(address: IpAddr) -> Self {
        Self { cidr: address.into(), except: Vec::new() }
    }
}

/// Destination ports of a protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
pub struct Ports {
    /// The transport protocol of the ports.
    pub protocol: Protocol,
    /// First and last port; `None` means all ports.
    pub range: Option<(u16, u16)>,
}

/// The peers of a rule.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub struct Peers {
    /// AddressGroups: all members are peers.
    pub groups: Vec<GroupId>,
    /// Addresses, in or outside the cluster.
    pub blocks: Vec<IpBlock>,
}

/// Ports of a rule.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum Service {
    /// A range of port numbers, or all.
    Ports(Ports),
    /// A named port of the destination Pod: the Pod that the policy applies to for ingress, the peer for egress.
    Named {
        /// The transport protocol of the named port.
        protocol: Protocol,
        /// The port name in the Pod spec.
        name: String,
        /// The AddressGroup of all Pods that define the name. Set for egress to an ipBlock or to all peers, which may include Pods that
        /// are in no other group of the rule.
        known_by: Option<GroupId>,
    },
}

/// A rule of a policy.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Rule {
    /// The direction of the connections.
    pub direction: Direction,
    /// The index of the rule among those of its policy and direction.
    pub index: u32,
    /// The name in a tiered policy; rules of Kubernetes policies have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Rules of Kubernetes policies only allow.
    #[serde(default, skip_serializing_if = "Action::is_allow")]
    pub action: Action,
    /// The AppliedToGroups of this rule; `None` means those of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_to: Option<Vec<GroupId>>,
    /// `None` means all peers.
    pub peers: Option<Peers>,
    /// `None` means all ports of all protocols.
    pub services: Option<Vec<Service>>,
}

impl Rule {
    /// A rule of a Kubernetes policy.
    pub fn allow(direction: Direction, index: u32, peers: Option<Peers>, services: Option<Vec<Service>>) -> Self {
        Self { direction, index, name: String::new(), action: Action::Allow, applied_to: None, peers, services }
    }

    /// The AddressGroups that the rule refers to.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        let known_by = self.services.iter().flatten().filter_map(|service| match service {
            Service::Named { known_by, .. } => *known_by,
            Service::Ports(_) => None,
        });
        self.peers.iter().flat_map(|peers| peers.groups.iter().copied()).chain(known_by)
    }
}

/// The directions in which a Pod is isolated: connections that no rule allows are dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
pub struct Isolation {
    /// Connections to the Pod.
    pub ingress: bool,
    /// Connections from the Pod.
    pub egress: bool,
}

impl Isolation {
    /// The isolated directions as a list.
    pub fn directions(self) -> impl Iterator<Item = Direction> {
        let ingress = self.ingress.then_some(Direction::Ingress);
        ingress.into_iter().chain(self.egress.then_some(Direction::Egress))
    }
}

/// A policy with groups instead of selectors.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Policy {
    /// Kind, namespace and name of the policy object.
    pub name: PolicyName,
    /// The uid of the policy object.
    pub uid: String,
    /// The generation of the policy object; Nodes report the one that they enforce.
    pub generation: i64,
    /// When the rules are evaluated.
    #[serde(flatten)]
    pub order: Order,
    /// The AppliedToGroups: the Pods that the policy applies to. If rules have their own, the groups of all rules.
    pub applied_to: Vec<GroupId>,
    /// In order of evaluation, within each direction.
    pub rules: Vec<Rule>,
}

impl Policy {
    /// The directions in which the policy isolates its Pods.
    pub fn isolates(&self) -> Isolation {
        match self.order {
            Order::Kubernetes(isolates) => isolates,
            Order::Tiered(_) => Isolation::default(),
        }
    }
}

/// A change of a group on a Node.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum GroupChange {
    /// Adds or replaces the group.
    Set(Arc<Group>),
    /// Changes members of the group.
    Patch(Arc<Patch>),
    /// The Node no longer needs the group.
    Delete(GroupId),
}

/// A change of a policy on a Node.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum PolicyChange {
    /// Adds or replaces the policy.
    Set(Arc<Policy>),
    /// The policy was deleted, or no longer applies to Pods of the Node.
    Delete(Arc<PolicyName>),
}

/// Acknowledges a Pod of the Node: the batches up to here contain all policies and groups for it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
pub struct Seen {
    /// Namespace and name of the Pod.
    pub pod: ObjectName,
    /// The uid of the Pod.
    pub uid: String,
}

/// A change of the acknowledged Pods of a Node.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub enum PodChange {
    /// The controller has processed the Pod. Replaces an earlier Pod of the same name.
    Seen(Arc<Seen>),
    /// The Pod was deleted or has terminated.
    Gone(Arc<ObjectName>),
}

/// A change of the state of a Node.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Change {
    AppliedTo(GroupChange),
    Address(GroupChange),
    Policy(PolicyChange),
    /// Comes after the groups and policies that concern the Pod.
    Pod(PodChange),
}

/// Changes that take effect together.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Batch {
    /// Whether the batch replaces the whole state of the Node.
    pub snapshot: bool,
    /// Applied in this order.
    pub changes: Vec<Change>,
}

/// A report of a Node: its switch enforces a generation of a policy, or why not.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
pub struct Report {
    /// Kind, namespace and name of the policy object.
    pub policy: PolicyName,
    /// The uid of the policy object.
    pub uid: String,
    /// Generation of the policy object that the report is about.
    pub generation: i64,
    /// Why the policy is not enforced; `None` if it is.
    pub problem: Option<String>,
}
