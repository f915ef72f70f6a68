//! Identity of rules while their flows may be in the switch, and their conversion for the pipeline.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use delta::{StableHasher, StableKey};
use pipeline::model::{Applied, RuleKind};
use policy::PolicyRule;
use types::control::{Action, Direction, GroupId, Order, Policy, PolicyKind, PolicyName, Ports, Rank, Rule, Service};

/// The identity of a rule, to which its number is assigned.
///
/// A rule whose peers are written differently is another rule: flows of the old one may still be in the switch when an agent
/// starts, and clauses of the two must never share a number. Changes of group members do not matter.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RuleKey {
    pub(super) policy: PolicyName,
    uid: String,
    /// A rule that decides otherwise is another rule, too. `None` for Kubernetes policies.
    verdict: Option<(Rank, Action)>,
    pub(super) direction: Direction,
    index: u32,
    /// Hash of the peers, named ports and own AppliedToGroups as written in the policy.
    written: u64,
    ports: Option<BTreeSet<Ports>>,
}

impl RuleKey {
    pub(super) fn name(&self) -> RuleName<'_> {
        RuleName { policy: &self.policy, direction: self.direction, index: self.index }
    }
}

/// A rule's position in its policy; printed as `ingress[0]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleName<'a> {
    /// The policy that has the rule.
    pub policy: &'a PolicyName,
    /// Ingress or egress rule.
    pub direction: Direction,
    /// Position among the policy's rules of this direction.
    pub index: u32,
}

impl fmt::Display for RuleName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        };
        write!(f, "{direction}[{}]", self.index)
    }
}

impl StableKey for RuleKey {
    fn feed(&self, hash: &mut StableHasher) {
        self.policy.object.namespace.feed(hash);
        self.policy.object.name.feed(hash);
        self.uid.feed(hash);
        feed_direction(self.direction, hash);
        self.index.feed(hash);
        self.written.feed(hash);
        match &self.ports {
            None => 0u8.feed(hash),
            Some(ports) => {
                1u8.feed(hash);
                for Ports { protocol, range } in ports {
                    protocol.number().feed(hash);
                    let (first, last) = range.unwrap_or((0, u16::MAX));
                    first.feed(hash);
                    last.feed(hash);
                }
            }
        }
        // Kubernetes policies have the numbers that earlier versions gave them.
        if let Some((rank, action)) = self.verdict {
            let kind: u8 = match self.policy.kind {
                PolicyKind::Kubernetes => 0,
                PolicyKind::Antrea => 1,
                PolicyKind::AntreaCluster => 2,
            };
            let action: u8 = match action {
                Action::Allow => 0,
                Action::Drop => 1,
                Action::Reject => 2,
                Action::Pass => 3,
            };
            kind.feed(hash);
            action.feed(hash);
            rank.tier.feed(hash);
            rank.priority.value().to_bits().feed(hash);
        }
    }
}

fn feed_direction(direction: Direction, hash: &mut StableHasher) {
    match direction {
        Direction::Ingress => 0u8.feed(hash),
        Direction::Egress => 1u8.feed(hash),
    }
}

/// The rules of a policy by key. Merges rules of the same index and ports if all have the same peers, or all apply to the same
/// Pods.
pub(super) fn united(policy: &Policy, rules: BTreeSet<PolicyRule>) -> BTreeMap<RuleKey, PolicyRule> {
    let own_groups = |rule: &Rule| rule.applied_to.clone().unwrap_or_default();
    let written: BTreeMap<(Direction, u32, Vec<GroupId>), u64> =
        policy.rules.iter().map(|rule| ((rule.direction, rule.index, own_groups(rule)), as_written(rule))).collect();
    let mut united: BTreeMap<RuleKey, PolicyRule> = BTreeMap::new();
    for rule in rules {
        let key = RuleKey {
            policy: policy.name.clone(),
            uid: policy.uid.clone(),
            verdict: match policy.order {
                Order::Kubernetes(_) => None,
                Order::Tiered(rank) => Some((rank, rule.action)),
            },
            direction: rule.direction,
            index: rule.index,
            written: written.get(&(rule.direction, rule.index, rule.own_groups.clone())).copied().unwrap_or_default(),
            ports: rule.ports.clone(),
        };
        match united.get_mut(&key) {
            None => drop(united.insert(key, rule)),
            Some(other) => {
                other.applied_to.extend(rule.applied_to);
                match (&mut other.peers, rule.peers) {
                    (Some(peers), Some(more)) => peers.extend(more),
                    (peers, _) => *peers = None,
                }
            }
        }
    }
    united
}

/// Hash of a rule's peers, named ports and own AppliedToGroups as written, without the members of groups.
fn as_written(rule: &Rule) -> u64 {
    let mut hash = StableHasher::default();
    match &rule.peers {
        None => 0u8.feed(&mut hash),
        Some(peers) => {
            1u8.feed(&mut hash);
            for group in &peers.groups {
                hash.write(&group.0);
            }
            for block in &peers.blocks {
                block.cidr.to_string().feed(&mut hash);
                for hole in &block.except {
                    hole.to_string().feed(&mut hash);
                }
                0u8.feed(&mut hash);
            }
        }
    }
    for group in rule.applied_to.iter().flatten() {
        hash.write(&group.0);
    }
    for service in rule.services.iter().flatten() {
        match service {
            // Numbered ports are part of the key.
            Service::Ports(_) => {}
            Service::Named { protocol, name, .. } => {
                protocol.number().feed(&mut hash);
                name.feed(&mut hash);
            }
        }
    }
    hash.finish()
}

/// Converts a rule for the pipeline, with the Pods of this Node that it applies to.
pub(crate) fn rule_model(
    rule: PolicyRule,
    id: u32,
    kind: RuleKind,
    applied_to: BTreeSet<Applied>,
) -> pipeline::model::Rule {
    let PolicyRule { direction, peers, ports, .. } = rule;
    pipeline::model::Rule { id, direction, kind, applied_to, peers, ports }
}
