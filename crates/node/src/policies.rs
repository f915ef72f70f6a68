//! Policies from the controller, as numbered rules and isolated Pods.

mod levels;
mod rule;

pub use rule::RuleName;
pub(crate) use rule::rule_model;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use delta::{Exhausted, Ids};
use openflow::action::Action;
use openflow::field::Field;
use openflow::flow::Flow;
use pipeline::model::RuleKind;
use policy::{OutOfStep, PolicyRule, Replica};
use types::ObjectName;
use types::control::{Batch, Change, Direction, GroupChange, GroupId, Order, Policy, PolicyChange, PolicyName};

use levels::{Level, Levels};
use rule::RuleKey;

/// A change of the flows for policies.
pub(crate) enum RuleChange {
    /// A new or changed rule. The fingerprint is the cookie of its verdict flows, and identifies the number after a restart.
    Rule { id: u32, fingerprint: u64, kind: RuleKind, rule: PolicyRule },
    /// The rule with this number is deleted.
    Gone(u32),
    /// The directions in which a Pod is isolated have changed.
    Isolation(ObjectName),
}

/// The policies that this Node has received, and their rules.
#[derive(Debug)]
pub(crate) struct Policies {
    replica: Replica,
    /// The policies that refer to a group.
    users: BTreeMap<GroupId, BTreeSet<PolicyName>>,
    ids: Ids<RuleKey>,
    /// Conjunction numbers in clauses of the switch, collected during a resync.
    clauses: BTreeSet<u32>,
    enforced: BTreeMap<PolicyName, Enforcement>,
    /// Priorities of the rules of tiered policies.
    levels: Levels,
    /// For each isolated Pod, the policies that isolate it and in which direction.
    isolated: BTreeMap<ObjectName, BTreeSet<(Direction, PolicyName)>>,
    exhausted: Option<Exhausted>,
}

/// Rules and isolation of one policy.
#[derive(Debug, Default)]
struct Enforcement {
    /// The groups that it refers to, needed when the policy changes.
    groups: BTreeSet<GroupId>,
    rules: BTreeMap<RuleKey, Enforced>,
    isolated: BTreeSet<(Direction, ObjectName)>,
    missing: BTreeSet<GroupId>,
    levels: BTreeSet<Level>,
}

#[derive(Debug)]
struct Enforced {
    id: u32,
    /// Hash of the rule's last content and priority; the content may be too large to keep.
    digest: u64,
    applied_to: BTreeSet<ObjectName>,
}

impl Policies {
    /// No policies received yet.
    pub(crate) fn new() -> Self {
        Self {
            replica: Replica::default(),
            users: BTreeMap::new(),
            ids: Ids::new(1..=u32::MAX, u64::BITS),
            clauses: BTreeSet::new(),
            enforced: BTreeMap::new(),
            levels: Levels::default(),
            isolated: BTreeMap::new(),
            exhausted: None,
        }
    }

    /// The policies and groups received so far.
    pub(crate) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Policies that refer to a group that has not arrived, with the group.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&PolicyName, GroupId)> {
        self.enforced.iter().flat_map(|(policy, of)| of.missing.iter().map(move |group| (policy, *group)))
    }

    /// Policies whose rules are not evaluated in order: too many rules have different priorities.
    pub(crate) fn unordered(&self) -> impl Iterator<Item = &PolicyName> {
        let is_unordered = |of: &Enforcement| of.levels.iter().any(|level| self.levels.shares_number(level));
        self.enforced.iter().filter(move |(_, of)| is_unordered(of)).map(|(policy, _)| policy)
    }

    /// Set if a rule got no number.
    pub(crate) fn exhausted(&self) -> Option<&Exhausted> {
        self.exhausted.as_ref()
    }

    /// The policy that the rule with this number belongs to.
    pub(crate) fn policy_of(&self, id: u32) -> Option<&PolicyName> {
        self.ids.key(id).map(|key| &key.policy)
    }

    /// The policy, direction and index of the rule with this number.
    pub(crate) fn rule(&self, id: u32) -> Option<RuleName<'_>> {
        self.ids.key(id).map(RuleKey::name)
    }

    /// Number of rules in each direction.
    pub(crate) fn rule_counts(&self) -> (usize, usize) {
        let rules = self.enforced.values().flat_map(|of| of.rules.keys());
        rules.fold((0, 0), |(ingress, egress), key| match key.direction {
            Direction::Ingress => (ingress + 1, egress),
            Direction::Egress => (ingress, egress + 1),
        })
    }

    /// The directions in which a Pod is isolated.
    pub(crate) fn isolation(&self, pod: &ObjectName) -> BTreeSet<Direction> {
        self.isolated.get(pod).into_iter().flatten().map(|(direction, _)| *direction).collect()
    }

    /// Records the rule numbers in a flow that the switch has.
    pub(crate) fn observe(&mut self, flow: &Flow) {
        if let Some(id) = flow.matches.exact(Field::ConjId) {
            // The field has 32 bits, so the conversion does not fail.
            self.ids.adopt(u32::try_from(id).unwrap_or_default(), flow.cookie);
        }
        let numbers = flow.actions.iter().filter_map(|action| match action {
            Action::Conjunction { id, .. } => Some(*id),
            _ => None,
        });
        self.clauses.extend(numbers);
    }

    /// Ends a resync. A number with clauses but without a verdict flow must not be assigned again.
    pub(crate) fn observed(&mut self) {
        for id in std::mem::take(&mut self.clauses) {
            if !self.ids.is_known(id) {
                self.ids.reserve(id);
            }
        }
    }

    /// Stale flows are about to leave the switch: numbers that no rule has claimed may be assigned again.
    pub(crate) fn release_unclaimed_ids(&mut self) {
        self.ids.forget_unclaimed();
    }

    /// Applies a batch, and returns the affected policies.
    pub(crate) fn apply(&mut self, batch: &Batch) -> Result<BTreeSet<PolicyName>, OutOfStep> {
        let mut touched = BTreeSet::new();
        if batch.snapshot {
            touched.extend(self.enforced.keys().cloned());
        }
        self.replica.apply(batch)?;
        for change in &batch.changes {
            match change {
                Change::AppliedTo(change) | Change::Address(change) => {
                    touched.extend(self.users.get(&group_of(change)).into_iter().flatten().cloned());
                }
                Change::Policy(PolicyChange::Set(policy)) => {
                    touched.insert(policy.name.clone());
                }
                Change::Policy(PolicyChange::Delete(name)) => {
                    touched.insert(PolicyName::clone(name));
                }
                Change::Pod(_) => {}
            }
        }
        Ok(touched)
    }

    /// The policies with rules that apply to a Pod.
    pub(crate) fn applying_to(&self, pod: &ObjectName) -> BTreeSet<PolicyName> {
        let applies = |of: &Enforcement| of.rules.values().any(|rule| rule.applied_to.contains(pod));
        self.enforced.iter().filter(|(_, of)| applies(of)).map(|(name, _)| name.clone()).collect()
    }

    /// Recomputes a policy, and emits the differences. Rules that apply to `moved` are always emitted: the Pod has a new port.
    /// Returns the other policies whose rules have other priorities now, and have to be recomputed too.
    pub(crate) fn enforce(
        &mut self,
        name: &PolicyName,
        moved: Option<&ObjectName>,
        mut emit: impl FnMut(RuleChange),
    ) -> BTreeSet<PolicyName> {
        let mut before = self.enforced.remove(name).unwrap_or_default();
        let policy = self.replica.policies().get(name).cloned();
        let mut now = Enforcement::default();
        let mut rules = BTreeMap::new();
        if let Some(policy) = &policy {
            let enforced = self.replica.enforced_by(policy);
            now.groups = groups_of(policy);
            now.isolated = enforced.isolated;
            now.missing = enforced.missing.into_iter().map(|(_, group)| group).collect();
            now.levels = enforced.rules.iter().filter_map(|rule| level(policy.order, rule)).collect();
            rules = rule::united(policy, enforced.rules);
        }
        let shifted = self.levels.set(name, &before.levels, &now.levels);
        let mut others: BTreeSet<PolicyName> =
            shifted.iter().flat_map(|level| self.levels.users(level)).cloned().collect();
        others.remove(name);
        for (key, rule) in rules {
            let kind = policy.as_ref().map_or(RuleKind::Kubernetes, |policy| self.kind(policy.order, &rule));
            let digest = digest(&rule, kind);
            let same = before.rules.remove(&key).filter(|old| old.digest == digest);
            let is_moved = moved.is_some_and(|pod| rule.applied_to.contains(pod));
            let id = match self.ids.assign(&key) {
                Ok(id) => id,
                Err(exhausted) => {
                    self.exhausted = Some(exhausted);
                    continue;
                }
            };
            let applied_to = rule.applied_to.clone();
            if same.is_none() || is_moved {
                emit(RuleChange::Rule { id, fingerprint: self.ids.fingerprint(&key), kind, rule });
            }
            now.rules.insert(key, Enforced { id, digest, applied_to });
        }
        for (key, old) in before.rules {
            // A rule and its number leave the switch in the same bundle.
            if self.ids.release(&key).is_some() {
                self.ids.retired(old.id);
            }
            emit(RuleChange::Gone(old.id));
        }
        self.name_groups(name, &before.groups, &now.groups);
        for (direction, pod) in before.isolated.symmetric_difference(&now.isolated) {
            let isolating = self.isolated.entry(pod.clone()).or_default();
            let entry = (*direction, name.clone());
            if now.isolated.contains(&(*direction, pod.clone())) {
                isolating.insert(entry);
            } else {
                isolating.remove(&entry);
            }
            if isolating.is_empty() {
                self.isolated.remove(pod);
            }
            emit(RuleChange::Isolation(pod.clone()));
        }
        if policy.is_some() {
            self.enforced.insert(name.clone(), now);
        }
        others
    }

    /// The table and priority of a rule.
    fn kind(&self, order: Order, rule: &PolicyRule) -> RuleKind {
        let (Order::Tiered(rank), Some(level)) = (order, level(order, rule)) else { return RuleKind::Kubernetes };
        let priority = self.levels.number(&level).unwrap_or_default();
        let action = rule.action;
        if rank.is_baseline() { RuleKind::Baseline { priority, action } } else { RuleKind::Antrea { priority, action } }
    }

    fn name_groups(&mut self, policy: &PolicyName, before: &BTreeSet<GroupId>, now: &BTreeSet<GroupId>) {
        for group in before.difference(now) {
            if let Some(users) = self.users.get_mut(group) {
                users.remove(policy);
                if users.is_empty() {
                    self.users.remove(group);
                }
            }
        }
        for group in now.difference(before) {
            self.users.entry(*group).or_default().insert(policy.clone());
        }
    }
}

fn group_of(change: &GroupChange) -> GroupId {
    match change {
        GroupChange::Set(group) => group.id,
        GroupChange::Patch(patch) => patch.id,
        GroupChange::Delete(id) => *id,
    }
}

fn groups_of(policy: &Arc<Policy>) -> BTreeSet<GroupId> {
    let own = policy.rules.iter().filter_map(|rule| rule.applied_to.as_deref()).flatten();
    policy
        .applied_to
        .iter()
        .chain(own)
        .copied()
        .chain(policy.rules.iter().flat_map(types::control::Rule::groups))
        .collect()
}

/// The level of a rule; rules of Kubernetes policies have none.
fn level(order: Order, rule: &PolicyRule) -> Option<Level> {
    match order {
        Order::Kubernetes(_) => None,
        Order::Tiered(rank) => Some(Level::new(rule.direction, rank, rule.index, rule.action)),
    }
}

fn digest(rule: &PolicyRule, kind: RuleKind) -> u64 {
    let mut hasher = DefaultHasher::new();
    rule.hash(&mut hasher);
    kind.hash(&mut hasher);
    hasher.finish()
}
