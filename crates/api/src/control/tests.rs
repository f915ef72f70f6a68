//! A batch survives its trip, whole or in parts; any bytes give a batch or an error.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use prost::Message as _;
use types::ObjectName;
use types::control::{
    Action, Batch, Change, Direction, Group, GroupChange, GroupId, IpBlock, Isolation, Member, NamedPort, Order, Patch,
    Peers, PodChange, Policy, PolicyChange, PolicyKind, PolicyName, Ports, Rank, Rule, Seen, Service,
};
use types::meta::Protocol;

use super::parts::{Assembly, Parts};
use super::{decode, encode, wire};

fn name() -> impl Strategy<Value = ObjectName> {
    ("[a-z]{0,8}", "[a-z]{1,8}").prop_map(|(namespace, name)| ObjectName { namespace, name })
}

fn id() -> impl Strategy<Value = GroupId> {
    any::<[u8; 16]>().prop_map(GroupId)
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp), Just(Protocol::Sctp)]
}

fn member() -> impl Strategy<Value = Arc<Member>> {
    let port = (protocol(), "[a-z]{1,5}", any::<u16>()).prop_map(|(protocol, name, number)| NamedPort {
        protocol,
        name,
        number,
    });
    (name(), vec(any::<IpAddr>(), 0..3), vec(port, 0..3))
        .prop_map(|(pod, addresses, ports)| Arc::new(Member { pod, addresses, ports }))
}

fn group_change() -> impl Strategy<Value = GroupChange> {
    let many = || prop_oneof![12 => vec(member(), 0..4), 1 => vec(member(), 200..600)];
    prop_oneof![
        (id(), many()).prop_map(|(id, members)| GroupChange::Set(Arc::new(Group { id, members }))),
        (id(), many(), vec(name(), 0..3)).prop_map(|(id, added, removed)| GroupChange::Patch(Arc::new(Patch {
            id,
            added,
            removed
        }))),
        id().prop_map(GroupChange::Delete),
    ]
}

fn net() -> impl Strategy<Value = IpNet> {
    (any::<IpAddr>(), 0..=32u8).prop_map(|(address, length)| IpNet::new(address, length).unwrap())
}

fn service() -> impl Strategy<Value = Service> {
    let range = option::of((any::<u16>(), any::<u16>()).prop_map(|(a, b)| (a.min(b), a.max(b))));
    prop_oneof![
        (protocol(), range).prop_map(|(protocol, range)| Service::Ports(Ports { protocol, range })),
        (protocol(), "[a-z]{1,5}", option::of(id())).prop_map(|(protocol, name, known_by)| Service::Named {
            protocol,
            name,
            known_by
        }),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let direction = prop_oneof![Just(Direction::Ingress), Just(Direction::Egress)];
    let block = (net(), vec(net(), 0..2)).prop_map(|(cidr, except)| IpBlock { cidr, except });
    let peers = (vec(id(), 0..3), vec(block, 0..3)).prop_map(|(groups, blocks)| Peers { groups, blocks });
    (direction, any::<u32>(), option::of(peers), option::of(vec(service(), 0..3)))
        .prop_map(|(direction, index, peers, services)| Rule::allow(direction, index, peers, services))
}

fn policy() -> impl Strategy<Value = Policy> {
    let isolates = any::<(bool, bool)>().prop_map(|(ingress, egress)| Isolation { ingress, egress });
    (name(), "[a-z]{0,5}", any::<i64>(), vec(id(), 0..2), isolates, vec(rule(), 0..4)).prop_map(
        |(name, uid, generation, applied_to, isolates, rules)| Policy {
            name: PolicyName::kubernetes(name),
            uid,
            generation,
            order: Order::Kubernetes(isolates),
            applied_to,
            rules,
        },
    )
}

fn policy_name() -> impl Strategy<Value = PolicyName> {
    let kind = prop_oneof![Just(PolicyKind::Antrea), Just(PolicyKind::AntreaCluster)];
    (kind, name()).prop_map(|(kind, object)| PolicyName { kind, object })
}

fn tiered_rule() -> impl Strategy<Value = Rule> {
    let action = prop_oneof![Just(Action::Allow), Just(Action::Drop), Just(Action::Reject), Just(Action::Pass)];
    let with = |(rule, name, action, applied_to)| Rule { name, action, applied_to, ..rule };
    (rule(), "[a-z]{0,5}", action, option::of(vec(id(), 0..3))).prop_map(with)
}

fn tiered_policy() -> impl Strategy<Value = Policy> {
    let rank = (any::<u8>(), 1.0..=10_000.0)
        .prop_map(|(tier, priority): (u8, f64)| Rank { tier, priority: priority.try_into().unwrap() });
    (policy(), policy_name(), rank, vec(tiered_rule(), 0..4)).prop_map(|(policy, name, rank, rules)| Policy {
        name,
        order: Order::Tiered(rank),
        rules,
        ..policy
    })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        group_change().prop_map(Change::AppliedTo),
        group_change().prop_map(Change::Address),
        policy().prop_map(|policy| Change::Policy(PolicyChange::Set(Arc::new(policy)))),
        tiered_policy().prop_map(|policy| Change::Policy(PolicyChange::Set(Arc::new(policy)))),
        name().prop_map(|name| Change::Policy(PolicyChange::Delete(Arc::new(PolicyName::kubernetes(name))))),
        policy_name().prop_map(|name| Change::Policy(PolicyChange::Delete(Arc::new(name)))),
        (name(), "[a-z]{0,5}").prop_map(|(pod, uid)| Change::Pod(PodChange::Seen(Arc::new(Seen { pod, uid })))),
        name().prop_map(|name| Change::Pod(PodChange::Gone(Arc::new(name)))),
    ]
}

fn batch() -> impl Strategy<Value = Batch> {
    (any::<bool>(), vec(change(), 0..12)).prop_map(|(snapshot, changes)| Batch { snapshot, changes })
}

/// Groups whose members came in pieces in one piece again.
fn merged(batch: Batch) -> Batch {
    let mut changes: Vec<Change> = Vec::new();
    for change in batch.changes {
        let of = |change: &Change| match change {
            Change::AppliedTo(change) => Some((0, change.clone())),
            Change::Address(change) => Some((1, change.clone())),
            Change::Policy(_) | Change::Pod(_) => None,
        };
        if let (Some((kind, GroupChange::Patch(more))), Some((last_kind, last))) =
            (of(&change), changes.last().and_then(of))
        {
            let joined = match last {
                GroupChange::Set(group) if group.id == more.id => {
                    let members = group.members.iter().chain(&more.added).cloned().collect();
                    Some(GroupChange::Set(Arc::new(Group { id: group.id, members })))
                }
                GroupChange::Patch(patch) if patch.id == more.id => {
                    let added = patch.added.iter().chain(&more.added).cloned().collect();
                    Some(GroupChange::Patch(Arc::new(Patch { id: patch.id, added, removed: patch.removed.clone() })))
                }
                _ => None,
            };
            if let Some(joined) = joined.filter(|_| kind == last_kind && more.removed.is_empty()) {
                changes.pop();
                changes.push(if kind == 0 { Change::AppliedTo(joined) } else { Change::Address(joined) });
                continue;
            }
        }
        changes.push(change);
    }
    Batch { changes, ..batch }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_survives_as_bytes(batch in batch()) {
        prop_assert_eq!(decode(&encode(&batch)).unwrap(), batch);
    }

    #[test]
    fn a_batch_survives_in_parts_none_of_which_is_large(batch in batch()) {
        let mut assembly = Assembly::default();
        let mut whole = Vec::new();
        for part in Parts::of(batch.clone()) {
            prop_assert!(whole.is_empty(), "a part after the last one");
            prop_assert!(part.encoded_len() < 64 << 10, "{}", part.encoded_len());
            whole.extend(assembly.add(part).unwrap());
        }
        prop_assert_eq!(whole.len(), 1);
        prop_assert_eq!(merged(whole.remove(0)), merged(batch));
    }

    #[test]
    fn any_bytes_are_a_batch_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn a_damaged_batch_is_a_batch_or_an_error(batch in batch(), place in any::<usize>(), byte in any::<u8>()) {
        let mut bytes = encode(&batch);
        let place = place % bytes.len();
        bytes[place] = byte;
        let _ = decode(&bytes);
        let _ = decode(&bytes[..place]);
    }
}

fn part(policy: wire::Policy) -> Vec<u8> {
    let change = wire::Change { kind: Some(wire::change::Kind::SetPolicy(policy)) };
    // A change of a kind that is not known here has no kind once it is read.
    wire::Part { snapshot: true, changes: vec![wire::Change { kind: None }, change], end: true }.encode_to_vec()
}

#[test]
fn unknown_fields_of_a_newer_controller_are_skipped_and_allow_nothing() {
    let unknown_peer = wire::Peers { peers: vec![wire::Peer { kind: None }] };
    let unknown_port = wire::Services { services: vec![wire::Service { protocol: 77, kind: None }] };
    let rule = wire::Rule {
        direction: wire::Direction::Ingress.into(),
        peers: Some(unknown_peer),
        services: Some(unknown_port),
        ..wire::Rule::default()
    };
    let sideways = wire::Rule { direction: 9, ..wire::Rule::default() };
    let policy = wire::Policy {
        name: Some(wire::Name::default()),
        isolates_ingress: true,
        rules: vec![rule, sideways],
        ..wire::Policy::default()
    };
    let batch = decode(&part(policy)).unwrap();
    let [Change::Policy(PolicyChange::Set(policy))] = &batch.changes[..] else { panic!("{batch:?}") };
    assert!(policy.isolates().ingress);
    let [Rule { peers: Some(peers), services: Some(services), .. }] = &policy.rules[..] else { panic!("{policy:?}") };
    assert_eq!((peers, services.len()), (&Peers::default(), 0));
}

/// Unlike a rule that allows, one that denies matches more if a part of it is unknown.
#[test]
fn unknown_parts_of_rules_in_tiers_never_allow_more() {
    let rule = |action: i32| wire::TieredRule {
        direction: wire::Direction::Egress.into(),
        action,
        peers: Some(wire::Peers { peers: vec![wire::Peer { kind: None }] }),
        services: Some(wire::Services { services: vec![wire::Service { protocol: 9, kind: None }] }),
        ..wire::TieredRule::default()
    };
    let actions = [wire::Action::Allow, wire::Action::Drop, wire::Action::Reject, wire::Action::Pass];
    let known = wire::PolicyName { kind: wire::PolicyKind::Antrea.into(), name: Some(wire::Name::default()) };
    let policy = |name| wire::TieredPolicy {
        name: Some(name),
        priority: 1.0,
        rules: actions.map(i32::from).into_iter().chain([9]).map(rule).collect(),
        ..wire::TieredPolicy::default()
    };
    let sent = |policy| wire::Change { kind: Some(wire::change::Kind::SetTieredPolicy(policy)) };
    let changes = |policy| super::decode::changes(vec![sent(policy)]).collect::<Result<Vec<_>, _>>();
    let batch = changes(policy(known.clone())).unwrap();
    let [Change::Policy(PolicyChange::Set(read))] = &batch[..] else { panic!("{batch:?}") };
    let rules: Vec<_> =
        read.rules.iter().map(|rule| (rule.action, rule.peers.clone(), rule.services.clone())).collect();
    let expected = [
        (Action::Allow, Some(Peers::default()), Some(vec![])),
        (Action::Drop, None, None),
        (Action::Reject, None, None),
        (Action::Pass, None, None),
        (Action::Drop, None, None),
    ];
    assert_eq!(rules, expected);
    // A kind of policies that this version does not have.
    assert_eq!(changes(policy(wire::PolicyName { kind: 9, ..known.clone() })), Ok(vec![]));
    let error = changes(wire::TieredPolicy { priority: 0.5, ..policy(known) }).unwrap_err().to_string();
    assert!(error.ends_with("the priority 0.5 of a policy is not a number from 1 to 10000"), "{error}");
}

#[test]
fn an_invalid_field_is_named_in_the_error() {
    let error = decode(&part(wire::Policy::default())).unwrap_err().to_string();
    assert!(error.ends_with("policy.name: is missing"), "{error}");
    let policy =
        wire::Policy { name: Some(wire::Name::default()), applied_to: vec![vec![1, 2, 3]], ..wire::Policy::default() };
    let error = decode(&part(policy)).unwrap_err().to_string();
    assert!(error.ends_with("group.id: has 3 bytes, not 16"), "{error}");
    let error = decode(&[]).unwrap_err().to_string();
    assert!(error.contains("end: is missing"), "{error}");
}
