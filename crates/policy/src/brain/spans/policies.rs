//! The policies, and how one that is set or removed changes the spans of its groups.

use std::sync::Arc;

use selector::Slab;
use smallvec::SmallVec;
use types::control::{Change, GroupChange, PolicyChange, PolicyKind, PolicyName};
use types::{InvalidField, ObjectName};

use super::super::compile::{CompiledPolicy, Uses};
use super::super::counts::Counts;
use super::super::names::Names;
use super::super::nodes::NodeId;
use super::super::outboxes::{Audience, Deliveries};
use super::super::selections::{SelectionId, Selections};
use super::outgoing::Outgoing;
use super::snapshot::applied_to_group;
use super::{AppliedToGroup, Spans};

selector::ids! {
    pub(super) PolicyId;
}

#[derive(Clone, Debug, Default)]
pub(super) struct Policies {
    entries: Slab<PolicyId, Option<Entry>>,
    names: Names<PolicyId>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) compiled: CompiledPolicy,
    /// Nodes, with the number of its AppliedToGroups on each; `None` if it has at most one, which has the same span.
    pub(super) span: Option<Box<Counts<NodeId>>>,
}

static NO_NAME: PolicyName =
    PolicyName { kind: PolicyKind::Kubernetes, object: ObjectName { namespace: String::new(), name: String::new() } };

impl Policies {
    /// The change that sets a policy.
    pub(super) fn set_change(&self, id: PolicyId) -> Change {
        let policy = self.entries[id].as_ref().map(|entry| entry.compiled.policy.clone());
        let deleted = || PolicyChange::Delete(Arc::default());
        Change::Policy(policy.map_or_else(deleted, PolicyChange::Set))
    }

    pub(super) fn name(&self, id: PolicyId) -> &PolicyName {
        self.entries[id].as_ref().map_or(&NO_NAME, |entry| &entry.compiled.policy.name)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.places().filter_map(|(_, entry)| entry.as_ref())
    }

    pub(super) fn get(&self, name: &PolicyName) -> Option<&Entry> {
        self.entries[self.find(name)?].as_ref()
    }

    /// One more AppliedToGroup of a policy has Pods on a Node. Returns whether it is the first.
    pub(super) fn enter(&mut self, id: PolicyId, node: NodeId) -> bool {
        let span = self.entries[id].as_mut().and_then(|entry| entry.span.as_mut());
        span.is_none_or(|span| span.add(node))
    }

    /// One AppliedToGroup less of a policy has Pods on a Node. Returns whether it was the last.
    pub(super) fn exit(&mut self, id: PolicyId, node: NodeId) -> bool {
        let span = self.entries[id].as_mut().and_then(|entry| entry.span.as_mut());
        span.is_none_or(|span| span.sub(node))
    }

    fn find(&self, name: &PolicyName) -> Option<PolicyId> {
        self.names.find(self.names.hash(name), name, |id| self.name(id))
    }
}

impl Spans {
    /// Sets a policy, new or changed. Returns selections that it does not use any more, to be released.
    pub(in crate::brain) fn set_policy(
        &mut self,
        selections: &Selections,
        compiled: CompiledPolicy,
        audience: &Audience,
        deliveries: &mut Deliveries,
    ) -> Option<Uses> {
        let out = &mut Outgoing { audience, deliveries };
        let uses = compiled.uses.clone();
        let Some(id) = self.policies.find(&compiled.policy.name) else {
            let hash = self.policies.names.hash(&compiled.policy.name);
            let id = self.policies.entries.insert(Some(Entry { compiled, span: None }));
            self.policies.names.insert(hash, id);
            self.attach(selections, id, &uses, out);
            return None;
        };
        if let Some(old) = self.policies.entries[id].as_mut().filter(|old| old.compiled.policy == compiled.policy) {
            old.compiled.problems = compiled.problems;
            return Some(uses);
        }
        let old = self.policies.entries[id].replace(Entry { compiled, span: None });
        self.attach(selections, id, &uses, out);
        old.map(|old| self.detach(selections, id, old, Some(&uses), out))
    }

    /// Removes a policy. Returns the selections that it used, to be released.
    pub(in crate::brain) fn remove_policy(
        &mut self,
        selections: &Selections,
        name: &PolicyName,
        audience: &Audience,
        deliveries: &mut Deliveries,
    ) -> Option<Uses> {
        let id = self.policies.find(name)?;
        self.policies.names.remove(self.policies.names.hash(name), id);
        let old = self.policies.entries.remove(id)?;
        Some(self.detach(selections, id, old, None, &mut Outgoing { audience, deliveries }))
    }

    /// The invalid fields of a policy.
    pub(in crate::brain) fn problems(&self, name: &PolicyName) -> &[InvalidField] {
        self.policies.get(name).map_or(&[], |entry| &entry.compiled.problems)
    }

    /// A policy starts to use its selections.
    fn attach(&mut self, selections: &Selections, id: PolicyId, uses: &Uses, out: &mut Outgoing<'_>) {
        let is_new = |spans: &Self, group: &SelectionId| spans.applied_to(*group).is_none();
        let new: SmallVec<[SelectionId; 1]> =
            uses.applied_to().iter().copied().filter(|group| is_new(self, group)).collect();
        for group in &new {
            let mut applied_to = AppliedToGroup::default();
            for node in selections.pods_of(*group).filter_map(|pod| selections.pod(pod).node) {
                applied_to.nodes.add(node);
            }
            self.groups.slot(*group).applied_to = Some(Box::new(applied_to));
        }
        for address in &uses.addresses {
            self.groups.slot(*address).address.get_or_insert_default().policies += 1;
        }
        for (group, address) in uses.links() {
            if self.applied_to_mut(group).is_some_and(|applied_to| applied_to.links.add(address)) {
                for node in self.span(group) {
                    self.link(selections, node, address, out);
                }
            }
        }
        for group in uses.applied_to() {
            if let Some(applied_to) = self.applied_to_mut(*group) {
                applied_to.policies.insert(id);
            }
        }
        if uses.applied_to().len() > 1 {
            let mut span = Counts::default();
            for node in uses.applied_to().iter().flat_map(|group| self.nodes_of_group(*group)) {
                span.add(node);
            }
            if let Some(entry) = &mut self.policies.entries[id] {
                entry.span = Some(Box::new(span));
            }
        }
        if out.audience_is_empty() {
            return;
        }
        for group in new {
            for node in self.span(group).into_iter().filter(|node| out.takes(*node)).collect::<Vec<_>>() {
                let group = applied_to_group(selections, node, group);
                out.send(node, || Change::AppliedTo(GroupChange::Set(group)));
            }
        }
        let span = self.policies.entries[id].as_ref().map(|entry| self.nodes_of(entry).collect::<Vec<_>>());
        out.send_to_all(span.into_iter().flatten(), || self.policies.set_change(id));
    }

    /// A policy stops using the selections of `old`; `new` are those that it uses now, unless it was removed.
    fn detach(
        &mut self,
        selections: &Selections,
        id: PolicyId,
        old: Entry,
        new: Option<&Uses>,
        out: &mut Outgoing<'_>,
    ) -> Uses {
        let uses = &old.compiled.uses;
        if new.is_none_or(|new| new.applied_to() != uses.applied_to()) {
            for group in uses.applied_to() {
                let stays = new.is_some_and(|new| new.applied_to().binary_search(group).is_ok());
                if let Some(applied_to) = self.applied_to_mut(*group).filter(|_| !stays) {
                    applied_to.policies.remove(id);
                }
            }
            let now = new.and_then(|_| self.policies.entries[id].as_ref());
            let left = self.nodes_of(&old).filter(|node| !now.is_some_and(|now| self.spans(now, *node)));
            let name = &old.compiled.policy.name;
            out.send_to_all(left, || Change::Policy(PolicyChange::Delete(Arc::new(name.clone()))));
        }
        for (group, address) in uses.links() {
            if self.applied_to_mut(group).is_some_and(|applied_to| applied_to.links.sub(address)) {
                for node in self.span(group) {
                    self.unlink(selections, node, address, out);
                }
            }
        }
        for address in &uses.addresses {
            let role = &mut self.groups.slot(*address).address;
            if let Some(group) = role {
                group.policies -= 1;
                if group.policies == 0 {
                    *role = None;
                }
            }
        }
        for group in uses.applied_to() {
            if self.applied_to(*group).is_some_and(|applied_to| applied_to.policies.is_empty()) {
                let (id, span) = (selections.group_id(*group), self.span(*group));
                self.groups.slot(*group).applied_to = None;
                out.send_to_all(span.into_iter(), || Change::AppliedTo(GroupChange::Delete(id)));
            }
        }
        old.compiled.uses
    }

    /// The Nodes that need a policy.
    pub(super) fn nodes_of(&self, entry: &Entry) -> impl Iterator<Item = NodeId> {
        let alone = entry.compiled.uses.applied_to().first().filter(|_| entry.span.is_none());
        let of_group = alone.into_iter().flat_map(|group| self.nodes_of_group(*group));
        of_group.chain(entry.span.iter().flat_map(|span| span.iter()))
    }

    /// Whether a Node needs a policy.
    fn spans(&self, entry: &Entry, node: NodeId) -> bool {
        match &entry.span {
            Some(span) => span.contains(node),
            None => {
                let group = entry.compiled.uses.applied_to().first().and_then(|group| self.applied_to(*group));
                group.is_some_and(|group| group.nodes.contains(node))
            }
        }
    }

    fn nodes_of_group(&self, group: SelectionId) -> impl Iterator<Item = NodeId> {
        self.applied_to(group).into_iter().flat_map(|applied_to| applied_to.nodes.iter())
    }

    fn span(&self, group: SelectionId) -> Vec<NodeId> {
        self.nodes_of_group(group).collect()
    }
}
