//! Messages to values. Input is validated: the sender may have another version, or be malicious.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use types::ObjectName;
use types::control::{
    Action, Change, Direction, Group, GroupChange, GroupId, IpBlock, Isolation, Member, NamedPort, Order, Patch, Peers,
    PodChange, Policy, PolicyChange, PolicyKind, PolicyName, Ports, Priority, Rank, Report, Rule, Seen, Service,
};
use types::meta::Protocol;

use super::wire::{self, change::Kind};

/// An invalid field of a message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid message between antrea-controller and antrea-agent: {field}: {problem}")]
pub struct Invalid {
    field: &'static str,
    problem: String,
}

impl Invalid {
    pub(super) fn new(field: &'static str, problem: impl Display) -> Self {
        Self { field, problem: problem.to_string() }
    }
}

/// The known changes, in order.
pub(super) fn changes(changes: Vec<wire::Change>) -> impl Iterator<Item = Result<Change, Invalid>> {
    changes.into_iter().filter_map(|change| change.kind).filter_map(|kind| change(kind).transpose())
}

/// A reported problem is truncated to this length: the controller stores one per policy and Node.
const MAX_PROBLEM_CHARS: usize = 1000;

/// The reports of an agent.
pub(super) fn reports(reports: wire::Reports) -> Result<Vec<Report>, Invalid> {
    let report = |it: wire::Report| {
        let kind = policy_kind(it.kind()).unwrap_or(PolicyKind::Kubernetes);
        let policy = PolicyName { kind, object: required_name("report.policy", it.policy)? };
        let problem = it.problem.map(|problem| problem.chars().take(MAX_PROBLEM_CHARS).collect());
        Ok(Report { policy, uid: it.uid, generation: it.generation, problem })
    };
    reports.reports.into_iter().map(report).collect()
}

/// A change; `None` if it is about a policy of unknown kind.
fn change(kind: Kind) -> Result<Option<Change>, Invalid> {
    Ok(Some(match kind {
        Kind::SetAppliedTo(group) => Change::AppliedTo(set(group)?),
        Kind::PatchAppliedTo(it) => Change::AppliedTo(patch(it)?),
        Kind::DeleteAppliedTo(id) => Change::AppliedTo(GroupChange::Delete(group_id(&id)?)),
        Kind::SetAddress(group) => Change::Address(set(group)?),
        Kind::PatchAddress(it) => Change::Address(patch(it)?),
        Kind::DeleteAddress(id) => Change::Address(GroupChange::Delete(group_id(&id)?)),
        Kind::SetPolicy(it) => Change::Policy(PolicyChange::Set(Arc::new(policy(it)?))),
        Kind::DeletePolicy(it) => Change::Policy(PolicyChange::Delete(Arc::new(PolicyName::kubernetes(name(it))))),
        Kind::SetTieredPolicy(it) => match tiered_policy(it)? {
            Some(policy) => Change::Policy(PolicyChange::Set(Arc::new(policy))),
            None => return Ok(None),
        },
        Kind::DeleteTieredPolicy(it) => match policy_name(it)? {
            Some(name) => Change::Policy(PolicyChange::Delete(Arc::new(name))),
            None => return Ok(None),
        },
        Kind::PodSeen(it) => {
            let seen = Seen { pod: required_name("pod_seen.pod", it.pod)?, uid: it.uid };
            Change::Pod(PodChange::Seen(Arc::new(seen)))
        }
        Kind::PodGone(it) => Change::Pod(PodChange::Gone(Arc::new(name(it)))),
    }))
}

fn set(group: wire::Group) -> Result<GroupChange, Invalid> {
    let members = group.members.into_iter().map(member).collect::<Result<_, _>>()?;
    Ok(GroupChange::Set(Arc::new(Group { id: group_id(&group.id)?, members })))
}

fn patch(patch: wire::Patch) -> Result<GroupChange, Invalid> {
    Ok(GroupChange::Patch(Arc::new(Patch {
        id: group_id(&patch.id)?,
        added: patch.added.into_iter().map(member).collect::<Result<_, _>>()?,
        removed: patch.removed.into_iter().map(name).collect(),
    })))
}

fn group_id(bytes: &[u8]) -> Result<GroupId, Invalid> {
    let bytes = bytes.try_into().map_err(|_| Invalid::new("group.id", format!("has {} bytes, not 16", bytes.len())))?;
    Ok(GroupId(bytes))
}

fn name(name: wire::Name) -> ObjectName {
    ObjectName { namespace: name.namespace, name: name.name }
}

fn required_name(field: &'static str, value: Option<wire::Name>) -> Result<ObjectName, Invalid> {
    value.map(name).ok_or_else(|| Invalid::new(field, "is missing"))
}

fn member(member: wire::Member) -> Result<Arc<Member>, Invalid> {
    let addresses = member.addresses.iter().map(|it| address("member.addresses", it)).collect::<Result<_, _>>()?;
    let mut ports = Vec::with_capacity(member.ports.len());
    for port in member.ports {
        // No known rule uses an unknown protocol.
        let Some(protocol) = protocol(port.protocol()) else { continue };
        ports.push(NamedPort { protocol, number: number("member.ports.number", port.number)?, name: port.name });
    }
    Ok(Arc::new(Member { pod: required_name("member.pod", member.pod)?, addresses, ports }))
}

fn address(field: &'static str, bytes: &[u8]) -> Result<IpAddr, Invalid> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let address = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
    address.map_err(|_| Invalid::new(field, format!("has {} bytes, not 4 or 16", bytes.len())))
}

fn number(field: &'static str, number: u32) -> Result<u16, Invalid> {
    number.try_into().map_err(|_| Invalid::new(field, format!("{number} is not a port number, the largest is 65535")))
}

fn protocol(protocol: wire::Protocol) -> Option<Protocol> {
    match protocol {
        wire::Protocol::Unspecified => None,
        wire::Protocol::Tcp => Some(Protocol::Tcp),
        wire::Protocol::Udp => Some(Protocol::Udp),
        wire::Protocol::Sctp => Some(Protocol::Sctp),
    }
}

fn policy(policy: wire::Policy) -> Result<Policy, Invalid> {
    let rules = policy.rules.into_iter().filter_map(|it| rule(it).transpose()).collect::<Result<_, _>>()?;
    Ok(Policy {
        name: PolicyName::kubernetes(required_name("policy.name", policy.name)?),
        uid: policy.uid,
        generation: policy.generation,
        order: Order::Kubernetes(Isolation { ingress: policy.isolates_ingress, egress: policy.isolates_egress }),
        applied_to: groups(&policy.applied_to)?,
        rules,
    })
}

/// A rule; `None` if its direction is unknown.
fn rule(rule: wire::Rule) -> Result<Option<Rule>, Invalid> {
    let Some(direction) = direction(rule.direction()) else { return Ok(None) };
    let peers = rule.peers.map(peers).transpose()?.map(|known| known.values);
    let services = rule.services.map(services).transpose()?.map(|known| known.values);
    Ok(Some(Rule::allow(direction, rule.index, peers, services)))
}

/// A policy; `None` if its kind is unknown.
fn tiered_policy(policy: wire::TieredPolicy) -> Result<Option<Policy>, Invalid> {
    let name = policy.name.ok_or_else(|| Invalid::new("tiered_policy.name", "is missing"))?;
    let Some(name) = policy_name(name)? else { return Ok(None) };
    let tier = policy.tier.try_into().map_err(|_| Invalid::new("tiered_policy.tier", "is more than 255"))?;
    let priority =
        Priority::try_from(policy.priority).map_err(|error| Invalid::new("tiered_policy.priority", error))?;
    let rules = policy.rules.into_iter().filter_map(|it| tiered_rule(it).transpose()).collect::<Result<_, _>>()?;
    Ok(Some(Policy {
        name,
        uid: policy.uid,
        generation: policy.generation,
        order: Order::Tiered(Rank { tier, priority }),
        applied_to: groups(&policy.applied_to)?,
        rules,
    }))
}

/// A rule; `None` if its direction is unknown.
fn tiered_rule(rule: wire::TieredRule) -> Result<Option<Rule>, Invalid> {
    let Some(direction) = direction(rule.direction()) else { return Ok(None) };
    let action = match rule.action() {
        wire::Action::Allow => Action::Allow,
        wire::Action::Drop | wire::Action::Unspecified => Action::Drop,
        wire::Action::Reject => Action::Reject,
        wire::Action::Pass => Action::Pass,
    };
    Ok(Some(Rule {
        direction,
        index: rule.index,
        name: rule.name,
        action,
        applied_to: rule.applied_to.map(|it| groups(&it.groups)).transpose()?,
        peers: rule.peers.map(peers).transpose()?.and_then(|known| known.for_action(action)),
        services: rule.services.map(services).transpose()?.and_then(|known| known.for_action(action)),
    }))
}

/// The name of a tiered policy; `None` if its kind is unknown.
fn policy_name(it: wire::PolicyName) -> Result<Option<PolicyName>, Invalid> {
    let Some(kind) = policy_kind(it.kind()) else { return Ok(None) };
    Ok(Some(PolicyName { kind, object: required_name("policy_name.name", it.name)? }))
}

fn policy_kind(kind: wire::PolicyKind) -> Option<PolicyKind> {
    match kind {
        wire::PolicyKind::Unspecified => None,
        wire::PolicyKind::Antrea => Some(PolicyKind::Antrea),
        wire::PolicyKind::AntreaCluster => Some(PolicyKind::AntreaCluster),
    }
}

fn direction(direction: wire::Direction) -> Option<Direction> {
    match direction {
        wire::Direction::Unspecified => None,
        wire::Direction::Ingress => Some(Direction::Ingress),
        wire::Direction::Egress => Some(Direction::Egress),
    }
}

fn groups(ids: &[Vec<u8>]) -> Result<Vec<GroupId>, Invalid> {
    ids.iter().map(|id| group_id(id)).collect()
}

/// The known ones of peers or services.
struct Known<T> {
    values: T,
    are_all: bool,
}

impl<T> Known<T> {
    /// What a rule with this action matches, so that it allows less than intended if some are unknown: `None` is all.
    fn for_action(self, action: Action) -> Option<T> {
        (self.are_all || action.is_allow()).then_some(self.values)
    }
}

fn peers(peers: wire::Peers) -> Result<Known<Peers>, Invalid> {
    let mut known = Known { values: Peers::default(), are_all: true };
    for peer in peers.peers {
        match peer.kind {
            Some(wire::peer::Kind::Group(id)) => known.values.groups.push(group_id(&id)?),
            Some(wire::peer::Kind::Block(it)) => {
                let cidr = it.cidr.ok_or_else(|| Invalid::new("block.cidr", "is missing"))?;
                let except = it.except.iter().map(net).collect::<Result<_, _>>()?;
                known.values.blocks.push(IpBlock { cidr: net(&cidr)?, except });
            }
            None => known.are_all = false,
        }
    }
    Ok(known)
}

fn services(services: wire::Services) -> Result<Known<Vec<Service>>, Invalid> {
    let count = services.services.len();
    let values: Vec<Service> =
        services.services.into_iter().filter_map(|it| service(it).transpose()).collect::<Result<_, _>>()?;
    Ok(Known { are_all: values.len() == count, values })
}

fn net(net: &wire::Net) -> Result<IpNet, Invalid> {
    let address = address("net.address", &net.address)?;
    let length = u8::try_from(net.length).ok();
    let invalid = || Invalid::new("net.length", format!("{} is too long for {address}", net.length));
    length.and_then(|length| IpNet::new(address, length).ok()).ok_or_else(invalid)
}

/// A service; `None` if its kind or protocol is unknown.
fn service(service: wire::Service) -> Result<Option<Service>, Invalid> {
    use wire::service::Kind;
    let (Some(protocol), Some(kind)) = (protocol(service.protocol()), service.kind) else { return Ok(None) };
    Ok(Some(match kind {
        Kind::All(wire::AllPorts {}) => Service::Ports(Ports { protocol, range: None }),
        Kind::Range(range) => {
            let (first, last) = (number("range.first", range.first)?, number("range.last", range.last)?);
            if first > last {
                return Err(Invalid::new("range.last", format!("{last} is less than {first}")));
            }
            Service::Ports(Ports { protocol, range: Some((first, last)) })
        }
        Kind::Named(named) => {
            let known_by = (!named.known_by.is_empty()).then(|| group_id(&named.known_by)).transpose()?;
            Service::Named { protocol, name: named.name, known_by }
        }
    }))
}
