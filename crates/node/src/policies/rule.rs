//! Rules: what tells one from another for as long as flows of it may live, and what they are to the pipeline.

use std::collections::{BTreeMap, BTreeSet};

use delta::{StableHasher, StableKey};
use pipeline::model::{Applied, RuleKind};
use policy::PolicyRule;
use types::ObjectName;
use types::control::{Direction, Policy, Ports, Rule, Service};

/// What a rule's number belongs to.
///
/// A rule whose peers are written otherwise than before is another one: flows of the old one may still be in the switch when an
/// agent starts, and clauses of the two must never meet under one number. Who the members of its groups are does not matter.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RuleKey {
    pub(super) policy: ObjectName,
    uid: String,
    pub(super) direction: Direction,
    index: u32,
    /// Stands for the peers as they are written.
    written: u64,
    ports: Option<BTreeSet<Ports>>,
}

impl StableKey for RuleKey {
    fn feed(&self, hash: &mut StableHasher) {
        self.policy.namespace.feed(hash);
        self.policy.name.feed(hash);
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
    }
}

fn feed_direction(direction: Direction, hash: &mut StableHasher) {
    match direction {
        Direction::Ingress => 0u8.feed(hash),
        Direction::Egress => 1u8.feed(hash),
    }
}

/// The rules of a policy by their keys. Rules of one index that differ in nothing but whom they are about are one: the same ports,
/// and either all have the same peers, or all apply to the same Pods.
pub(super) fn united(policy: &Policy, rules: BTreeSet<PolicyRule>) -> BTreeMap<RuleKey, PolicyRule> {
    let written: BTreeMap<(Direction, u32), u64> =
        policy.rules.iter().map(|rule| ((rule.direction, rule.index), as_written(rule))).collect();
    let mut united: BTreeMap<RuleKey, PolicyRule> = BTreeMap::new();
    for rule in rules {
        let key = RuleKey {
            policy: policy.name.clone(),
            uid: policy.uid.clone(),
            direction: rule.direction,
            index: rule.index,
            written: written.get(&(rule.direction, rule.index)).copied().unwrap_or_default(),
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

/// Stands for what a rule says of its peers, members of groups apart.
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
    for service in rule.services.iter().flatten() {
        match service {
            // They are part of the key as they are.
            Service::Ports(_) => {}
            Service::Named { protocol, name, .. } => {
                protocol.number().feed(&mut hash);
                name.feed(&mut hash);
            }
        }
    }
    hash.finish()
}

/// A rule of a Kubernetes policy as the pipeline knows it, with the Pods of this Node that it applies to.
pub fn rule_model(rule: PolicyRule, id: u32, applied_to: BTreeSet<Applied>) -> pipeline::model::Rule {
    let PolicyRule { direction, peers, ports, .. } = rule;
    pipeline::model::Rule { id, direction, kind: RuleKind::Kubernetes, applied_to, peers, ports }
}
