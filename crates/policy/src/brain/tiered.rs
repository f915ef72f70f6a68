//! Tiers, groups and Antrea policies: what a policy depends on, and its compilation.
//!
//! Owns these objects. A change returns the policies that have to be compiled again: those that name the Tier or the group, directly or
//! as parent, and those with rules per Namespace when a Namespace changes.

mod compile;

use std::collections::{BTreeMap, BTreeSet};

use types::antrea::{Group, Policy, Tier};
use types::{InvalidField, ObjectName};

use super::compile::CompiledPolicy;
use super::selections::Selections;
use crate::reading::{AntreaReading, EntityReading, GroupReading, tier_priority};

#[derive(Clone, Debug, Default)]
pub(super) struct Tiered {
    /// Priorities of valid Tiers by name.
    tiers: BTreeMap<String, u8>,
    /// ClusterGroups have no namespace.
    groups: BTreeMap<ObjectName, GroupReading>,
    entities: BTreeMap<ObjectName, EntityReading>,
    /// ClusterNetworkPolicies have no namespace.
    policies: BTreeMap<ObjectName, TieredPolicy>,
    /// Policies by what they depend on.
    dependents: BTreeMap<Dependency, BTreeSet<ObjectName>>,
}

#[derive(Clone, Debug)]
struct TieredPolicy {
    uid: String,
    generation: i64,
    reading: AntreaReading,
    /// Those of the reading, and those that depend on other objects.
    problems: Vec<InvalidField>,
    dependencies: BTreeSet<Dependency>,
}

/// An object that a policy depends on, which may not exist.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Dependency {
    Tier(String),
    Group(ObjectName),
    /// The labels of all Namespaces.
    Namespaces,
    /// Labels, addresses and ports of all ExternalEntities.
    Entities,
}

impl Tiered {
    /// Sets a Tier. Returns the policies to compile, and its problems.
    pub(super) fn set_tier(&mut self, tier: &Tier) -> (Vec<ObjectName>, Vec<InvalidField>) {
        let name = tier.metadata.name.clone();
        let (priority, problems) = tier_priority(tier);
        let before = match priority {
            Some(priority) => self.tiers.insert(name.clone(), priority),
            None => self.tiers.remove(&name),
        };
        let changed = if before == priority { Vec::new() } else { self.dependents(&Dependency::Tier(name)) };
        (changed, problems)
    }

    /// Removes a Tier. Returns the policies to compile.
    pub(super) fn remove_tier(&mut self, name: String) -> Vec<ObjectName> {
        self.tiers.remove(&name);
        self.dependents(&Dependency::Tier(name))
    }

    /// Sets a group. Returns the policies to compile, and its problems.
    pub(super) fn set_group(&mut self, group: &Group) -> (Vec<ObjectName>, Vec<InvalidField>) {
        let name = group.metadata.object_name();
        let reading = GroupReading::new(&name, group);
        let problems = reading.problems.clone();
        if self.groups.get(&name) == Some(&reading) {
            return (Vec::new(), problems);
        }
        self.groups.insert(name.clone(), reading);
        (self.dependents(&Dependency::Group(name)), problems)
    }

    /// Removes a group. Returns the policies to compile.
    pub(super) fn remove_group(&mut self, name: ObjectName) -> Vec<ObjectName> {
        self.groups.remove(&name);
        self.dependents(&Dependency::Group(name))
    }

    /// Sets an ExternalEntity, or removes it. Returns whether it has changed.
    pub(super) fn set_entity(&mut self, name: ObjectName, entity: Option<EntityReading>) -> bool {
        match entity {
            Some(entity) if self.entities.get(&name) == Some(&entity) => false,
            Some(entity) => {
                self.entities.insert(name, entity);
                true
            }
            None => self.entities.remove(&name).is_some(),
        }
    }

    /// The policies to compile after a change of a Namespace.
    pub(super) fn namespaces_changed(&self) -> Vec<ObjectName> {
        self.dependents(&Dependency::Namespaces)
    }

    /// The policies to compile after a change of an ExternalEntity.
    pub(super) fn entities_changed(&self) -> Vec<ObjectName> {
        self.dependents(&Dependency::Entities)
    }

    /// Sets a policy, which is to be compiled.
    pub(super) fn set_policy(&mut self, policy: &Policy) -> ObjectName {
        let name = policy.metadata.object_name();
        let reading = AntreaReading::new(&name, policy);
        let (uid, generation) = (policy.metadata.uid.clone(), policy.metadata.generation);
        self.remove_policy(&name);
        let dependencies = BTreeSet::new();
        let stored = TieredPolicy { uid, generation, reading, problems: Vec::new(), dependencies };
        self.policies.insert(name.clone(), stored);
        name
    }

    /// Removes a policy with its dependencies.
    pub(super) fn remove_policy(&mut self, name: &ObjectName) {
        self.set_dependencies(name, BTreeSet::new());
        self.policies.remove(name);
    }

    /// The problems of a policy.
    pub(super) fn problems(&self, name: &ObjectName) -> &[InvalidField] {
        self.policies.get(name).map_or(&[], |policy| &policy.problems)
    }

    /// Compiles a policy. Returns `None` if it cannot be enforced now, and the problems that it did not have before.
    pub(super) fn compile(
        &mut self,
        selections: &mut Selections,
        name: &ObjectName,
    ) -> (Option<CompiledPolicy>, Vec<InvalidField>) {
        let Some(policy) = self.policies.get(name) else { return (None, Vec::new()) };
        let compile::Output { compiled, problems, dependencies } = compile::compile(self, selections, name, policy);
        self.set_dependencies(name, dependencies);
        let Some(policy) = self.policies.get_mut(name) else { return (compiled, Vec::new()) };
        let new = problems.iter().filter(|problem| !policy.problems.contains(problem)).cloned().collect();
        policy.problems = problems;
        (compiled, new)
    }

    /// Whether all tables are empty.
    pub(super) fn is_empty(&self) -> bool {
        self.tiers.is_empty()
            && self.groups.is_empty()
            && self.entities.is_empty()
            && self.policies.is_empty()
            && self.dependents.is_empty()
    }

    fn dependents(&self, on: &Dependency) -> Vec<ObjectName> {
        self.dependents.get(on).into_iter().flatten().cloned().collect()
    }

    fn set_dependencies(&mut self, name: &ObjectName, new: BTreeSet<Dependency>) {
        let Some(policy) = self.policies.get_mut(name) else { return };
        let old = std::mem::replace(&mut policy.dependencies, new);
        for added in policy.dependencies.difference(&old) {
            self.dependents.entry(added.clone()).or_default().insert(name.clone());
        }
        for removed in old.difference(&policy.dependencies) {
            if let Some(policies) = self.dependents.get_mut(removed) {
                policies.remove(name);
                if policies.is_empty() {
                    self.dependents.remove(removed);
                }
            }
        }
    }
}
