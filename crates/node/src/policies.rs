//! Policies: what the controller says, as rules with numbers and Pods that are isolated.

mod rule;

pub use rule::rule_model;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use delta::{Exhausted, Ids};
use openflow::action::Action;
use openflow::field::Field;
use openflow::flow::Flow;
use policy::{OutOfStep, PolicyRule, Replica};
use types::ObjectName;
use types::control::{Batch, Change, Direction, GroupChange, GroupId, Policy, PolicyChange};

use rule::RuleKey;

/// How what the switch should hold changes.
pub(crate) enum Effect {
    /// A rule is like this now; its verdict carries the fingerprint, by which the number is known after a restart.
    Rule { id: u32, fingerprint: u64, rule: PolicyRule },
    /// A rule is gone.
    Gone(u32),
    /// Whether a Pod is isolated has changed.
    Isolation(ObjectName),
}

/// What this Node was told of policies, and what follows from it.
#[derive(Debug)]
pub(crate) struct Policies {
    replica: Replica,
    /// The policies that name a group.
    users: BTreeMap<GroupId, BTreeSet<ObjectName>>,
    ids: Ids<RuleKey>,
    /// Numbers in clauses that the switch holds, while it is listed.
    clauses: BTreeSet<u32>,
    enforced: BTreeMap<ObjectName, Enforcement>,
    /// The policies that isolate a Pod, with the direction in which they do.
    isolated: BTreeMap<ObjectName, BTreeSet<(Direction, ObjectName)>>,
    exhausted: Option<Exhausted>,
}

/// What follows from one policy.
#[derive(Debug, Default)]
struct Enforcement {
    /// Its groups, in case that the policy changes.
    groups: BTreeSet<GroupId>,
    rules: BTreeMap<RuleKey, Enforced>,
    isolated: BTreeSet<(Direction, ObjectName)>,
    missing: BTreeSet<GroupId>,
}

#[derive(Debug)]
struct Enforced {
    id: u32,
    /// Stands for the rule as it was last told: the whole of it may be large.
    digest: u64,
    applied_to: BTreeSet<ObjectName>,
}

impl Policies {
    /// Nothing was told.
    pub(crate) fn new() -> Self {
        Self {
            replica: Replica::default(),
            users: BTreeMap::new(),
            ids: Ids::new(1..=u32::MAX, u64::BITS),
            clauses: BTreeSet::new(),
            enforced: BTreeMap::new(),
            isolated: BTreeMap::new(),
            exhausted: None,
        }
    }

    /// What was told.
    pub(crate) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The policies with groups that they name and that are not there.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&ObjectName, GroupId)> {
        self.enforced.iter().flat_map(|(policy, of)| of.missing.iter().map(move |group| (policy, *group)))
    }

    /// Why a rule has no number.
    pub(crate) fn exhausted(&self) -> Option<&Exhausted> {
        self.exhausted.as_ref()
    }

    /// The policy that a rule with this number is of.
    pub(crate) fn policy_of(&self, id: u32) -> Option<&ObjectName> {
        self.ids.key(id).map(|key| &key.policy)
    }

    /// How many rules there are, of each direction.
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

    /// The switch holds this flow; what it says about numbers is remembered.
    pub(crate) fn observe(&mut self, flow: &Flow) {
        if let Some(id) = flow.matches.exact(Field::ConjId) {
            // A field of 32 bits.
            self.ids.adopt(u32::try_from(id).unwrap_or_default(), flow.cookie);
        }
        let numbers = flow.actions.iter().filter_map(|action| match action {
            Action::Conjunction { id, .. } => Some(*id),
            _ => None,
        });
        self.clauses.extend(numbers);
    }

    /// The switch has been listed. A number whose clauses are there without a verdict must not become anybody's.
    pub(crate) fn observed(&mut self) {
        for id in std::mem::take(&mut self.clauses) {
            if !self.ids.is_known(id) {
                self.ids.reserve(id);
            }
        }
    }

    /// What nobody wanted is out of the switch.
    pub(crate) fn swept(&mut self) {
        self.ids.forget_unclaimed();
    }

    /// Takes in what the controller says; the policies that it touches, none if it did not fit.
    pub(crate) fn apply(&mut self, batch: &Batch) -> Result<BTreeSet<ObjectName>, OutOfStep> {
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
                    touched.insert(ObjectName::clone(name));
                }
                Change::Pod(_) => {}
            }
        }
        Ok(touched)
    }

    /// The policies that apply to a Pod.
    pub(crate) fn applying_to(&self, pod: &ObjectName) -> BTreeSet<ObjectName> {
        let applies = |of: &Enforcement| of.rules.values().any(|rule| rule.applied_to.contains(pod));
        self.enforced.iter().filter(|(_, of)| applies(of)).map(|(name, _)| name.clone()).collect()
    }

    /// Works out anew what follows from a policy, and says what of it is other than before. A rule that applies to `moved` is told
    /// in any case: the Pod is another port now.
    pub(crate) fn enforce(&mut self, name: &ObjectName, moved: Option<&ObjectName>, mut tell: impl FnMut(Effect)) {
        let mut before = self.enforced.remove(name).unwrap_or_default();
        let policy = self.replica.policies().get(name).cloned();
        let mut now = Enforcement::default();
        if let Some(policy) = &policy {
            now.groups = groups_of(policy);
            let policy::Enforced { rules, isolated, missing } = self.replica.enforced_by(policy);
            now.isolated = isolated;
            now.missing = missing.into_iter().map(|(_, group)| group).collect();
            for (key, rule) in rule::united(policy, rules) {
                let digest = digest(&rule);
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
                    tell(Effect::Rule { id, fingerprint: self.ids.fingerprint(&key), rule });
                }
                now.rules.insert(key, Enforced { id, digest, applied_to });
            }
        }
        for (key, old) in before.rules {
            // A rule and its number leave the switch in one bundle.
            if self.ids.release(&key).is_some() {
                self.ids.retired(old.id);
            }
            tell(Effect::Gone(old.id));
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
            tell(Effect::Isolation(pod.clone()));
        }
        if policy.is_some() {
            self.enforced.insert(name.clone(), now);
        }
    }

    fn name_groups(&mut self, policy: &ObjectName, before: &BTreeSet<GroupId>, now: &BTreeSet<GroupId>) {
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
    policy.applied_to.iter().copied().chain(policy.rules.iter().flat_map(types::control::Rule::groups)).collect()
}

fn digest(rule: &PolicyRule) -> u64 {
    let mut hasher = DefaultHasher::new();
    rule.hash(&mut hasher);
    hasher.finish()
}
