//! Messages to values. Input is validated: the sender may have another version, or be malicious.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use types::ObjectName;
use types::control::{
    Change, Direction, Group, GroupChange, GroupId, IpBlock, Isolation, Member, NamedPort, Patch, Peers, PodChange,
    Policy, PolicyChange, Ports, Report, Rule, Seen, Service,
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
    changes.into_iter().filter_map(|change| change.kind).map(change)
}

/// A reported problem is truncated to this length: the controller stores one per policy and Node.
const MAX_PROBLEM_CHARS: usize = 1000;

/// The reports of an agent.
pub(super) fn reports(reports: wire::Reports) -> Result<Vec<Report>, Invalid> {
    let report = |it: wire::Report| {
        let policy = required_name("report.policy", it.policy)?;
        let problem = it.problem.map(|problem| problem.chars().take(MAX_PROBLEM_CHARS).collect());
        Ok(Report { policy, uid: it.uid, generation: it.generation, problem })
    };
    reports.reports.into_iter().map(report).collect()
}

fn change(kind: Kind) -> Result<Change, Invalid> {
    Ok(match kind {
        Kind::SetAppliedTo(group) => Change::AppliedTo(set(group)?),
        Kind::PatchAppliedTo(it) => Change::AppliedTo(patch(it)?),
        Kind::DeleteAppliedTo(id) => Change::AppliedTo(GroupChange::Delete(group_id(&id)?)),
        Kind::SetAddress(group) => Change::Address(set(group)?),
        Kind::PatchAddress(it) => Change::Address(patch(it)?),
        Kind::DeleteAddress(id) => Change::Address(GroupChange::Delete(group_id(&id)?)),
        Kind::SetPolicy(it) => Change::Policy(PolicyChange::Set(Arc::new(policy(it)?))),
        Kind::DeletePolicy(it) => Change::Policy(PolicyChange::Delete(Arc::new(name(it)))),
        Kind::PodSeen(it) => {
            let seen = Seen { pod: required_name("pod_seen.pod", it.pod)?, uid: it.uid };
            Change::Pod(PodChange::Seen(Arc::new(seen)))
        }
        Kind::PodGone(it) => Change::Pod(PodChange::Gone(Arc::new(name(it)))),
    })
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
        name: required_name("policy.name", policy.name)?,
        uid: policy.uid,
        generation: policy.generation,
        applied_to: policy.applied_to.iter().map(|id| group_id(id)).collect::<Result<_, _>>()?,
        isolates: Isolation { ingress: policy.isolates_ingress, egress: policy.isolates_egress },
        rules,
    })
}

/// A rule; `None` if its direction is unknown.
fn rule(rule: wire::Rule) -> Result<Option<Rule>, Invalid> {
    let direction = match rule.direction() {
        wire::Direction::Unspecified => return Ok(None),
        wire::Direction::Ingress => Direction::Ingress,
        wire::Direction::Egress => Direction::Egress,
    };
    let services = rule.services.map(|it| it.services.into_iter().filter_map(|it| service(it).transpose()).collect());
    let peers = rule.peers.map(peers).transpose()?;
    Ok(Some(Rule { direction, index: rule.index, peers, services: services.transpose()? }))
}

fn peers(peers: wire::Peers) -> Result<Peers, Invalid> {
    let mut known = Peers::default();
    for kind in peers.peers.into_iter().filter_map(|peer| peer.kind) {
        match kind {
            wire::peer::Kind::Group(id) => known.groups.push(group_id(&id)?),
            wire::peer::Kind::Block(it) => {
                let cidr = it.cidr.ok_or_else(|| Invalid::new("block.cidr", "is missing"))?;
                let except = it.except.iter().map(net).collect::<Result<_, _>>()?;
                known.blocks.push(IpBlock { cidr: net(&cidr)?, except });
            }
        }
    }
    Ok(known)
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
