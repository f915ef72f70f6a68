//! What a Node holds of what the controller tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use types::ObjectName;
use types::control::{
    Batch, Change, Direction, Group, GroupChange, GroupId, Member, PodChange, Policy, PolicyChange, Rule, Seen, Service,
};

use crate::resolve::{PolicyRule, Unresolved};

/// Groups by name, and their members by Pod.
pub type Groups = BTreeMap<GroupId, BTreeMap<ObjectName, Arc<Member>>>;

/// What a Node holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replica {
    applied_to: Groups,
    addresses: Groups,
    policies: BTreeMap<ObjectName, Arc<Policy>>,
    /// A batch did not fit.
    lost: bool,
    seen: BTreeMap<ObjectName, String>,
}

/// What the controller says does not fit what the Node holds: something was lost, and only a snapshot helps.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OutOfStep {
    /// Something is to be changed that is not there.
    #[error("{what} {name} is to be {change}, and is not there; a snapshot is needed")]
    Missing {
        /// What kind of thing.
        what: &'static str,
        /// Which one.
        name: String,
        /// How it is to be changed.
        change: &'static str,
    },
    /// An earlier batch did not fit.
    #[error("something that was told before did not fit; a snapshot is needed")]
    Lost,
}

/// What follows from what a Node holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Enforced {
    /// What is allowed.
    pub rules: BTreeSet<PolicyRule>,
    /// The Pods of whose connections only those pass that are allowed.
    pub isolated: BTreeSet<(Direction, ObjectName)>,
    /// Groups that are named and not there, with the policies that name them: the rules in question allow nothing yet.
    pub missing: BTreeSet<(ObjectName, GroupId)>,
}

impl Replica {
    /// Takes in a whole batch. If it does not fit, what is held is no longer known, and only a snapshot may follow.
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
                    let missing = || OutOfStep::Missing { what: "Pod", name: name.to_string(), change: "gone" };
                    self.seen.remove(&**name).ok_or_else(missing)?;
                }
            }
        }
        self.lost = false;
        Ok(())
    }

    /// Whether a batch did not fit, so that what is held is not to be relied on before the next snapshot.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// The AppliedToGroups, with the Node's own Pods.
    pub fn applied_to(&self) -> &Groups {
        &self.applied_to
    }

    /// The AddressGroups.
    pub fn addresses(&self) -> &Groups {
        &self.addresses
    }

    /// The policies.
    pub fn policies(&self) -> &BTreeMap<ObjectName, Arc<Policy>> {
        &self.policies
    }

    /// The Pods of the Node that what is held has taken into account, with their uids.
    pub fn seen(&self) -> &BTreeMap<ObjectName, String> {
        &self.seen
    }

    /// All that is held, as a batch that another one can start with.
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

    /// All that follows from what is held.
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

    /// What follows from one policy that is held.
    pub fn enforced_by(&self, policy: &Policy) -> Enforced {
        let mut enforced = Enforced::default();
        let applied_to: BTreeMap<&ObjectName, &Member> = policy
            .applied_to
            .iter()
            .filter_map(|id| self.applied_to.get(id))
            .flat_map(|members| members.iter().map(|(name, member)| (name, &**member)))
            .collect();
        let lacking = policy.applied_to.iter().filter(|id| !self.applied_to.contains_key(id));
        enforced.missing.extend(lacking.map(|id| (policy.name.clone(), *id)));
        for direction in policy.isolates.directions() {
            enforced.isolated.extend(applied_to.keys().map(|pod| (direction, (*pod).clone())));
        }
        let applied_to: Vec<&Member> = applied_to.into_values().collect();
        for rule in &policy.rules {
            let missing: Vec<GroupId> = rule.groups().filter(|id| !self.addresses.contains_key(id)).collect();
            if missing.is_empty() {
                enforced.rules.extend(self.resolve(policy, rule, &applied_to));
            }
            enforced.missing.extend(missing.into_iter().map(|id| (policy.name.clone(), id)));
        }
        enforced
    }

    fn resolve<'a>(&'a self, policy: &'a Policy, rule: &'a Rule, applied_to: &'a [&'a Member]) -> Vec<PolicyRule> {
        let peers = rule.peers.as_ref().map(|peers| {
            let members = peers.groups.iter().flat_map(|id| self.members(*id)).collect();
            (&peers.blocks[..], members)
        });
        let (direction, index) = (rule.direction, rule.index);
        let services = rule.services.as_deref();
        Unresolved { policy: &policy.name, direction, index, applied_to, peers, services }.resolve(|service| {
            match service {
                Service::Named { known_by: Some(id), .. } => self.members(*id).collect(),
                Service::Named { known_by: None, .. } | Service::Ports(_) => Vec::new(),
            }
        })
    }

    fn members(&self, id: GroupId) -> impl Iterator<Item = &Member> {
        self.addresses.get(&id).into_iter().flat_map(|members| members.values().map(|member| &**member))
    }
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
