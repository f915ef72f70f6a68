//! Converts values to messages of `control.proto`.

use std::net::IpAddr;

use ipnet::IpNet;
use types::ObjectName;
use types::control::{
    Action, Change, Direction, Group, GroupChange, GroupId, IpBlock, Isolation, Member, NamedPort, Order, Patch, Peers,
    PodChange, Policy, PolicyChange, PolicyKind, PolicyName, Ports, Rank, Report, Rule, Service,
};
use types::meta::Protocol;

use super::wire::{self, change::Kind};

pub(super) fn change(change: &Change) -> wire::Change {
    let kind = match change {
        Change::AppliedTo(GroupChange::Set(group)) => Kind::SetAppliedTo(set(group)),
        Change::AppliedTo(GroupChange::Patch(it)) => Kind::PatchAppliedTo(patch(it)),
        Change::AppliedTo(GroupChange::Delete(id)) => Kind::DeleteAppliedTo(id.0.to_vec()),
        Change::Address(GroupChange::Set(group)) => Kind::SetAddress(set(group)),
        Change::Address(GroupChange::Patch(it)) => Kind::PatchAddress(patch(it)),
        Change::Address(GroupChange::Delete(id)) => Kind::DeleteAddress(id.0.to_vec()),
        Change::Policy(PolicyChange::Set(it)) => match it.order {
            Order::Kubernetes(isolates) => Kind::SetPolicy(policy(it, isolates)),
            Order::Tiered(rank) => Kind::SetTieredPolicy(tiered_policy(it, rank)),
        },
        Change::Policy(PolicyChange::Delete(it)) => match it.kind {
            PolicyKind::Kubernetes => Kind::DeletePolicy(name(&it.object)),
            PolicyKind::Antrea | PolicyKind::AntreaCluster => Kind::DeleteTieredPolicy(policy_name(it)),
        },
        Change::Pod(PodChange::Seen(seen)) => {
            Kind::PodSeen(wire::Seen { pod: Some(name(&seen.pod)), uid: seen.uid.clone() })
        }
        Change::Pod(PodChange::Gone(it)) => Kind::PodGone(name(it)),
    };
    wire::Change { kind: Some(kind) }
}

pub(super) fn report(report: &Report) -> wire::Report {
    wire::Report {
        policy: Some(name(&report.policy.object)),
        uid: report.uid.clone(),
        generation: report.generation,
        problem: report.problem.clone(),
        kind: policy_kind(report.policy.kind).into(),
    }
}

fn set(group: &Group) -> wire::Group {
    wire::Group { id: group.id.0.to_vec(), members: group.members.iter().map(|it| member(it)).collect() }
}

fn patch(patch: &Patch) -> wire::Patch {
    wire::Patch {
        id: patch.id.0.to_vec(),
        added: patch.added.iter().map(|it| member(it)).collect(),
        removed: patch.removed.iter().map(name).collect(),
    }
}

fn name(name: &ObjectName) -> wire::Name {
    wire::Name { namespace: name.namespace.clone(), name: name.name.clone() }
}

fn member(member: &Member) -> wire::Member {
    let port = |port: &NamedPort| wire::NamedPort {
        protocol: protocol(port.protocol).into(),
        name: port.name.clone(),
        number: port.number.into(),
    };
    wire::Member {
        pod: Some(name(&member.pod)),
        addresses: member.addresses.iter().map(|it| address(*it)).collect(),
        ports: member.ports.iter().map(port).collect(),
    }
}

fn address(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn protocol(protocol: Protocol) -> wire::Protocol {
    match protocol {
        Protocol::Tcp => wire::Protocol::Tcp,
        Protocol::Udp => wire::Protocol::Udp,
        Protocol::Sctp => wire::Protocol::Sctp,
    }
}

fn policy(policy: &Policy, isolates: Isolation) -> wire::Policy {
    wire::Policy {
        name: Some(name(&policy.name.object)),
        uid: policy.uid.clone(),
        generation: policy.generation,
        applied_to: groups(&policy.applied_to),
        isolates_ingress: isolates.ingress,
        isolates_egress: isolates.egress,
        rules: policy.rules.iter().map(rule).collect(),
    }
}

fn rule(rule: &Rule) -> wire::Rule {
    wire::Rule {
        direction: direction(rule.direction).into(),
        index: rule.index,
        peers: rule.peers.as_ref().map(peers),
        services: rule.services.as_deref().map(services),
    }
}

fn tiered_policy(policy: &Policy, rank: Rank) -> wire::TieredPolicy {
    wire::TieredPolicy {
        name: Some(policy_name(&policy.name)),
        uid: policy.uid.clone(),
        generation: policy.generation,
        tier: rank.tier.into(),
        priority: rank.priority.value(),
        applied_to: groups(&policy.applied_to),
        rules: policy.rules.iter().map(tiered_rule).collect(),
    }
}

fn tiered_rule(rule: &Rule) -> wire::TieredRule {
    let action = match rule.action {
        Action::Allow => wire::Action::Allow,
        Action::Drop => wire::Action::Drop,
        Action::Reject => wire::Action::Reject,
        Action::Pass => wire::Action::Pass,
    };
    wire::TieredRule {
        direction: direction(rule.direction).into(),
        index: rule.index,
        name: rule.name.clone(),
        action: action.into(),
        applied_to: rule.applied_to.as_deref().map(|ids| wire::AppliedTo { groups: groups(ids) }),
        peers: rule.peers.as_ref().map(peers),
        services: rule.services.as_deref().map(services),
    }
}

fn policy_name(it: &PolicyName) -> wire::PolicyName {
    wire::PolicyName { kind: policy_kind(it.kind).into(), name: Some(name(&it.object)) }
}

fn policy_kind(kind: PolicyKind) -> wire::PolicyKind {
    match kind {
        PolicyKind::Kubernetes => wire::PolicyKind::Unspecified,
        PolicyKind::Antrea => wire::PolicyKind::Antrea,
        PolicyKind::AntreaCluster => wire::PolicyKind::AntreaCluster,
    }
}

fn direction(direction: Direction) -> wire::Direction {
    match direction {
        Direction::Ingress => wire::Direction::Ingress,
        Direction::Egress => wire::Direction::Egress,
    }
}

fn groups(ids: &[GroupId]) -> Vec<Vec<u8>> {
    ids.iter().map(|id| id.0.to_vec()).collect()
}

fn peers(peers: &Peers) -> wire::Peers {
    let groups = peers.groups.iter().map(|id| wire::peer::Kind::Group(id.0.to_vec()));
    let blocks = peers.blocks.iter().map(|it| wire::peer::Kind::Block(block(it)));
    wire::Peers { peers: groups.chain(blocks).map(|kind| wire::Peer { kind: Some(kind) }).collect() }
}

fn services(services: &[Service]) -> wire::Services {
    wire::Services { services: services.iter().map(service).collect() }
}

fn block(block: &IpBlock) -> wire::Block {
    wire::Block { cidr: Some(net(block.cidr)), except: block.except.iter().map(|it| net(*it)).collect() }
}

fn net(net: IpNet) -> wire::Net {
    wire::Net { address: address(net.addr()), length: net.prefix_len().into() }
}

fn service(service: &Service) -> wire::Service {
    use wire::service::Kind;
    let (of, kind) = match service {
        Service::Ports(Ports { protocol, range: None }) => (protocol, Kind::All(wire::AllPorts {})),
        Service::Ports(Ports { protocol, range: Some((first, last)) }) => {
            (protocol, Kind::Range(wire::Range { first: (*first).into(), last: (*last).into() }))
        }
        Service::Named { protocol, name, known_by } => {
            let known_by = known_by.map(|id| id.0.to_vec()).unwrap_or_default();
            (protocol, Kind::Named(wire::Named { name: name.clone(), known_by }))
        }
    };
    wire::Service { protocol: protocol(*of).into(), kind: Some(kind) }
}
