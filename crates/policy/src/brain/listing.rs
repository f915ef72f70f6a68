//! What there is, for those who ask.

use std::sync::Arc;

use types::control::{Group, Member};

use super::Brain;
use super::grouping::Selection;

/// How much is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// AppliedToGroups.
    pub applied_to_groups: usize,
    /// AddressGroups.
    pub address_groups: usize,
    /// Policies.
    pub policies: usize,
    /// Nodes that have Pods or listen.
    pub nodes: usize,
}

impl Brain {
    /// How much is held.
    pub fn held(&self) -> Held {
        let count = |has: fn(&Selection) -> bool| self.grouping.selections().filter(|(_, s)| has(s)).count();
        Held {
            applied_to_groups: count(|selection| selection.applied.is_some()),
            address_groups: count(|selection| selection.address.is_some()),
            policies: self.policies.len(),
            nodes: self.nodes.len(),
        }
    }

    /// All AppliedToGroups with the Pods of all Nodes, and the Nodes that need each.
    pub fn applied_to_groups(&self) -> impl Iterator<Item = (Group, Vec<Arc<str>>)> {
        self.grouping.selections().filter_map(|(id, selection)| {
            let applied = selection.applied.as_ref()?;
            let pods = self.grouping.pods_of(id).map(|pod| self.grouping.pod(pod));
            let members = pods.filter(|pod| pod.node.is_some()).map(|pod| pod.member.clone()).collect();
            Some((Group { id: selection.id, members: sorted(members) }, self.node_names(applied.nodes.iter())))
        })
    }

    /// All AddressGroups, and the Nodes that need each.
    pub fn address_groups(&self) -> impl Iterator<Item = (Group, Vec<Arc<str>>)> {
        self.grouping.selections().filter_map(|(id, selection)| {
            let address = selection.address.as_ref()?;
            let members = self.grouping.pods_of(id).map(|pod| &self.grouping.pod(pod).member);
            let members = members.filter(|member| !member.addresses.is_empty()).cloned().collect();
            Some((Group { id: selection.id, members: sorted(members) }, self.node_names(address.nodes.iter())))
        })
    }

    /// Whether nothing is held any more.
    pub fn is_empty(&self) -> bool {
        self.grouping.is_empty() && self.policies.len() == 0 && self.nodes.len() == 0
    }
}

fn sorted(mut members: Vec<Arc<Member>>) -> Vec<Arc<Member>> {
    members.sort_unstable_by(|a, b| a.pod.cmp(&b.pod));
    members
}
