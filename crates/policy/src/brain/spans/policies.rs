//! The policies, and how one that is set or removed changes the spans of its groups.

use std::sync::Arc;

use selector::Slab;
use types::control::{Change, GroupChange, PolicyChange, PolicyKind, PolicyName};
use types::{InvalidField, ObjectName};

use super::super::compile::{CompiledPolicy, Uses};
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
    entries: Slab<PolicyId, Option<CompiledPolicy>>,
    names: Names<PolicyId>,
}

static NO_NAME: PolicyName =
    PolicyName { kind: PolicyKind::Kubernetes, object: ObjectName { namespace: String::new(), name: String::new() } };

impl Policies {
    /// The change that sets a policy.
    pub(super) fn set_change(&self, id: PolicyId) -> Change {
        let policy = self.entries[id].as_ref().map(|entry| entry.policy.clone());
        let deleted = || PolicyChange::Delete(Arc::default());
        Change::Policy(policy.map_or_else(deleted, PolicyChange::Set))
    }

    pub(super) fn name(&self, id: PolicyId) -> &PolicyName {
        self.entries[id].as_ref().map_or(&NO_NAME, |entry| &entry.policy.name)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CompiledPolicy> {
        self.entries.places().filter_map(|(_, entry)| entry.as_ref())
    }

    pub(super) fn get(&self, name: &PolicyName) -> Option<&CompiledPolicy> {
        self.entries[self.find(name)?].as_ref()
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
            let id = self.policies.entries.insert(Some(compiled));
            self.policies.names.insert(hash, id);
            self.attach(selections, id, &uses, out);
            return None;
        };
        if let Some(old) = self.policies.entries[id].as_mut().filter(|old| old.policy == compiled.policy) {
            old.problems = compiled.problems;
            return Some(uses);
        }
        let old = self.policies.entries[id].replace(compiled);
        self.attach(selections, id, &uses, out);
        old.map(|old| self.detach(selections, id, old, Some(uses.applied_to), out))
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
        self.policies.get(name).map_or(&[], |entry| &entry.problems)
    }

    /// A policy starts to use its selections.
    fn attach(&mut self, selections: &Selections, id: PolicyId, uses: &Uses, out: &mut Outgoing<'_>) {
        let is_new = self.applied_to(uses.applied_to).is_none();
        if is_new {
            let mut applied_to = AppliedToGroup::default();
            for node in selections.pods_of(uses.applied_to).filter_map(|pod| selections.pod(pod).node) {
                applied_to.nodes.add(node);
            }
            self.groups.slot(uses.applied_to).applied_to = Some(Box::new(applied_to));
        }
        for address in &uses.addresses {
            self.groups.slot(*address).address.get_or_insert_default().policies += 1;
            if self.applied_to_mut(uses.applied_to).is_some_and(|applied_to| applied_to.links.add(*address)) {
                for node in self.span(uses.applied_to) {
                    self.link(selections, node, *address, out);
                }
            }
        }
        if let Some(applied_to) = self.applied_to_mut(uses.applied_to) {
            applied_to.policies.insert(id);
        }
        if out.audience_is_empty() {
            return;
        }
        let span = self.span(uses.applied_to);
        if is_new {
            for node in span.iter().filter(|node| out.takes(**node)).copied().collect::<Vec<_>>() {
                let group = applied_to_group(selections, node, uses.applied_to);
                out.send(node, || Change::AppliedTo(GroupChange::Set(group)));
            }
        }
        out.send_to_all(span.into_iter(), || self.policies.set_change(id));
    }

    /// A policy stops using the selections of `old`; `moved_to` is its AppliedToGroup now, unless it was removed.
    fn detach(
        &mut self,
        selections: &Selections,
        id: PolicyId,
        old: CompiledPolicy,
        moved_to: Option<SelectionId>,
        out: &mut Outgoing<'_>,
    ) -> Uses {
        let uses = old.uses;
        let span = self.span(uses.applied_to);
        if moved_to != Some(uses.applied_to) {
            if let Some(applied_to) = self.applied_to_mut(uses.applied_to) {
                applied_to.policies.remove(id);
            }
            let new = moved_to.and_then(|to| self.applied_to(to));
            let left = span.iter().copied().filter(|node| !new.is_some_and(|new| new.nodes.contains(*node)));
            out.send_to_all(left, || Change::Policy(PolicyChange::Delete(Arc::new(old.policy.name.clone()))));
        }
        for address in &uses.addresses {
            if self.applied_to_mut(uses.applied_to).is_some_and(|applied_to| applied_to.links.sub(*address)) {
                for node in &span {
                    self.unlink(selections, *node, *address, out);
                }
            }
            let role = &mut self.groups.slot(*address).address;
            if let Some(group) = role {
                group.policies -= 1;
                if group.policies == 0 {
                    *role = None;
                }
            }
        }
        if self.applied_to(uses.applied_to).is_some_and(|applied_to| applied_to.policies.is_empty()) {
            self.groups.slot(uses.applied_to).applied_to = None;
            let id = selections.group_id(uses.applied_to);
            out.send_to_all(span.into_iter(), || Change::AppliedTo(GroupChange::Delete(id)));
        }
        uses
    }

    fn span(&self, applied_to: SelectionId) -> Vec<NodeId> {
        self.applied_to(applied_to).map(|applied_to| applied_to.nodes.iter().collect()).unwrap_or_default()
    }
}
