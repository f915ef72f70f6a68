//! Random Tiers, groups and Antrea policies.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use types::ObjectName;
use types::antrea::{
    AppliedTo, Decimal, ExternalEndpoint, ExternalEntity, ExternalPort, Group, Peer, PeerNamespaces, Policy, Port,
    Rule, Tier,
};
use types::meta::{LabelSelector, UnknownFields};
use types::network_policy::IpBlock;

use super::world::{port, selector, text};
use crate::brain::Event;

/// The cluster, and the namespaces with policies and groups.
const SCOPES: &[&str] = &["", "", "x", "y"];
const GROUPS: &[&str] = &["g", "h", "k"];

pub(super) fn tier(name: &str, priority: i64) -> Tier {
    let mut tier = Tier::default();
    tier.metadata.name = name.to_owned();
    tier.spec.priority = Some(priority);
    tier
}

fn pods() -> impl Strategy<Value = LabelSelector> {
    selector(&["app", "tier"])
}

fn namespaces() -> impl Strategy<Value = LabelSelector> {
    selector(&["team", "stage"])
}

fn block() -> impl Strategy<Value = IpBlock> {
    let cidr = text(&["10.0.0.0/24", "10.0.0.0/29", "192.168.0.0/16", "10.0.0.0/40"]);
    cidr.prop_map(|cidr| IpBlock { cidr, ..IpBlock::default() })
}

fn mood() -> impl Strategy<Value = UnknownFields> {
    prop_oneof![12 => Just(UnknownFields::default()), 1 => Just(UnknownFields(["mood".to_owned()].into()))]
}

fn name(names: &'static [&'static str]) -> impl Strategy<Value = ObjectName> {
    (text(SCOPES), text(names)).prop_map(|(namespace, name)| ObjectName { namespace, name })
}

fn applied_to() -> impl Strategy<Value = AppliedTo> {
    let pods_only = pods().prop_map(|pods| AppliedTo { pod_selector: Some(pods), ..AppliedTo::default() });
    let both = (of(pods()), namespaces()).prop_map(|(pod_selector, namespaces)| AppliedTo {
        pod_selector,
        namespace_selector: Some(namespaces),
        ..AppliedTo::default()
    });
    let group = text(GROUPS).prop_map(|group| AppliedTo { group, ..AppliedTo::default() });
    let entry = prop_oneof![4 => pods_only, 4 => both, 3 => group, 1 => Just(AppliedTo::default())];
    (entry, mood()).prop_map(|(entry, unknown)| AppliedTo { unknown, ..entry })
}

fn peer() -> impl Strategy<Value = Peer> {
    let pods_only = pods().prop_map(|pods| Peer { pod_selector: Some(pods), ..Peer::default() });
    let both = (of(pods()), namespaces()).prop_map(|(pod_selector, namespaces)| Peer {
        pod_selector,
        namespace_selector: Some(namespaces),
        ..Peer::default()
    });
    let group = text(GROUPS).prop_map(|group| Peer { group, ..Peer::default() });
    let block = block().prop_map(|block| Peer { ip_block: Some(block), ..Peer::default() });
    let own = PeerNamespaces { matching: "Self".to_owned(), ..PeerNamespaces::default() };
    let same = vec(text(&["team", "stage"]), 1..3)
        .prop_map(|same_labels| PeerNamespaces { same_labels, ..PeerNamespaces::default() });
    let relative = (prop_oneof![Just(own), same], of(pods())).prop_map(|(namespaces, pod_selector)| Peer {
        namespaces: Some(namespaces),
        pod_selector,
        ..Peer::default()
    });
    let entities = (pods(), of(namespaces())).prop_map(|(entities, namespace_selector)| Peer {
        external_entity_selector: Some(entities),
        namespace_selector,
        ..Peer::default()
    });
    let fqdn = Just(Peer { fqdn: "x.y".to_owned(), ..Peer::default() });
    let peer = prop_oneof![4 => pods_only, 4 => both, 4 => group, 2 => block, 6 => relative, 2 => entities, 1 => fqdn, 1 => Just(Peer::default())];
    (peer, mood()).prop_map(|(peer, unknown)| Peer { unknown, ..peer })
}

fn rule(own: bool) -> impl Strategy<Value = Rule> {
    let action = prop_oneof![20 => text(&["Allow", "Drop", "Reject", "Pass"]), 1 => text(&["Deny"])];
    let ports = vec(port(), 0..2).prop_map(|ports| {
        let port = |port: types::network_policy::PolicyPort| Port {
            protocol: port.protocol,
            port: port.port,
            end_port: port.end_port,
            ..Port::default()
        };
        ports.into_iter().map(port).collect::<Vec<_>>()
    });
    let entries = if own { 1..3 } else { 0..1 };
    (action, vec(peer(), 0..3), ports, vec(applied_to(), entries), mood()).prop_map(
        |(action, from, ports, applied_to, unknown)| Rule {
            action,
            from,
            ports,
            applied_to,
            unknown,
            ..Rule::default()
        },
    )
}

fn policy() -> impl Strategy<Value = Policy> {
    let rules = any::<bool>().prop_flat_map(|own| {
        let entries = if own { 0..1 } else { 1..3 };
        (vec(applied_to(), entries), vec(rule(own), 0..3), vec(rule(own), 0..3))
    });
    let tier = prop_oneof![4 => text(&["", "Application"]), 2 => text(&["mine"]), 1 => text(&["baseline"])];
    let priority = prop_oneof![12 => select(&[1.0, 5.5][..]), 1 => Just(0.0)];
    (name(&["p", "q", "r"]), 0..3i64, tier, priority, rules).prop_map(
        |(name, generation, tier, priority, (applied_to, ingress, egress))| {
            let mut policy = Policy::default();
            (policy.metadata.namespace, policy.metadata.name) = (name.namespace, name.name);
            policy.metadata.generation = generation;
            (policy.spec.tier, policy.spec.priority) = (tier, Some(Decimal::from(priority)));
            (policy.spec.applied_to, policy.spec.ingress) = (applied_to, ingress);
            let outgoing = |rule: Rule| Rule { to: rule.from, from: Vec::new(), ..rule };
            policy.spec.egress = egress.into_iter().map(outgoing).collect();
            policy
        },
    )
}

fn group() -> impl Strategy<Value = Group> {
    let content = prop_oneof![
        6 => (of(pods()), of(namespaces()), Just(vec![]), Just(vec![])),
        2 => (Just(None), Just(None), vec(block(), 1..3), Just(vec![])),
        4 => (Just(None), Just(None), Just(vec![]), vec(text(GROUPS), 1..3)),
        1 => (of(pods()), Just(None), vec(block(), 1..2), Just(vec![])),
    ];
    (name(GROUPS), content, mood()).prop_map(|(name, (pods, namespaces, blocks, children), unknown)| {
        let mut group = Group::default();
        (group.metadata.namespace, group.metadata.name) = (name.namespace, name.name);
        (group.spec.pod_selector, group.spec.namespace_selector) = (pods, namespaces);
        (group.spec.ip_blocks, group.spec.child_groups, group.spec.unknown) = (blocks, children, unknown);
        group
    })
}

fn entity() -> impl Strategy<Value = ExternalEntity> {
    let labels = proptest::collection::btree_map(text(&["app", "tier"]), text(&["a", "b", "c"]), 0..3);
    let ips = vec(text(&["10.0.0.3", "192.0.2.1", "192.0.2.2", "nowhere"]), 0..3);
    let ports = vec((text(&["web", "dns"]), select(&[80, 81, 70000][..])), 0..3);
    ((text(&["x", "y"]), text(&["e", "f"])), labels, ips, ports).prop_map(|((namespace, name), labels, ips, ports)| {
        let mut entity = ExternalEntity::default();
        (entity.metadata.namespace, entity.metadata.name, entity.metadata.labels) = (namespace, name, labels);
        entity.spec.endpoints = ips.into_iter().map(|ip| ExternalEndpoint { ip, ..Default::default() }).collect();
        let port = |(name, port)| ExternalPort { name, port, ..Default::default() };
        entity.spec.ports = ports.into_iter().map(port).collect();
        entity
    })
}

/// A change of a Tier, a group or an Antrea policy.
pub(super) fn antrea_event() -> impl Strategy<Value = Event> {
    let tiers = || text(&["application", "mine", "baseline"]);
    let changed = (tiers(), select(&[50, 250, 253, 300][..]));
    prop_oneof![
        2 => changed.prop_map(|(name, priority)| Event::Tier(Box::new(tier(&name, priority)))),
        1 => tiers().prop_map(Event::TierGone),
        8 => policy().prop_map(|policy| Event::AntreaPolicy(Box::new(policy))),
        2 => name(&["p", "q", "r"]).prop_map(Event::AntreaPolicyGone),
        4 => group().prop_map(|group| Event::Group(Box::new(group))),
        1 => name(GROUPS).prop_map(Event::GroupGone),
        3 => entity().prop_map(|entity| Event::ExternalEntity(Box::new(entity))),
        1 => (text(&["x", "y"]), text(&["e", "f"]))
            .prop_map(|(namespace, name)| Event::ExternalEntityGone(ObjectName { namespace, name })),
    ]
}
