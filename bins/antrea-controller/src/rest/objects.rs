//! Policies and groups as JSON of `controlplane.antrea.io/v1beta2`. Pure.

use policy::status::Realization;
use serde_json::{Value, json};
use types::ObjectName;
use types::control::{Direction, Group, IpBlock, Member, Order, Peers, Policy, PolicyKind, Ports, Rank, Rule, Service};
use types::meta::Protocol;

pub(crate) const GROUP_VERSION: &str = "controlplane.antrea.io/v1beta2";

/// The resources: plural, kind, and the columns of a table.
pub(crate) const RESOURCES: [(&str, &str, &[&str]); 3] = [
    ("networkpolicies", "NetworkPolicy", &["Name", "Source", "Phase", "Realized", "Generation"]),
    ("appliedtogroups", "AppliedToGroup", &["Name", "Members"]),
    ("addressgroups", "AddressGroup", &["Name", "Members"]),
];

/// A policy with its status.
pub(crate) fn policy(policy: &Policy, status: &Realization) -> Value {
    let kind = match policy.name.kind {
        PolicyKind::Kubernetes => "K8sNetworkPolicy",
        PolicyKind::Antrea | PolicyKind::AntreaCluster => policy.name.kind.name(),
    };
    let name = &policy.name.object;
    let source = json!({"type": kind, "namespace": name.namespace, "name": name.name, "uid": policy.uid});
    let groups: Vec<String> = policy.applied_to.iter().map(ToString::to_string).collect();
    let mut value = json!({
        "kind": "NetworkPolicy", "apiVersion": GROUP_VERSION,
        "metadata": {"name": policy.uid, "generation": policy.generation},
        "rules": policy.rules.iter().map(rule).collect::<Vec<_>>(),
        "appliedToGroups": groups,
        "sourceRef": source,
        "status": status,
    });
    if let Order::Tiered(Rank { tier, priority }) = policy.order {
        value["tierPriority"] = json!(tier);
        value["priority"] = json!(priority.value());
        for (value, rule) in value["rules"].as_array_mut().into_iter().flatten().zip(&policy.rules) {
            value["name"] = json!(rule.name);
            value["action"] = json!(rule.action);
            value["priority"] = json!(rule.index);
            if let Some(groups) = &rule.applied_to {
                value["appliedToGroups"] = groups.iter().map(ToString::to_string).collect();
            }
        }
    }
    value
}

/// A group; `kind` is AppliedToGroup or AddressGroup.
pub(crate) fn group(kind: &str, group: &Group) -> Value {
    let members: Vec<Value> = group.members.iter().map(|it| member(it)).collect();
    json!({
        "kind": kind, "apiVersion": GROUP_VERSION, "metadata": {"name": group.id.to_string()}, "groupMembers": members,
    })
}

/// The cells of a row, for `kubectl get`.
pub(crate) fn cells(object: &Value) -> Vec<Value> {
    let name = object["metadata"]["name"].clone();
    if object["kind"] != "NetworkPolicy" {
        return vec![name, json!(object["groupMembers"].as_array().map_or(0, Vec::len))];
    }
    let (source, status) = (&object["sourceRef"], &object["status"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let source = ObjectName { namespace: text(&source["namespace"]), name: text(&source["name"]) }.to_string();
    let realized = format!("{}/{}", status["currentNodesRealized"], status["desiredNodesRealized"]);
    vec![name, json!(source), status["phase"].clone(), json!(realized), status["observedGeneration"].clone()]
}

fn member(member: &Member) -> Value {
    let port =
        |it: &types::control::NamedPort| json!({"name": it.name, "port": it.number, "protocol": protocol(it.protocol)});
    let mut value =
        json!({"pod": {"namespace": member.pod.namespace, "name": member.pod.name}, "ips": member.addresses});
    if !member.ports.is_empty() {
        value["ports"] = member.ports.iter().map(port).collect();
    }
    value
}

fn rule(rule: &Rule) -> Value {
    let (direction, side) = match rule.direction {
        Direction::Ingress => ("In", "from"),
        Direction::Egress => ("Out", "to"),
    };
    let mut value = json!({"direction": direction});
    if let Some(it) = &rule.peers {
        value[side] = peers(it);
    }
    if let Some(services) = &rule.services {
        value["services"] = services.iter().map(service).collect();
    }
    value
}

fn peers(peers: &Peers) -> Value {
    let block = |it: &IpBlock| json!({"cidr": it.cidr.to_string(), "except": it.except.iter().map(ToString::to_string).collect::<Vec<_>>()});
    let groups: Vec<String> = peers.groups.iter().map(ToString::to_string).collect();
    json!({"addressGroups": groups, "ipBlocks": peers.blocks.iter().map(block).collect::<Vec<_>>()})
}

fn service(service: &Service) -> Value {
    match service {
        Service::Ports(Ports { protocol: of, range: None }) => json!({"protocol": protocol(*of)}),
        Service::Ports(Ports { protocol: of, range: Some((first, last)) }) if first == last => {
            json!({"protocol": protocol(*of), "port": first})
        }
        Service::Ports(Ports { protocol: of, range: Some((first, last)) }) => {
            json!({"protocol": protocol(*of), "port": first, "endPort": last})
        }
        Service::Named { protocol: of, name, .. } => json!({"protocol": protocol(*of), "port": name}),
    }
}

fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    }
}
