//! Policies, and the groups that they use.

use std::mem::take;
use std::sync::Arc;

use selector::{Selector, Slab};
use smallvec::SmallVec;
use types::control::{Change, Direction, GroupChange, Peers, Policy, PolicyChange, Rule, Service};
use types::network_policy::NetworkPolicy;
use types::{InvalidField, ObjectName};

use super::Brain;
use super::grouping::SelectionId;
use super::names::Names;
use super::nodes::NodeId;
use super::spans::{Address, Applied};
use crate::endpoint::port_key;
use crate::reading::{ReadRule, Reading, Selected};

selector::ids! {
    pub(super) PolicyId;
}

#[derive(Clone, Debug, Default)]
pub(super) struct Policies {
    policies: Slab<PolicyId, Option<Held>>,
    names: Names<PolicyId>,
}

/// A policy and what it uses.
#[derive(Clone, Debug)]
struct Held {
    policy: Arc<Policy>,
    uses: Uses,
    problems: Vec<InvalidField>,
}

#[derive(Clone, Debug)]
struct Uses {
    applied: SelectionId,
    /// Each once.
    addresses: SmallVec<[SelectionId; 2]>,
}

static NO_NAME: ObjectName = ObjectName { namespace: String::new(), name: String::new() };

impl Policies {
    pub(super) fn set(&self, id: PolicyId) -> Change {
        let policy = self.policies[id].as_ref().map(|held| held.policy.clone());
        let deleted = || PolicyChange::Delete(Arc::default());
        Change::Policy(policy.map_or_else(deleted, PolicyChange::Set))
    }

    pub(super) fn name(&self, id: PolicyId) -> &ObjectName {
        self.policies[id].as_ref().map_or(&NO_NAME, |held| &held.policy.name)
    }

    pub(super) fn len(&self) -> usize {
        self.policies.len()
    }

    fn find(&self, name: &ObjectName) -> Option<PolicyId> {
        self.names.find(self.names.hash(name), name, |id| self.name(id))
    }

    fn held(&self, name: &ObjectName) -> Option<&Held> {
        self.policies[self.find(name)?].as_ref()
    }
}

impl Brain {
    pub(super) fn set_policy(&mut self, mut written: NetworkPolicy) -> Vec<InvalidField> {
        let metadata = &mut written.metadata;
        let name = ObjectName { namespace: take(&mut metadata.namespace), name: take(&mut metadata.name) };
        let reading = Reading::new(&name, &written);
        let applied = self.grouping.acquire_selection(&name.namespace, &reading.applied_to);
        let mut uses = Uses { applied, addresses: SmallVec::new() };
        let rules = reading.rules.into_iter().map(|rule| self.rule(&name.namespace, rule, &mut uses)).collect();
        let policy = Arc::new(Policy {
            name,
            uid: written.metadata.uid,
            generation: written.metadata.generation,
            applied_to: vec![self.grouping.selection(applied).id],
            isolates: reading.isolates,
            rules,
        });
        let problems = reading.problems;
        let held = Held { policy, uses: uses.clone(), problems: problems.clone() };
        let hash = self.policies.names.hash(&held.policy.name);
        match self.policies.names.find(hash, &held.policy.name, |id| self.policies.name(id)) {
            Some(id) => {
                if let Some(old) = self.policies.policies[id].as_mut().filter(|old| old.policy == held.policy) {
                    old.problems = held.problems;
                    self.release(&uses);
                    return problems;
                }
                let old = self.policies.policies[id].replace(held);
                self.attach(id, &uses);
                if let Some(old) = old {
                    self.detach(id, &old, Some(applied));
                }
            }
            None => {
                let id = self.policies.policies.insert(Some(held));
                self.policies.names.insert(hash, id);
                self.attach(id, &uses);
            }
        }
        problems
    }

    pub(super) fn remove_policy(&mut self, name: &ObjectName) {
        let Some(id) = self.policies.find(name) else { return };
        self.policies.names.remove(self.policies.names.hash(name), id);
        if let Some(old) = self.policies.policies.remove(id) {
            self.detach(id, &old, None);
        }
    }

    /// What is wrong with a policy.
    pub fn problems(&self, name: &ObjectName) -> &[InvalidField] {
        self.policies.held(name).map_or(&[], |held| &held.problems)
    }

    /// A policy, and the Nodes that have to enforce it.
    pub fn policy(&self, name: &ObjectName) -> Option<(Arc<Policy>, Vec<Arc<str>>)> {
        self.policies.held(name).map(|held| self.with_span(held))
    }

    /// All policies, and the Nodes that have to enforce each.
    pub fn policies(&self) -> impl Iterator<Item = (Arc<Policy>, Vec<Arc<str>>)> {
        self.policies.policies.places().filter_map(|(_, held)| held.as_ref()).map(|held| self.with_span(held))
    }

    fn with_span(&self, held: &Held) -> (Arc<Policy>, Vec<Arc<str>>) {
        let applied = self.grouping.selection(held.uses.applied).applied.as_ref();
        (held.policy.clone(), applied.map(|applied| self.node_names(applied.nodes.iter())).unwrap_or_default())
    }

    fn rule(&mut self, own: &str, read: ReadRule, uses: &mut Uses) -> Rule {
        let blocks = read.peers.as_ref().is_none_or(|peers| !peers.blocks.is_empty());
        let peers = read.peers.map(|peers| Peers {
            groups: peers.selected.iter().map(|selected| self.use_address_group(own, selected, uses)).collect(),
            blocks: peers.blocks,
        });
        let mut services = read.services;
        // Whoever goes out to a range of addresses, or to anyone, has to know which Pods are there that know the name.
        if read.direction == Direction::Egress && blocks {
            for service in services.iter_mut().flatten() {
                if let Service::Named { protocol, name, known_by } = service {
                    let pods = Selector::having(port_key(*protocol, name));
                    let selected = Selected { pods, ..Selected::everyone() };
                    *known_by = Some(self.use_address_group(own, &selected, uses));
                }
            }
        }
        Rule { direction: read.direction, index: read.index, peers, services }
    }

    fn use_address_group(&mut self, own: &str, selected: &Selected, uses: &mut Uses) -> types::control::GroupId {
        let selection = self.grouping.acquire_selection(own, selected);
        if uses.addresses.contains(&selection) {
            self.grouping.release_selection(selection);
        } else {
            uses.addresses.push(selection);
        }
        self.grouping.selection(selection).id
    }

    fn release(&mut self, uses: &Uses) {
        self.grouping.release_selection(uses.applied);
        for address in &uses.addresses {
            self.grouping.release_selection(*address);
        }
    }

    /// A policy uses these groups from now on.
    fn attach(&mut self, id: PolicyId, uses: &Uses) {
        let is_new = self.grouping.selection(uses.applied).applied.is_none();
        if is_new {
            let mut applied = Applied::default();
            for pod in self.grouping.pods_of(uses.applied) {
                if let Some(node) = self.grouping.pod(pod).node {
                    applied.nodes.add(node);
                }
            }
            self.grouping.selection_mut(uses.applied).applied = Some(Box::new(applied));
        }
        for address in &uses.addresses {
            self.grouping.selection_mut(*address).address.get_or_insert_with(Box::<Address>::default).policies += 1;
            let Some(applied) = &mut self.grouping.selection_mut(uses.applied).applied else { continue };
            if applied.links.add(*address) {
                for node in self.span(uses.applied) {
                    self.link(node, *address);
                }
            }
        }
        if let Some(applied) = &mut self.grouping.selection_mut(uses.applied).applied {
            applied.policies.insert(id);
        }
        if !self.nodes.any_listens() {
            return;
        }
        for node in self.span(uses.applied) {
            if is_new && self.nodes.wants(node) {
                let group = self.applied_to_group(node, uses.applied);
                self.nodes.push(node, Change::AppliedTo(GroupChange::Set(group)));
            }
            self.nodes.push(node, self.policies.set(id));
        }
    }

    /// A policy uses these groups no more, and has moved to another AppliedToGroup, if it is still there.
    fn detach(&mut self, id: PolicyId, old: &Held, moved_to: Option<SelectionId>) {
        let uses = &old.uses;
        let has_moved = moved_to != Some(uses.applied);
        let span = self.span(uses.applied);
        if has_moved {
            if let Some(applied) = &mut self.grouping.selection_mut(uses.applied).applied {
                applied.policies.remove(id);
            }
            if self.nodes.any_listens() {
                let name = Arc::new(old.policy.name.clone());
                let applied = moved_to.and_then(|to| self.grouping.selection(to).applied.as_ref());
                for node in span.iter().filter(|node| !applied.is_some_and(|applied| applied.nodes.contains(**node))) {
                    self.nodes.push(*node, Change::Policy(PolicyChange::Delete(name.clone())));
                }
            }
        }
        for address in &uses.addresses {
            let applied = self.grouping.selection_mut(uses.applied).applied.as_mut();
            if applied.is_some_and(|applied| applied.links.sub(*address)) {
                for node in &span {
                    self.unlink(*node, *address);
                }
            }
            let selection = self.grouping.selection_mut(*address);
            if let Some(address) = &mut selection.address {
                address.policies -= 1;
                if address.policies == 0 {
                    selection.address = None;
                }
            }
        }
        let selection = self.grouping.selection_mut(uses.applied);
        if selection.applied.as_ref().is_some_and(|applied| applied.policies.is_empty()) {
            let id = selection.id;
            selection.applied = None;
            for node in &span {
                self.nodes.push(*node, Change::AppliedTo(GroupChange::Delete(id)));
            }
        }
        self.release(uses);
    }

    fn span(&self, applied: SelectionId) -> Vec<NodeId> {
        self.grouping
            .selection(applied)
            .applied
            .as_ref()
            .map(|applied| applied.nodes.iter().collect())
            .unwrap_or_default()
    }
}
