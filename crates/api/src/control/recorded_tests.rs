//! Agents and controllers understand the messages of earlier versions, and agents the snapshots that these have saved.

use std::sync::Arc;

use prost::Message as _;
use types::ObjectName;
use types::control::{
    Action, Batch, Change, Direction, Group, GroupChange, GroupId, IpBlock, Isolation, Member, NamedPort, Order, Patch,
    Peers, PodChange, Policy, PolicyChange, PolicyKind, PolicyName, Ports, Rank, Report, Rule, Seen, Service,
};
use types::meta::Protocol;

use super::parts::{Assembly, Parts};
use super::wire::{self, from_agent::Kind};
use super::{decode, encode};
use crate::recorded::Recorded;

fn name(name: &str) -> ObjectName {
    ObjectName { namespace: "shop".to_owned(), name: name.to_owned() }
}

fn member(pod: &str, address: &str) -> Arc<Member> {
    let ports = vec![
        NamedPort { protocol: Protocol::Tcp, name: "web".to_owned(), number: 8080 },
        NamedPort { protocol: Protocol::Sctp, name: "signal".to_owned(), number: 65535 },
    ];
    Arc::new(Member {
        pod: name(pod),
        addresses: vec![address.parse().unwrap(), "fd00:10:10:1::7".parse().unwrap()],
        ports,
    })
}

/// A policy with every kind of peer and port.
fn policy() -> Policy {
    let block = IpBlock {
        cidr: "10.0.0.0/8".parse().unwrap(),
        except: vec!["10.1.0.0/16".parse().unwrap(), "10.2.0.1/32".parse().unwrap()],
    };
    let six = IpBlock { cidr: "fd00::/64".parse().unwrap(), except: Vec::new() };
    let named = |protocol, known_by| Service::Named { protocol, name: "web".to_owned(), known_by };
    let rules = vec![
        Rule::allow(
            Direction::Ingress,
            0,
            Some(Peers { groups: vec![GroupId([2; 16])], blocks: vec![block, six] }),
            Some(vec![
                Service::Ports(Ports { protocol: Protocol::Tcp, range: Some((80, 443)) }),
                Service::Ports(Ports { protocol: Protocol::Udp, range: None }),
                named(Protocol::Tcp, None),
            ]),
        ),
        Rule::allow(Direction::Egress, 1, None, None),
        Rule::allow(
            Direction::Egress,
            2,
            Some(Peers::default()),
            Some(vec![named(Protocol::Sctp, Some(GroupId([3; 16])))]),
        ),
    ];
    Policy {
        name: PolicyName::kubernetes(name("web")),
        uid: "5f1c4c5e-7a0e-4d2f-9a49-0a3a5c7d6b21".to_owned(),
        generation: 7,
        order: Order::Kubernetes(Isolation { ingress: true, egress: true }),
        applied_to: vec![GroupId([1; 16])],
        rules,
    }
}

fn snapshot() -> Batch {
    let group = |id, members| Arc::new(Group { id: GroupId([id; 16]), members });
    let seen = Seen { pod: name("web-1"), uid: "0c2d8a9e-2a83-4a57-8f7e-5b0f3f1c9d11".to_owned() };
    Batch {
        snapshot: true,
        changes: vec![
            Change::AppliedTo(GroupChange::Set(group(1, vec![member("web-1", "10.10.1.7")]))),
            Change::Address(GroupChange::Set(group(
                2,
                vec![member("web-1", "10.10.1.7"), member("client", "10.10.2.9")],
            ))),
            Change::Policy(PolicyChange::Set(Arc::new(policy()))),
            Change::Pod(PodChange::Seen(Arc::new(seen))),
        ],
    }
}

fn changes() -> Batch {
    let patch =
        |id| Patch { id: GroupId([id; 16]), added: vec![member("web-2", "10.10.1.8")], removed: vec![name("web-1")] };
    Batch {
        snapshot: false,
        changes: vec![
            Change::AppliedTo(GroupChange::Patch(Arc::new(patch(1)))),
            Change::Address(GroupChange::Patch(Arc::new(patch(2)))),
            Change::Policy(PolicyChange::Delete(Arc::new(PolicyName::kubernetes(name("old"))))),
            Change::AppliedTo(GroupChange::Delete(GroupId([4; 16]))),
            Change::Address(GroupChange::Delete(GroupId([5; 16]))),
            Change::Pod(PodChange::Gone(Arc::new(name("web-1")))),
        ],
    }
}

/// A tiered policy with every kind of action.
fn tiered() -> Batch {
    let policy = policy();
    let actions = [Action::Allow, Action::Drop, Action::Reject, Action::Pass];
    let rule = |(index, action)| Rule {
        name: format!("rule-{index}"),
        action,
        index,
        applied_to: (index == 3).then(|| vec![GroupId([6; 16])]),
        ..policy.rules[0].clone()
    };
    let of_kind = |kind, object| PolicyName { kind, object };
    let tiered = Policy {
        name: of_kind(PolicyKind::Antrea, name("web")),
        order: Order::Tiered(Rank { tier: 250, priority: 5.25.try_into().unwrap() }),
        applied_to: vec![GroupId([1; 16]), GroupId([6; 16])],
        rules: (0..).zip(actions).map(rule).collect(),
        ..policy.clone()
    };
    let cluster = ObjectName { namespace: String::new(), name: "deny-all".to_owned() };
    let set = Change::Policy(PolicyChange::Set(Arc::new(tiered)));
    let deleted = PolicyChange::Delete(Arc::new(of_kind(PolicyKind::AntreaCluster, cluster)));
    Batch { snapshot: false, changes: vec![set, Change::Policy(deleted)] }
}

/// The batch of a stream with one part.
fn assembled(part: wire::Part) -> Batch {
    Assembly::default().add(part).unwrap().unwrap()
}

#[test]
fn batches_of_version_1_are_read_and_written() {
    let batches = [
        ("v1/control/snapshot.bin", snapshot()),
        ("v1/control/changes.bin", changes()),
        ("v1/control/tiered.bin", tiered()),
    ];
    for (file, batch) in batches {
        let recorded = Recorded { file, message: "antrea.control.v1.Part" };
        let parts: Vec<_> = Parts::of(batch.clone()).collect();
        let [part] = &parts[..] else { panic!("{} parts", parts.len()) };
        recorded.is_written(part);
        recorded.reads(&batch, assembled);
        // The agent saves a snapshot as one part, too.
        recorded.reads(&batch, |part: wire::Part| decode(&part.encode_to_vec()).unwrap());
        assert_eq!(encode(&batch), part.encode_to_vec());
    }
}

#[test]
fn a_large_group_of_version_1_is_read_from_its_parts() {
    let members = (0..300u16).map(|n| member(&format!("web-{n}"), &format!("10.10.{}.{}", n / 250, n % 250)));
    let members: Vec<_> = members.collect();
    let id = GroupId([1; 16]);
    let whole = Change::Address(GroupChange::Set(Arc::new(Group { id, members: members.clone() })));
    let first = GroupChange::Set(Arc::new(Group { id, members: members[..256].to_vec() }));
    let rest = GroupChange::Patch(Arc::new(Patch { id, added: members[256..].to_vec(), removed: Vec::new() }));
    let expected = [("v1/control/part-1.bin", first, false), ("v1/control/part-2.bin", rest, true)];
    let written: Vec<_> = Parts::of(Batch { snapshot: true, changes: vec![whole] }).collect();
    assert_eq!(written.len(), expected.len());
    for ((file, change, is_last), part) in expected.into_iter().zip(written) {
        let recorded = Recorded { file, message: "antrea.control.v1.Part" };
        recorded.is_written(&part);
        recorded.reads(&(true, vec![Ok(Change::Address(change))], is_last), |part: wire::Part| {
            (part.snapshot, super::decode::changes(part.changes).collect(), part.end)
        });
    }
}

#[test]
fn hello_and_reports_of_version_1_are_read_and_written() {
    let hello = wire::FromAgent { kind: Some(Kind::Hello(wire::Hello { node: "node-1".to_owned() })) };
    let recorded = Recorded { file: "v1/control/hello.bin", message: "antrea.control.v1.FromAgent" };
    recorded.is_written(&hello);
    recorded.reads(&hello, |message: wire::FromAgent| message);

    let report = |problem: Option<&str>| Report {
        policy: PolicyName::kubernetes(name("web")),
        uid: "5f1c4c5e-7a0e-4d2f-9a49-0a3a5c7d6b21".to_owned(),
        generation: 7,
        problem: problem.map(str::to_owned),
    };
    let reports = vec![report(None), report(Some("port 80 of protocol SCTP cannot be matched"))];
    let message = wire::Reports { reports: reports.iter().map(super::encode::report).collect() };
    let recorded = Recorded { file: "v1/control/reports.bin", message: "antrea.control.v1.FromAgent" };
    recorded.is_written(&wire::FromAgent { kind: Some(Kind::Reports(message)) });
    recorded.reads(&reports, |message: wire::FromAgent| match message.kind {
        Some(Kind::Reports(reports)) => super::decode::reports(reports).unwrap(),
        other => panic!("{other:?}"),
    });
}
