//! Batches of the controller, as text.

use std::fmt::Write;

use types::control::{
    Action, Change, GroupChange, Isolation, Member, Order, PodChange, Policy, PolicyChange, Ports, Rank, Rule, Service,
};
use types::meta::Protocol;

use crate::cluster::Delivery;

/// A batch, a line for each change.
pub(crate) fn delivery(delivery: &Delivery) -> String {
    let kind = if delivery.batch.snapshot { "snapshot" } else { "changes" };
    let mut text = format!("-- {}: {kind}\n", delivery.node);
    for change in &delivery.batch.changes {
        let _ = match change {
            Change::AppliedTo(change) => writeln!(text, "  AppliedToGroup {}", group(change)),
            Change::Address(change) => writeln!(text, "  AddressGroup {}", group(change)),
            Change::Policy(PolicyChange::Set(policy)) => writeln!(text, "  {}", self::policy(policy)),
            Change::Policy(PolicyChange::Delete(name)) => writeln!(text, "  {name}: deleted"),
            Change::Pod(PodChange::Seen(seen)) => writeln!(text, "  Pod {}: processed", seen.pod),
            Change::Pod(PodChange::Gone(name)) => writeln!(text, "  Pod {name}: deleted"),
        };
    }
    text
}

fn group(change: &GroupChange) -> String {
    match change {
        GroupChange::Set(group) => {
            let members: Vec<String> = group.members.iter().map(|by| member(by)).collect();
            format!("{} = [{}]", short(&group.id), members.join(", "))
        }
        GroupChange::Patch(patch) => {
            let added = patch.added.iter().map(|by| format!("+{}", member(by)));
            let changes: Vec<String> = added.chain(patch.removed.iter().map(|pod| format!("-{pod}"))).collect();
            format!("{}: {}", short(&patch.id), changes.join(", "))
        }
        GroupChange::Delete(id) => format!("{}: deleted", short(id)),
    }
}

/// The first part of a group's UUID.
fn short(id: &types::control::GroupId) -> String {
    id.to_string().chars().take(8).collect()
}

fn member(member: &Member) -> String {
    let addresses = member.addresses.iter().map(|ip| format!(" {ip}"));
    let ports = member.ports.iter().map(|port| format!(" {}={}/{}", port.name, word(port.protocol), port.number));
    format!("{}{}", member.pod, addresses.chain(ports).collect::<String>())
}

fn policy(policy: &Policy) -> String {
    let groups: Vec<String> = policy.applied_to.iter().map(short).collect();
    let order = match policy.order {
        Order::Kubernetes(isolates) => format!("isolates {}", directions(isolates)),
        Order::Tiered(Rank { tier, priority }) => format!("tier {tier}, priority {priority}"),
    };
    let rules: String = policy.rules.iter().map(rule).collect();
    format!("{}: applied to {}, {order}{rules}", policy.name, groups.join(" "))
}

fn directions(isolates: Isolation) -> &'static str {
    match isolates {
        Isolation { ingress: true, egress: true } => "ingress and egress",
        Isolation { ingress: true, egress: false } => "ingress",
        Isolation { ingress: false, egress: true } => "egress",
        Isolation { ingress: false, egress: false } => "nothing",
    }
}

fn rule(rule: &Rule) -> String {
    let direction = match rule.direction {
        types::control::Direction::Ingress => "ingress",
        types::control::Direction::Egress => "egress",
    };
    let peers = match &rule.peers {
        None => "any peer".to_owned(),
        Some(peers) => {
            let groups = peers.groups.iter().map(short);
            let blocks = peers.blocks.iter().map(|block| {
                let holes: String = block.except.iter().map(|hole| format!("-{hole}")).collect();
                format!("{}{holes}", block.cidr)
            });
            let peers = groups.chain(blocks).collect::<Vec<_>>().join(" ");
            if peers.is_empty() { "no peer".to_owned() } else { peers }
        }
    };
    let ports = match &rule.services {
        None => "any port".to_owned(),
        Some(services) if services.is_empty() => "no port".to_owned(),
        Some(services) => services.iter().map(service).collect::<Vec<_>>().join(" "),
    };
    let verb = match rule.action {
        Action::Allow => "allows",
        Action::Drop => "drops",
        Action::Reject => "rejects",
        Action::Pass => "passes",
    };
    let own = rule.applied_to.iter().map(|ids| ids.iter().map(short).collect::<Vec<_>>().join(" "));
    let own: String = own.map(|groups| format!(" of {groups}")).collect();
    format!("\n    {direction}[{}]{own} {verb} {peers}, {ports}", rule.index)
}

fn service(service: &Service) -> String {
    match service {
        Service::Ports(Ports { protocol, range: None }) => word(*protocol),
        Service::Ports(Ports { protocol, range: Some((first, last)) }) if first == last => {
            format!("{}/{first}", word(*protocol))
        }
        Service::Ports(Ports { protocol, range: Some((first, last)) }) => format!("{}/{first}-{last}", word(*protocol)),
        Service::Named { protocol, name, .. } => format!("{}/{name}", word(*protocol)),
    }
}

fn word(protocol: Protocol) -> String {
    format!("{protocol:?}").to_lowercase()
}
