//! Converts values to messages of `control.proto`.

use std::net::IpAddr;

use ipnet::IpNet;
use types::ObjectName;
use types::control::{
    Change, Direction, Group, GroupChange, IpBlock, Member, NamedPort, Patch, PodChange, Policy, PolicyChange, Ports,
    Report, Rule, Service,
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
        Change::Policy(PolicyChange::Set(it)) => Kind::SetPolicy(policy(it)),
        Change::Policy(PolicyChange::Delete(it)) => Kind::DeletePolicy(name(it)),
        Change::Pod(PodChange::Seen(seen)) => {
            Kind::PodSeen(wire::Seen { pod: Some(name(&seen.pod)), uid: seen.uid.clone() })
        }
        Change::Pod(PodChange::Gone(it)) => Kind::PodGone(name(it)),
    };
    wire::Change { kind: Some(kind) }
}

pub(super) fn report(report: &Report) -> wire::Report {
    wire::Report {
        policy: Some(name(&report.policy)),
        uid: report.uid.clone(),
        generation: report.generation,
        problem: report.problem.clone(),
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

fn policy(policy: &Policy) -> wire::Policy {
    wire::Policy {
        name: Some(name(&policy.name)),
        uid: policy.uid.clone(),
        generation: policy.generation,
        applied_to: policy.applied_to.iter().map(|id| id.0.to_vec()).collect(),
        isolates_ingress: policy.isolates.ingress,
        isolates_egress: policy.isolates.egress,
        rules: policy.rules.iter().map(rule).collect(),
    }
}

fn rule(rule: &Rule) -> wire::Rule {
    let direction = match rule.direction {
        Direction::Ingress => wire::Direction::Ingress,
        Direction::Egress => wire::Direction::Egress,
    };
    let peers = rule.peers.as_ref().map(|peers| {
        let groups = peers.groups.iter().map(|id| wire::peer::Kind::Group(id.0.to_vec()));
        let blocks = peers.blocks.iter().map(|it| wire::peer::Kind::Block(block(it)));
        wire::Peers { peers: groups.chain(blocks).map(|kind| wire::Peer { kind: Some(kind) }).collect() }
    });
    let services = rule.services.as_ref();
    let services = services.map(|services| wire::Services { services: services.iter().map(service).collect() });
    wire::Rule { direction: direction.into(), index: rule.index, peers, services }
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
