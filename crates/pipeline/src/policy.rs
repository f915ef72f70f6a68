//! Policies: rules as conjunctions that share clauses, isolation, and packets that bypass rules.

use std::collections::BTreeSet;
use std::net::IpAddr;

use openflow::action::{Action, Controller};
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::Match;

use crate::Pipeline;
use crate::cidr;
use crate::conntrack::{Tracked, state};
use crate::family::{Addressed, Family, port_field};
use crate::model::{Applied, Datapath, Direction, Pod, Ports, Protocol, Rule, RuleAction, RuleKind};
use crate::ports::masks;
use crate::priority;
use crate::regs::{
    Bits, CT_ACCEPTED, CT_EGRESS_RULE, CT_INGRESS_RULE, DENIED, DENIED_BY, EGRESS_RULE, FROM_GATEWAY, INGRESS_RULE,
    Marked, OUT_PORT,
};
use crate::tables::Table;

/// First byte of the userdata of a packet-in: a rule with action Reject matched.
pub const USERDATA_REJECT: u8 = 1;
/// Mark of packets that the host itself sends to Pods, such as probes.
const HOST_MARK: u8 = 1;

/// The tables of one direction.
struct Stage {
    antrea: Table,
    rule: Table,
    default: Table,
    metric: Table,
    /// The table after this direction's policies.
    next: Table,
    /// Register and label with the rule that allowed the packet or its connection.
    by: Bits,
    ct_by: Bits,
}

fn stage(direction: Direction) -> Stage {
    match direction {
        Direction::Egress => Stage {
            antrea: Table::AntreaEgress,
            rule: Table::EgressRule,
            default: Table::EgressDefault,
            metric: Table::EgressMetric,
            next: Table::L3Forwarding,
            by: EGRESS_RULE,
            ct_by: CT_EGRESS_RULE,
        },
        Direction::Ingress => Stage {
            antrea: Table::AntreaIngress,
            rule: Table::IngressRule,
            default: Table::IngressDefault,
            metric: Table::IngressMetric,
            next: Table::ConntrackCommit,
            by: INGRESS_RULE,
            ct_by: CT_INGRESS_RULE,
        },
    }
}

impl Pipeline {
    pub(crate) fn policy_base(&self) -> Vec<Flow> {
        let mut flows = Vec::new();
        for direction in [Direction::Egress, Direction::Ingress] {
            let stage = stage(direction);
            let passed = self.passed(&stage);
            for (family, _) in self.node.addresses.iter() {
                for (table, priority) in [
                    (stage.antrea, priority::tier::ACCEPTED),
                    (stage.rule, priority::rule::ACCEPTED),
                    (stage.default, priority::tier::ACCEPTED),
                ] {
                    // Without tiers, no flow of the default table applies to accepted connections.
                    if self.layout.has(stage.antrea) || table == stage.rule {
                        let bypass = self.accepted(family).into_iter();
                        flows.extend(bypass.map(|m| table.flow(priority).when(m).then(passed.clone())));
                    }
                }
            }
            if self.layout.has(stage.antrea) {
                flows.push(stage.antrea.flow(priority::MISS).then(stage.rule.resubmit()));
                flows.push(stage.metric.flow(priority::MISS).then(stage.next.resubmit()));
            }
            flows.push(stage.rule.flow(priority::MISS).then(stage.default.resubmit()));
            flows.push(stage.default.flow(priority::MISS).then(passed));
        }
        flows.extend(self.probes());
        flows
    }

    /// The host may always probe its Pods.
    fn probes(&self) -> Vec<Flow> {
        let from_host: Vec<Match> = match self.node.datapath {
            Datapath::System => {
                vec![Match::any().with_masked(Field::PktMark, HOST_MARK, HOST_MARK)]
            }
            // The address alone could be forged behind a tunnel or an uplink.
            Datapath::Netdev | Datapath::Windows => {
                let gateways = self.node.addresses.iter();
                gateways.map(|(f, address)| f.ip().mark(FROM_GATEWAY).from(address.gateway)).collect()
            }
        };
        let tables =
            [(Table::AntreaIngress, priority::tier::FROM_HOST), (Table::IngressRule, priority::rule::ACCEPTED)];
        tables
            .into_iter()
            .filter(|(table, _)| self.layout.has(*table))
            .flat_map(|(table, priority)| from_host.iter().map(move |m| table.flow(priority).when(m.clone())))
            .map(|flow| flow.then(Table::ConntrackCommit.resubmit()))
            .collect()
    }

    /// Policies do not apply to a Pod's packets to itself.
    pub(crate) fn policy_pod(&self, pod: &Pod) -> Vec<Flow> {
        if !self.has_proxy() {
            return Vec::new();
        }
        let (egress, ingress) = (stage(Direction::Egress), stage(Direction::Ingress));
        // In the first table with rules, above all rules.
        let first = |stage: &Stage| {
            if self.layout.has(stage.antrea) {
                stage.antrea.flow(priority::tier::TO_ITSELF)
            } else {
                stage.rule.flow(priority::rule::TO_ITSELF)
            }
        };
        let to_itself = |address: &IpAddr| {
            let family = Family::of(*address);
            let leaving = family.ip().from(*address).to(*address);
            let arriving = family.ip().from(*address).mark(OUT_PORT.holds(u128::from(pod.port.0)));
            [
                first(&egress).when(leaving).then(self.passed(&egress)),
                first(&ingress).when(arriving).then(self.passed(&ingress)),
            ]
        };
        pod.addresses.iter().flat_map(to_itself).collect()
    }

    pub(crate) fn policy_isolated(&self, direction: Direction, pod: &Applied) -> Vec<Flow> {
        let table = stage(direction).default;
        let families: BTreeSet<Family> = pod.addresses.iter().map(|address| Family::of(*address)).collect();
        match direction {
            Direction::Egress => pod
                .addresses
                .iter()
                .map(|a| table.flow(priority::default::DROP_ISOLATED).when(Family::of(*a).ip().from(*a)))
                .collect(),
            Direction::Ingress => families
                .into_iter()
                .map(|f| {
                    table
                        .flow(priority::default::DROP_ISOLATED)
                        .when(f.ip().mark(OUT_PORT.holds(u128::from(pod.port.0))))
                })
                .collect(),
        }
    }

    pub(crate) fn policy_rule(&self, rule: &Rule) -> Vec<Flow> {
        let stage = stage(rule.direction);
        let (table, clause_priority, verdict_priority, action) = match rule.kind {
            RuleKind::Kubernetes => (stage.rule, priority::rule::CLAUSE, priority::rule::VERDICT, RuleAction::Allow),
            RuleKind::Antrea { priority, action } => (stage.antrea, priority, priority, action),
            RuleKind::Baseline { priority, action } => (stage.default, priority, priority, action),
        };
        let mut flows = Vec::new();
        for (family, _) in self.node.addresses.iter() {
            let clauses = rule.clauses(family);
            if clauses.iter().any(Vec::is_empty) {
                // One clause cannot match in this family, so the rule has no flows in it.
                continue;
            }
            let of = u8::try_from(clauses.len()).unwrap_or(u8::MAX);
            for (clause, conditions) in (1..).zip(clauses) {
                let conjunction = Action::Conjunction { id: rule.id, clause, of };
                flows.extend(
                    conditions.into_iter().map(|m| table.flow(clause_priority).when(m).then(conjunction.clone())),
                );
            }
            let all = family.ip().with(Field::ConjId, rule.id);
            let verdict = table.flow(verdict_priority).when(all);
            flows.push(self.verdict(&stage, rule, action).into_iter().fold(verdict, Flow::then));
            if self.layout.has(stage.metric) {
                flows.extend(metrics(&stage, family, rule.id, action));
            }
        }
        flows
    }

    fn passed(&self, stage: &Stage) -> Action {
        self.layout.to([stage.metric, stage.next])
    }

    /// Packets of connections that all policies have accepted, and errors about them.
    fn accepted(&self, family: Family) -> Vec<Match> {
        let known = |packets: Match, state| packets.ct(state, state::NEW).mark(CT_ACCEPTED);
        let related = known(family.ip(), state::REL);
        match self.node.datapath {
            Datapath::System | Datapath::Windows => vec![known(family.ip(), state::EST), related],
            // The userspace datapath tracks other protocols by addresses alone: accepting one SCTP port would accept all. So
            // policies apply to every packet from the client, and only replies bypass them.
            Datapath::Netdev => {
                let ported =
                    [Protocol::Tcp, Protocol::Udp].map(|protocol| known(family.protocol(protocol), state::EST));
                let icmp = known(family.icmp(), state::EST);
                let answers = known(family.ip(), state::EST | state::RPL);
                ported.into_iter().chain([icmp, answers, related]).collect()
            }
        }
    }

    fn verdict(&self, stage: &Stage, rule: &Rule, action: RuleAction) -> Vec<Action> {
        let number = u128::from(rule.id);
        match action {
            RuleAction::Allow if self.layout.has(stage.metric) => {
                vec![stage.by.holds(number).load(), self.passed(stage)]
            }
            RuleAction::Allow => vec![self.passed(stage)],
            // Nothing comes after the baseline.
            RuleAction::Pass if matches!(rule.kind, RuleKind::Baseline { .. }) => vec![self.passed(stage)],
            RuleAction::Pass => vec![stage.rule.resubmit()],
            RuleAction::Drop => vec![DENIED_BY.holds(number).load(), DENIED.load(), self.passed(stage)],
            RuleAction::Reject => {
                let userdata = [USERDATA_REJECT].into_iter().chain(rule.id.to_be_bytes()).collect();
                let notify = Action::Controller(Box::new(Controller { userdata, ..Controller::default() }));
                vec![DENIED_BY.holds(number).load(), DENIED.load(), notify, self.passed(stage)]
            }
        }
    }
}

/// Counters of a rule: the first packet of a connection counts sessions, the others count packets and bytes.
fn metrics(stage: &Stage, family: Family, id: u32, action: RuleAction) -> Vec<Flow> {
    let number = u128::from(id);
    let at = |priority, matches: Match| stage.metric.flow(priority).when(matches);
    match action {
        RuleAction::Allow => vec![
            at(priority::metric::ALLOWED, family.ip().ct(state::NEW, 0).mark(stage.by.holds(number)))
                .then(stage.next.resubmit()),
            at(priority::metric::ALLOWED, family.ip().ct(0, state::NEW).mark(stage.ct_by.holds(number)))
                .then(stage.next.resubmit()),
        ],
        // A denied packet is dropped here, whichever rule allowed it before.
        RuleAction::Drop | RuleAction::Reject => {
            vec![at(priority::metric::DENIED, family.ip().mark(DENIED).mark(DENIED_BY.holds(number)))]
        }
        RuleAction::Pass => Vec::new(),
    }
}

impl Rule {
    /// The clauses of the rule. All of them must match; each matches if one of its matches does.
    fn clauses(&self, family: Family) -> Vec<Vec<Match>> {
        let applied = || match self.direction {
            Direction::Egress => {
                let addresses = self.applied_to.iter().flat_map(|pod| &pod.addresses);
                addresses.filter(|a| Family::of(**a) == family).map(|a| family.ip().from(*a)).collect()
            }
            Direction::Ingress => {
                let here = self.applied_to.iter().filter(|pod| pod.addresses.iter().any(|a| Family::of(*a) == family));
                here.map(|pod| family.ip().mark(OUT_PORT.holds(u128::from(pod.port.0)))).collect()
            }
        };
        let peers = self.peers.as_ref().map(|blocks| {
            let field = match self.direction {
                Direction::Ingress => family.src(),
                Direction::Egress => family.dst(),
            };
            let parts = cidr::union(blocks.iter().filter(|block| Family::of(block.cidr.addr()) == family));
            parts.into_iter().map(|part| family.ip().within(field, part)).collect()
        });
        let ports =
            self.ports.as_ref().map(|ports| ports.iter().flat_map(|ports| destination(*ports, family)).collect());
        // A conjunction has at least two clauses.
        let any_peer = (peers.is_none() && ports.is_none()).then(|| vec![family.ip()]);
        let ends = match self.direction {
            Direction::Egress => [Some(applied()), peers.or(any_peer)],
            Direction::Ingress => [peers.or(any_peer), Some(applied())],
        };
        ends.into_iter().chain([ports]).flatten().collect()
    }
}

fn destination(ports: Ports, family: Family) -> Vec<Match> {
    let packets = family.protocol(ports.protocol);
    match ports.range {
        None => vec![packets],
        Some((first, last)) => masks(first, last)
            .into_iter()
            .map(|(value, mask)| packets.clone().with_masked(port_field(ports.protocol), value, mask))
            .collect(),
    }
}
