//! What the controller tells a Node: groups of Pods, the policies that use them, and how they change.
//!
//! A Node holds three kinds of things: AppliedToGroups with its own Pods, AddressGroups with everybody's, and the policies that
//! apply to its Pods; and it knows which of its Pods have been looked at. It is told of them in batches; what a batch says holds when all of it has arrived, and not before. Within a
//! batch, groups are set before the policies that name them, and deleted after. A Node that starts gets a snapshot, which is
//! a batch that replaces everything it held. So a Node can fail closed: a policy isolates the Pods of its AppliedToGroups, and a
//! rule of it allows what it says once every group that it names is there; until then, it allows nothing.

mod group_id;

pub use group_id::{GroupId, InvalidGroupId};

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::ObjectName;
use crate::meta::Protocol;

/// A port that a Pod gives a name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NamedPort {
    /// The protocol.
    pub protocol: Protocol,
    /// The name.
    pub name: String,
    /// The number.
    pub number: u16,
}

/// A Pod as a member of groups.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Member {
    /// The Pod. Members are told apart by it, never by address: for a moment, two Pods may have the same one.
    pub pod: ObjectName,
    /// Its addresses; none until it has some, and then it is in AppliedToGroups only.
    pub addresses: Vec<IpAddr>,
    /// Its named ports, sorted; a name is there once a protocol.
    pub ports: Vec<NamedPort>,
}

impl Member {
    /// The number that the Pod gives a name.
    pub fn port(&self, protocol: Protocol, name: &str) -> Option<u16> {
        self.ports.iter().find(|port| port.protocol == protocol && port.name == name).map(|port| port.number)
    }
}

/// A group as a whole. In an AppliedToGroup, a Node sees its own Pods only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Which group.
    pub id: GroupId,
    /// Its members, sorted by Pod.
    pub members: Vec<Arc<Member>>,
}

/// How a group changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patch {
    /// Which group.
    pub id: GroupId,
    /// Members that are new, or no longer what they were.
    pub added: Vec<Arc<Member>>,
    /// Pods that are no members any more.
    pub removed: Vec<ObjectName>,
}

/// Which way a rule looks at its Pods' connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// Into the Pods.
    Ingress,
    /// Out of the Pods.
    Egress,
}

/// A range of addresses with holes in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IpBlock {
    /// The range.
    pub cidr: IpNet,
    /// Its holes.
    pub except: Vec<IpNet>,
}

impl From<IpAddr> for IpBlock {
    fn from(address: IpAddr) -> Self {
        Self { cidr: address.into(), except: Vec::new() }
    }
}

/// Destination ports of a protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ports {
    /// The protocol.
    pub protocol: Protocol,
    /// First and last port; all if not given.
    pub range: Option<(u16, u16)>,
}

/// The other ends that a rule is about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Peers {
    /// AddressGroups whose members are meant.
    pub groups: Vec<GroupId>,
    /// Ranges of addresses that are meant.
    pub blocks: Vec<IpBlock>,
}

/// Ports that a rule is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Service {
    /// By number.
    Ports(Ports),
    /// By a name, which belongs to the Pod that is connected to: the rule's own going in, the other end going out.
    Named {
        /// The protocol.
        protocol: Protocol,
        /// The name.
        name: String,
        /// The AddressGroup of all Pods that know the name, where the rule's peers are ranges of addresses or anyone, and whoever of
        /// them is a Pod has to be found.
        known_by: Option<GroupId>,
    },
}

/// What one rule of a policy allows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Which way.
    pub direction: Direction,
    /// Which of the policy's rules in this direction.
    pub index: u32,
    /// The other ends; `None`: whatever they are.
    pub peers: Option<Peers>,
    /// The ports; `None`: whatever they are, of whatever protocol.
    pub services: Option<Vec<Service>>,
}

impl Rule {
    /// The AddressGroups that the rule names; it allows nothing until all of them are there.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        let known_by = self.services.iter().flatten().filter_map(|service| match service {
            Service::Named { known_by, .. } => *known_by,
            Service::Ports(_) => None,
        });
        self.peers.iter().flat_map(|peers| peers.groups.iter().copied()).chain(known_by)
    }
}

/// The directions in which only those connections of a Pod pass that are allowed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Isolation {
    /// Into the Pod.
    pub ingress: bool,
    /// Out of the Pod.
    pub egress: bool,
}

impl Isolation {
    /// The directions.
    pub fn directions(self) -> impl Iterator<Item = Direction> {
        let ingress = self.ingress.then_some(Direction::Ingress);
        ingress.into_iter().chain(self.egress.then_some(Direction::Egress))
    }
}

/// A policy, with groups in place of its selectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Its name.
    pub name: ObjectName,
    /// What tells it from others of its name.
    pub uid: String,
    /// Which of its versions this is; whoever enforces it reports this number.
    pub generation: i64,
    /// The AppliedToGroups of the Pods that it applies to.
    pub applied_to: Vec<GroupId>,
    /// How it isolates them.
    pub isolates: Isolation,
    /// What it allows.
    pub rules: Vec<Rule>,
}

/// How one group of a Node changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupChange {
    /// It is like this now, whatever it was.
    Set(Arc<Group>),
    /// These are its differences.
    Patch(Arc<Patch>),
    /// The Node needs it no more.
    Delete(GroupId),
}

/// How one policy of a Node changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PolicyChange {
    /// It is like this now, whatever it was.
    Set(Arc<Policy>),
    /// It is gone, or applies to none of the Node's Pods any more.
    Delete(Arc<ObjectName>),
}

/// A Pod of the Node that the controller has seen: everything that it says of policies has taken this Pod into account.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Seen {
    /// The Pod.
    pub pod: ObjectName,
    /// What tells it from others of its name.
    pub uid: String,
}

/// What the controller has seen of one of a Node's Pods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PodChange {
    /// It is there; another Pod of its name is not.
    Seen(Arc<Seen>),
    /// It is gone, or has no network of its own any more.
    Gone(Arc<ObjectName>),
}

/// How one thing that a Node holds changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// An AppliedToGroup.
    AppliedTo(GroupChange),
    /// An AddressGroup.
    Address(GroupChange),
    /// A policy.
    Policy(PolicyChange),
    /// A Pod of the Node, after the groups and policies that concern it.
    Pod(PodChange),
}

/// What a Node is told at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Whether it replaces everything that the Node held.
    pub snapshot: bool,
    /// The changes, in their order.
    pub changes: Vec<Change>,
}

/// What a Node reports of a policy: its switch enforces this version of it, or why not.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Report {
    /// The policy.
    pub policy: ObjectName,
    /// What tells it from others of its name.
    pub uid: String,
    /// Which of its versions.
    pub generation: i64,
    /// Why it is not enforced; `None`: it is.
    pub problem: Option<String>,
}
