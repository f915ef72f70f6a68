//! The whole state: as one Node needs it, and as the API lists it.

use std::collections::BTreeSet;
use std::sync::Arc;

use types::control::{Change, Group, GroupChange, Member, Policy, PolicyName};

use super::super::nodes::NodeId;
use super::super::selections::{SelectionId, Selections};
use super::policies::PolicyId;
use super::{Spans, group, seen};

impl Spans {
    /// Everything that a Node needs: groups before the policies that name them, and Pods at the end.
    pub(in crate::brain) fn snapshot(&mut self, selections: &Selections, node: NodeId) -> Vec<Change> {
        let selected: BTreeSet<SelectionId> =
            selections.pods_on(node).flat_map(|pod| selections.selections_of(pod).iter()).collect();
        let (mut applied_to, mut addresses, mut policies) = (Vec::new(), BTreeSet::new(), BTreeSet::<PolicyId>::new());
        for (id, group) in selected.iter().filter_map(|id| Some((*id, self.applied_to(*id)?))) {
            applied_to.push(id);
            addresses.extend(group.links.iter());
            policies.extend(group.policies.iter());
        }
        let pods = selections.pods_on(node).count();
        let mut changes = Vec::with_capacity(applied_to.len() + addresses.len() + policies.len() + pods);
        for id in addresses {
            changes.push(Change::Address(GroupChange::Set(self.address_group(selections, id))));
        }
        for id in applied_to {
            changes.push(Change::AppliedTo(GroupChange::Set(applied_to_group(selections, node, id))));
        }
        changes.extend(policies.into_iter().map(|id| self.policies.set_change(id)));
        changes.extend(selections.pods_on(node).map(|pod| seen(selections, pod)));
        changes
    }

    /// A policy and its span.
    pub(in crate::brain) fn policy(&self, name: &PolicyName) -> Option<(&Arc<Policy>, impl Iterator<Item = NodeId>)> {
        let entry = self.policies.get(name)?;
        Some((&entry.compiled.policy, self.nodes_of(entry)))
    }

    /// All policies and their spans.
    pub(in crate::brain) fn policies(&self) -> impl Iterator<Item = (&Arc<Policy>, impl Iterator<Item = NodeId>)> {
        self.policies.iter().map(|entry| (&entry.compiled.policy, self.nodes_of(entry)))
    }

    /// All AppliedToGroups, with the Pods of all Nodes, and their spans.
    pub(in crate::brain) fn applied_to_groups(
        &self,
        selections: &Selections,
    ) -> impl Iterator<Item = (Group, impl Iterator<Item = NodeId>)> {
        self.groups.iter().filter_map(|(id, roles)| {
            let applied_to = roles.applied_to.as_deref()?;
            let pods = selections.pods_of(id).map(|pod| selections.pod(pod)).filter(|pod| pod.node.is_some());
            Some((listed(selections, id, pods.map(|pod| pod.member.clone())), applied_to.nodes.iter()))
        })
    }

    /// All AddressGroups and their spans.
    pub(in crate::brain) fn address_groups(
        &self,
        selections: &Selections,
    ) -> impl Iterator<Item = (Group, impl Iterator<Item = NodeId>)> {
        self.groups.iter().filter_map(|(id, roles)| {
            let address = roles.address.as_deref()?;
            let members = selections.pods_of(id).map(|pod| &selections.pod(pod).member);
            let members = members.filter(|member| !member.addresses.is_empty()).cloned();
            Some((listed(selections, id, members), address.nodes.iter()))
        })
    }

    /// The numbers of AppliedToGroups, AddressGroups and policies.
    pub(in crate::brain) fn counts(&self) -> (usize, usize, usize) {
        let applied_to = self.groups.iter().filter(|(_, roles)| roles.applied_to.is_some()).count();
        let addresses = self.groups.iter().filter(|(_, roles)| roles.address.is_some()).count();
        (applied_to, addresses, self.policies.len())
    }
}

/// An AppliedToGroup as a Node gets it: with its own Pods.
pub(super) fn applied_to_group(selections: &Selections, node: NodeId, selection: SelectionId) -> Arc<Group> {
    let pods = selections.pods_on(node).filter(|pod| selections.selections_of(*pod).contains(selection));
    group(selections.group_id(selection), pods.map(|pod| selections.pod(pod).member.clone()).collect())
}

fn listed(selections: &Selections, id: SelectionId, members: impl Iterator<Item = Arc<Member>>) -> Group {
    let mut members: Vec<Arc<Member>> = members.collect();
    members.sort_unstable_by(|a, b| a.pod.cmp(&b.pod));
    Group { id: selections.group_id(id), members }
}
