//! Antrea policies: tiers before Kubernetes policies, the baseline after them, and actions other than Allow.

use openflow::port::Port;
use pipeline::model::Direction::{Egress, Ingress};
use pipeline::model::{Direction, Protocol, Rule, RuleAction, RuleKind};

use super::frame::Step::{Data, Reply, Syn, SynAck};
use super::frame::{Frame, Packet};
use super::objects::{Narrowed, TARGET, allow, isolate, local, tiered};
use super::services::{BY_CLUSTER_IP, CLUSTER_IP};
use super::switch::BRIDGE;
use super::world::{A, B, C, End, HOST, World, at, from_gateway, to_gateway};
use crate::cluster::Service;

const HIGH: u16 = 50000;
const LOW: u16 = 14000;

fn syn(from: End, port: u16, to: End, to_port: u16) -> Packet {
    Packet::tcp(from.at(port), to.at(to_port), Syn).between(from.mac, to.mac)
}

/// A rule of the tier after Kubernetes policies.
fn baseline(id: u32, direction: Direction, pod: End, action: RuleAction) -> Rule {
    Rule { kind: RuleKind::Baseline { priority: 180, action }, ..allow(id, direction, pod) }
}

/// Whether A's connection to B passes under these rules, with B, A or no Pod isolated by Kubernetes policies.
fn verdict(rules: Vec<Rule>, kubernetes: Option<Direction>) -> bool {
    let mut w = World::with(|c| {
        c.rules = rules;
        if let Some(direction) = kubernetes {
            isolate(c, direction, if direction == Ingress { B } else { A });
        }
    });
    let packet = syn(A, 40000, B, 80);
    match &w.send(A.port, packet.clone())[..] {
        [] => false,
        [came] => *came == (B.port, packet.into()),
        more => panic!("{more:?}"),
    }
}

#[test]
fn tiers_are_evaluated_before_kubernetes_policies() {
    for (direction, pod) in [(Ingress, B), (Egress, A)] {
        let rule = |action| tiered(1, direction, pod, HIGH, action);
        let kubernetes = || allow(2, direction, pod);
        let isolated = Some(direction);
        assert!(verdict(vec![], None));
        assert!(!verdict(vec![], isolated));
        assert!(verdict(vec![kubernetes()], isolated));
        assert!(verdict(vec![rule(RuleAction::Allow)], isolated));
        for action in [RuleAction::Drop, RuleAction::Reject] {
            assert!(!verdict(vec![rule(action)], None));
            assert!(!verdict(vec![rule(action), kubernetes()], isolated));
        }
        assert!(verdict(vec![rule(RuleAction::Pass)], None));
        assert!(!verdict(vec![rule(RuleAction::Pass)], isolated));
        assert!(verdict(vec![rule(RuleAction::Pass), kubernetes()], isolated));
    }
}

#[test]
fn the_rule_with_the_higher_priority_applies() {
    use RuleAction::{Allow, Drop, Pass};
    for (direction, pod) in [(Ingress, B), (Egress, A)] {
        let rules = |high, low| vec![tiered(1, direction, pod, HIGH, high), tiered(2, direction, pod, LOW, low)];
        assert!(verdict(rules(Allow, Drop), None));
        assert!(!verdict(rules(Drop, Allow), None));
        // Pass skips later tiers too.
        assert!(verdict(rules(Pass, Drop), None));
        assert!(!verdict(rules(Pass, Allow), Some(direction)));
    }
}

#[test]
fn the_baseline_applies_to_pods_without_kubernetes_policies() {
    use RuleAction::{Allow, Drop, Pass};
    for (direction, pod) in [(Ingress, B), (Egress, A)] {
        let base = |action| baseline(1, direction, pod, action);
        assert!(!verdict(vec![base(Drop)], None));
        assert!(!verdict(vec![base(RuleAction::Reject)], None));
        assert!(verdict(vec![base(Allow)], None));
        // Kubernetes policies precede the baseline, for isolation and for rules.
        assert!(!verdict(vec![base(Allow)], Some(direction)));
        assert!(verdict(vec![base(Drop), allow(2, direction, pod)], Some(direction)));
        assert!(!verdict(vec![base(Drop), tiered(2, direction, pod, HIGH, Pass)], None));
        assert!(verdict(vec![base(Drop), tiered(2, direction, pod, HIGH, Allow)], None));
    }
}

#[test]
fn a_rule_matches_its_peers_and_ports_only() {
    let rule = tiered(1, Ingress, B, HIGH, RuleAction::Drop).with_peer(A.ip).to_ports(Protocol::Tcp, 80, 80);
    let mut w = World::with(|c| c.rules = vec![rule]);
    w.drops(A.port, syn(A, 40000, B, 80));
    w.passes(A.port, syn(A, 40000, B, 81), B.port, syn(A, 40000, B, 81));
    w.passes(C.port, syn(C, 40000, B, 80), B.port, syn(C, 40000, B, 80));
    w.passes(A.port, syn(A, 40000, C, 80), C.port, syn(A, 40000, C, 80));
}

#[test]
fn rejected_packets_go_to_the_agent_only() {
    for (id, direction, pod) in [(0x0102_0304, Ingress, B), (7, Egress, A)] {
        let mut w = World::with(|c| c.rules = vec![tiered(id, direction, pod, HIGH, RuleAction::Reject)]);
        let packet = syn(A, 40000, B, 80);
        w.drops(A.port, packet.clone());
        let asked = w.switch.client.packet_ins();
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert_eq!(asked[0].in_port(), Some(Port(3)));
        assert_eq!(asked[0].userdata, [&[1][..], &id.to_be_bytes()].concat(), "what, and which rule");
        assert_eq!(Frame::read(&asked[0].packet), Frame::Ip(packet));
    }
}

#[test]
fn accepted_connections_survive_a_new_drop_rule() {
    let mut w = World::with(|c| {
        c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)]));
        c.rules = vec![tiered(1, Ingress, B, LOW, RuleAction::Allow), tiered(2, Egress, A, LOW, RuleAction::Allow)];
    });
    let sent = |step| to_gateway(A, Packet::tcp(A.at(40000), at(CLUSTER_IP, 80), step));
    let got = |step| from_gateway(B, Packet::tcp(A.at(40000), B.at(TARGET), step));
    let answer = |step| Packet::tcp(B.at(TARGET), A.at(40000), step).between(B.mac, A.mac);
    let heard = |step| from_gateway(A, Packet::tcp(at(CLUSTER_IP, 80), A.at(40000), step));
    w.passes(A.port, sent(Syn), B.port, got(Syn));
    w.passes(B.port, answer(SynAck), A.port, heard(SynAck));
    w.change(|c| {
        for (id, direction, pod) in [(3, Ingress, B), (4, Egress, A), (5, Ingress, A), (6, Egress, B)] {
            c.rules.push(tiered(id, direction, pod, HIGH, RuleAction::Drop));
        }
    });
    w.passes(A.port, sent(Data), B.port, got(Data));
    w.passes(B.port, answer(Reply), A.port, heard(Reply));
    w.drops(A.port, syn(A, 40001, B, 80));
}

#[test]
fn probes_of_the_host_bypass_tiers() {
    let mut w = World::with(|c| c.rules = vec![tiered(1, Ingress, B, HIGH, RuleAction::Drop)]);
    let probe = Packet::tcp(HOST.at(40000), B.at(80), Syn).between(HOST.mac, B.mac);
    w.probes(probe, B);
}

/// Packet counts of a rule's flows in a metric table.
fn counted(w: &World, table: &str, of: &str) -> u64 {
    let flows = w.switch.ovs.ofctl(["dump-flows", BRIDGE, table]).unwrap();
    let count =
        |line: &str| -> u64 { line.split_once("n_packets=").unwrap().1.split_once(',').unwrap().0.parse().unwrap() };
    flows.lines().filter(|line| line.contains(of)).map(count).sum()
}

#[test]
fn sessions_packets_and_drops_are_counted_per_rule() {
    let mut w = World::with(|c| {
        c.rules = vec![
            tiered(0x11, Egress, A, HIGH, RuleAction::Allow),
            tiered(0x22, Ingress, B, HIGH, RuleAction::Allow).with_peer(A.ip),
            tiered(0x33, Ingress, B, LOW, RuleAction::Drop),
        ];
    });
    let packet = |from: End, to: End, step| {
        let (from_port, to_port) = if from.port == A.port { (40000, 80) } else { (80, 40000) };
        Packet::tcp(from.at(from_port), to.at(to_port), step).between(from.mac, to.mac)
    };
    for (from, to, step) in [(A, B, Syn), (B, A, SynAck), (A, B, Data), (A, B, Data)] {
        w.passes(from.port, packet(from, to, step), to.port, packet(from, to, step));
    }
    w.drops(C.port, syn(C, 41000, B, 80));
    w.drops(C.port, syn(C, 41001, B, 80));
    // Flow statistics are updated when ovs-vswitchd revalidates datapath flows.
    w.switch.settle();
    assert_eq!(counted(&w, "table=61", "+new,"), 1, "sessions of the egress rule");
    assert_eq!(counted(&w, "table=61", "ct_label=0x11"), 3, "further packets of its sessions");
    assert_eq!(counted(&w, "table=101", "+new,"), 1);
    assert_eq!(counted(&w, "table=101", "ct_label=0x22"), 3);
    assert_eq!(counted(&w, "table=101", "reg3=0x33"), 2, "drops");
}
