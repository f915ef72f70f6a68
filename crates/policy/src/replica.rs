//! The copy of policies and groups on a Node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use types::ObjectName;
use types::control::{
    Action, Batch, Change, Direction, Group, GroupChange, GroupId, Member, Order, PodChange, Policy, PolicyChange,
    PolicyName, Rule, Seen, Service,
};

use crate::resolve::{PolicyRule, Unresolved};

/// Groups by id, with their members by Pod.
pub type Groups = BTreeMap<GroupId, BTreeMap<ObjectName, Arc<Member>>>;

/// The policies and groups that a Node has received.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replica {
    applied_to: Groups,
    addresses: Groups,
    policies: BTreeMap<PolicyName, Arc<Policy>>,
    /// A batch could not be applied.
    lost: bool,
    seen: BTreeMap<ObjectName, String>,
}

/// A batch does not match the state of the Node: an earlier one was lost, and the Node needs a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OutOfStep {
    /// A change of an object that does not exist.
    #[error("{what} {name} cannot be {change}: it does not exist; a snapshot is needed")]
    Missing {
        /// The kind of the object.
        what: &'static str,
        /// The name of the object.
        name: String,
        /// The change, as a participle.
        change: &'static str,
    },
    /// An earlier batch could not be applied.
    #[error("an earlier batch could not be applied; a snapshot is needed")]
    Lost,
}

/// What a Node has to enforce.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Enforced {
    /// The rules of all policies, resolved.
    pub rules: BTreeSet<PolicyRule>,
    /// Isolated Pods: connections that no rule allows are dropped.
    pub isolated: BTreeSet<(Direction, ObjectName)>,
    /// Missing groups, with the policies that refer to them. Rules with missing groups allow nothing: those that allow are left
    /// out, the others drop connections to and from all peers.
    pub missing: BTreeSet<(PolicyName, GroupId)>,
}

impl Replica {
    /// Applies a batch. After an error the state is undefined, and only a snapshot can be applied.
    pub fn apply(&mut self, batch: &Batch) -> Result<(), OutOfStep> {
        if batch.snapshot {
            *self = Self::default();
        } else if self.lost {
            return Err(OutOfStep::Lost);
        }
        self.lost = true;
        for change in &batch.changes {
            match change {
                Change::AppliedTo(change) => apply(&mut self.applied_to, "AppliedToGroup", change)?,
                Change::Address(change) => apply(&mut self.addresses, "AddressGroup", change)?,
                Change::Policy(PolicyChange::Set(policy)) => {
                    self.policies.insert(policy.name.clone(), policy.clone());
                }
                Change::Policy(PolicyChange::Delete(name)) => {
                    let missing = || OutOfStep::Missing { what: "policy", name: name.to_string(), change: "deleted" };
                    self.policies.remove(&**name).ok_or_else(missing)?;
                }
                Change::Pod(PodChange::Seen(seen)) => {
                    self.seen.insert(seen.pod.clone(), seen.uid.clone());
                }
                Change::Pod(PodChange::Gone(name)) => {
                    let missing = || OutOfStep::Missing { what: "Pod", name: name.to_string(), change: "removed" };
                    self.seen.remove(&**name).ok_or_else(missing)?;
                }
            }
        }
        self.lost = false;
        Ok(())
    }

    /// Whether a batch could not be applied, so that the state is undefined until the next snapshot.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// AppliedToGroups, with the Pods of this Node.
    pub fn applied_to(&self) -> &Groups {
        &self.applied_to
    }

    /// AddressGroups, with the Pods of all Nodes.
    pub fn addresses(&self) -> &Groups {
        &self.addresses
    }

    /// Policies by kind, namespace and name.
    pub fn policies(&self) -> &BTreeMap<PolicyName, Arc<Policy>> {
        &self.policies
    }

    /// The Pods of the Node that the controller has processed, with their uids.
    pub fn seen(&self) -> &BTreeMap<ObjectName, String> {
        &self.seen
    }

    /// The state as a snapshot for another replica.
    pub fn snapshot(&self) -> Batch {
        let group = |(id, members): (&GroupId, &BTreeMap<ObjectName, Arc<Member>>)| {
            GroupChange::Set(Arc::new(Group { id: *id, members: members.values().cloned().collect() }))
        };
        let addresses = self.addresses.iter().map(group).map(Change::Address);
        let applied_to = self.applied_to.iter().map(group).map(Change::AppliedTo);
        let policies = self.policies.values().cloned().map(PolicyChange::Set).map(Change::Policy);
        let seen = self.seen.iter().map(|(pod, uid)| Seen { pod: pod.clone(), uid: uid.clone() });
        let seen = seen.map(|seen| Change::Pod(PodChange::Seen(Arc::new(seen))));
        Batch { snapshot: true, changes: addresses.chain(applied_to).chain(policies).chain(seen).collect() }
    }

    /// Everything that the Node has to enforce.
    pub fn enforced(&self) -> Enforced {
        let mut enforced = Enforced::default();
        for policy in self.policies.values() {
            let Enforced { rules, isolated, missing } = self.enforced_by(policy);
            enforced.rules.extend(rules);
            enforced.isolated.extend(isolated);
            enforced.missing.extend(missing);
        }
        enforced
    }

    /// What the Node has to enforce for one policy.
    pub fn enforced_by(&self, policy: &Policy) -> Enforced {
        let mut enforced = Enforced::default();
        let pods = self.pods(&policy.applied_to);
        // A Node without Pods in a group of a tiered policy does not get the group.
        if matches!(policy.order, Order::Kubernetes(_)) {
            let lacking = policy.applied_to.iter().filter(|id| !self.applied_to.contains_key(id));
            enforced.missing.extend(lacking.map(|id| (policy.name.clone(), *id)));
        }
        for direction in policy.isolates().directions() {
            enforced.isolated.extend(pods.iter().map(|member| (direction, member.pod.clone())));
        }
        for rule in &policy.rules {
            let own = rule.applied_to.as_ref().map(|ids| self.pods(ids));
            let pods = own.as_ref().unwrap_or(&pods);
            // A Node without Pods in the groups of a rule does not get the AddressGroups of the rule either.
            if pods.is_empty() && matches!(policy.order, Order::Tiered(_)) {
                continue;
            }
            let missing: Vec<GroupId> = rule.groups().filter(|id| !self.addresses.contains_key(id)).collect();
            if missing.is_empty() {
                enforced.rules.extend(self.resolve(policy, rule, pods));
            } else if !rule.action.is_allow() {
                enforced.rules.extend(self.resolve(policy, &drop_all(rule), pods));
            }
            enforced.missing.extend(missing.into_iter().map(|id| (policy.name.clone(), id)));
        }
        enforced
    }

    /// The Pods of this Node in any of the AppliedToGroups, sorted by name.
    fn pods(&self, ids: &[GroupId]) -> Vec<&Member> {
        let members = ids.iter().filter_map(|id| self.applied_to.get(id)).flatten();
        let pods: BTreeMap<&ObjectName, &Member> = members.map(|(name, member)| (name, &**member)).collect();
        pods.into_values().collect()
    }

    fn resolve<'a>(&'a self, policy: &'a Policy, rule: &'a Rule, applied_to: &'a [&'a Member]) -> Vec<PolicyRule> {
        let peers = rule.peers.as_ref().map(|peers| {
            let members = peers.groups.iter().flat_map(|id| self.members(*id)).collect();
            (&peers.blocks[..], members)
        });
        let Rule { direction, index, action, .. } = *rule;
        let (policy, services) = (&policy.name, rule.services.as_deref());
        let own_groups = rule.applied_to.as_deref().unwrap_or_default();
        let unresolved = Unresolved { policy, direction, index, action, own_groups, applied_to, peers, services };
        unresolved.resolve(|service| match service {
            Service::Named { known_by: Some(id), .. } => self.members(*id).collect(),
            Service::Named { known_by: None, .. } | Service::Ports(_) => Vec::new(),
        })
    }

    fn members(&self, id: GroupId) -> impl Iterator<Item = &Member> {
        self.addresses.get(&id).into_iter().flat_map(|members| members.values().map(|member| &**member))
    }
}

/// A rule with missing groups fails closed: it drops everything, as it is not known what it matches.
fn drop_all(rule: &Rule) -> Rule {
    Rule { action: Action::Drop, peers: None, services: None, ..rule.clone() }
}

fn apply(groups: &mut Groups, what: &'static str, change: &GroupChange) -> Result<(), OutOfStep> {
    let out_of_step = |id: GroupId, change| OutOfStep::Missing { what, name: id.to_string(), change };
    match change {
        GroupChange::Set(group) => {
            let Group { id, members } = &**group;
            groups.insert(*id, members.iter().map(|member| (member.pod.clone(), member.clone())).collect());
        }
        GroupChange::Patch(patch) => {
            let members = groups.get_mut(&patch.id).ok_or_else(|| out_of_step(patch.id, "patched"))?;
            for pod in &patch.removed {
                let missing = || OutOfStep::Missing {
                    what: "member",
                    name: format!("{pod} of {what} {}", patch.id),
                    change: "removed",
                };
                members.remove(pod).ok_or_else(missing)?;
            }
            members.extend(patch.added.iter().map(|member| (member.pod.clone(), member.clone())));
        }
        GroupChange::Delete(id) => {
            groups.remove(id).ok_or_else(|| out_of_step(*id, "deleted"))?;
        }
    }
    Ok(())
}
