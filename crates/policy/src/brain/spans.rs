//! Which Node needs what: an AppliedToGroup goes where its Pods are, a policy where its AppliedToGroup goes, an AddressGroup
//! where the policies go that use it.

use std::sync::{Arc, Weak};

use selector::IdSet;
use smallvec::SmallVec;
use types::control::{Change, Group, GroupChange, Member, Patch, PolicyChange};

use super::Brain;
use super::counts::Counts;
use super::grouping::{Leaver, PodId, SelectionId, Shift};
use super::nodes::NodeId;
use super::policies::PolicyId;

/// A selection as an AppliedToGroup.
#[derive(Clone, Debug, Default)]
pub(super) struct Applied {
    /// The policies that apply to it.
    pub(super) policies: IdSet<PolicyId>,
    /// Its span: Nodes, and how many of its Pods each has.
    pub(super) nodes: Counts<NodeId>,
    /// The AddressGroups that its policies use, and how many use each.
    pub(super) links: Counts<SelectionId>,
}

/// A selection as an AddressGroup.
#[derive(Clone, Debug, Default)]
pub(super) struct Address {
    /// How many policies use it.
    pub(super) policies: u32,
    /// Its span: Nodes, and how many AppliedToGroups of policies that use it are there.
    pub(super) nodes: Counts<NodeId>,
    /// The group as a whole, while somebody has yet to take it, if it is worth sharing.
    whole: Weak<Group>,
}

impl Brain {
    /// Follows a change of Pods: patches for those who have the groups, whole groups and policies for those who need them now,
    /// and an end for those who need them no more.
    pub(super) fn settle(&mut self, shifts: &[Shift]) {
        for shift in shifts {
            self.patch_address_group(shift);
        }
        let (mut entered, mut exited) = (Moves::new(), Moves::new());
        for shift in shifts {
            self.shift_applied_to(shift, &mut entered, &mut exited);
        }
        // What is needed comes before what is not needed goes, so that what is both never goes.
        for (node, shift) in entered {
            self.enter(node, shift);
        }
        for (node, shift) in exited {
            self.exit(node, shift.selection);
        }
    }

    fn patch_address_group(&mut self, shift: &Shift) {
        let any_listens = self.nodes.any_listens();
        let selection = self.grouping.selection_mut(shift.selection);
        let Some(address) = &mut selection.address else { return };
        address.whole = Weak::new();
        if !any_listens {
            return;
        }
        let id = selection.id;
        let joined = shift.joined.iter().map(|pod| &self.grouping.pod(*pod).member);
        let joined: SmallVec<[&Arc<Member>; 1]> = joined.filter(|member| !member.addresses.is_empty()).collect();
        let left = shift.left.iter().filter(|leaver| !leaver.member.addresses.is_empty());
        let left: SmallVec<[&Leaver; 1]> = left.collect();
        let Some(patch) = patch(id, &left, &joined) else { return };
        let Some(address) = &self.grouping.selection(shift.selection).address else { return };
        for node in address.nodes.iter() {
            self.nodes.push(node, Change::Address(GroupChange::Patch(patch.clone())));
        }
    }

    fn shift_applied_to<'a>(&mut self, shift: &'a Shift, entered: &mut Moves<'a>, exited: &mut Moves<'a>) {
        let node_of = |grouping: &super::Grouping, pod: &PodId| grouping.pod(*pod).node;
        let joined: SmallVec<[Option<NodeId>; 1]> =
            shift.joined.iter().map(|pod| node_of(&self.grouping, pod)).collect();
        let selection = self.grouping.selection_mut(shift.selection);
        let Some(applied) = &mut selection.applied else { return };
        let id = selection.id;
        let (entered_before, exited_before) = (entered.len(), exited.len());
        for node in joined.iter().flatten() {
            if applied.nodes.add(*node) {
                entered.push((*node, shift));
            }
        }
        for node in shift.left.iter().filter_map(|leaver| leaver.node) {
            if applied.nodes.sub(node) {
                exited.push((node, shift));
            }
        }
        let mut touched: SmallVec<[NodeId; 2]> =
            joined.iter().copied().chain(shift.left.iter().map(|leaver| leaver.node)).flatten().collect();
        touched.sort_unstable();
        touched.dedup();
        let moved = entered[entered_before..].iter().chain(&exited[exited_before..]);
        let moved: SmallVec<[NodeId; 2]> = moved.map(|(node, _)| *node).collect();
        for node in touched.into_iter().filter(|node| !moved.contains(node)) {
            if !self.nodes.wants(node) {
                continue;
            }
            let left: SmallVec<[&Leaver; 1]> = shift.left.iter().filter(|leaver| leaver.node == Some(node)).collect();
            let here = shift.joined.iter().filter(|pod| node_of(&self.grouping, pod) == Some(node));
            let here: SmallVec<[&Arc<Member>; 1]> = here.map(|pod| &self.grouping.pod(*pod).member).collect();
            if let Some(patch) = patch(id, &left, &here) {
                self.nodes.push(node, Change::AppliedTo(GroupChange::Patch(patch)));
            }
        }
    }

    /// An AppliedToGroup has its first Pods on a Node: those that join it now.
    fn enter(&mut self, node: NodeId, shift: &Shift) {
        let selection = shift.selection;
        let Some(applied) = &self.grouping.selection(selection).applied else { return };
        let links: SmallVec<[SelectionId; 4]> = applied.links.iter().collect();
        for address in links {
            self.link(node, address);
        }
        if !self.nodes.wants(node) {
            return;
        }
        let joined = shift.joined.iter().map(|pod| self.grouping.pod(*pod)).filter(|pod| pod.node == Some(node));
        let group = group(self.grouping.selection(selection).id, joined.map(|pod| pod.member.clone()).collect());
        self.nodes.push(node, Change::AppliedTo(GroupChange::Set(group)));
        let Some(applied) = &self.grouping.selection(selection).applied else { return };
        for policy in applied.policies.iter() {
            self.nodes.push(node, self.policies.set(policy));
        }
    }

    /// An AppliedToGroup has no Pod on a Node any more.
    fn exit(&mut self, node: NodeId, selection: SelectionId) {
        let Some(applied) = &self.grouping.selection(selection).applied else { return };
        let links: SmallVec<[SelectionId; 4]> = applied.links.iter().collect();
        if self.nodes.wants(node) {
            for policy in applied.policies.iter() {
                let name = Arc::new(self.policies.name(policy).clone());
                self.nodes.push(node, Change::Policy(PolicyChange::Delete(name)));
            }
        }
        for address in links {
            self.unlink(node, address);
        }
        let id = self.grouping.selection(selection).id;
        self.nodes.push(node, Change::AppliedTo(GroupChange::Delete(id)));
    }

    /// An AddressGroup is needed on a Node, once more.
    pub(super) fn link(&mut self, node: NodeId, selection: SelectionId) {
        let Some(address) = &mut self.grouping.selection_mut(selection).address else { return };
        if address.nodes.add(node) && self.nodes.wants(node) {
            let group = self.address_group(selection);
            self.nodes.push(node, Change::Address(GroupChange::Set(group)));
        }
    }

    /// An AddressGroup is needed on a Node once less.
    pub(super) fn unlink(&mut self, node: NodeId, selection: SelectionId) {
        let selection = self.grouping.selection_mut(selection);
        let Some(address) = &mut selection.address else { return };
        if address.nodes.sub(node) {
            self.nodes.push(node, Change::Address(GroupChange::Delete(selection.id)));
        }
    }

    /// An AppliedToGroup as a Node sees it.
    pub(super) fn applied_to_group(&self, node: NodeId, selection: SelectionId) -> Arc<Group> {
        let pods = self.nodes.pods(node).iter().filter(|pod| self.grouping.selections_of(*pod).contains(selection));
        let members = pods.map(|pod| self.grouping.pod(pod).member.clone()).collect();
        group(self.grouping.selection(selection).id, members)
    }

    /// An AddressGroup as a whole, shared by all who have yet to take it.
    pub(super) fn address_group(&mut self, selection: SelectionId) -> Arc<Group> {
        let address = self.grouping.selection(selection).address.as_ref();
        if let Some(whole) = address.and_then(|address| address.whole.upgrade()) {
            return whole;
        }
        let members = self.grouping.pods_of(selection).map(|pod| &self.grouping.pod(pod).member);
        let members = members.filter(|member| !member.addresses.is_empty()).cloned().collect();
        let selection = self.grouping.selection_mut(selection);
        let whole = group(selection.id, members);
        if let Some(address) = selection.address.as_mut().filter(|_| whole.members.len() >= SHARED_FROM) {
            address.whole = Arc::downgrade(&whole);
        }
        whole
    }
}

/// From how many members on a whole group is shared by those who have yet to take it: what is shared leaves a few bytes behind.
const SHARED_FROM: usize = 64;

/// Nodes, and the changes by which a selection comes to them or leaves them.
type Moves<'a> = SmallVec<[(NodeId, &'a Shift); 4]>;

fn group(id: types::control::GroupId, mut members: Vec<Arc<Member>>) -> Arc<Group> {
    members.sort_unstable_by(|a, b| a.pod.cmp(&b.pod));
    Arc::new(Group { id, members })
}

/// What changes of a group when these leave and those join; nothing if they are the same.
fn patch(id: types::control::GroupId, left: &[&Leaver], joined: &[&Arc<Member>]) -> Option<Arc<Patch>> {
    // When many move, they all leave or all join; only a Pod that has changed does both.
    let unchanged = |member: &&&Arc<Member>| !left.iter().any(|leaver| *leaver.member == ****member);
    let added: Vec<Arc<Member>> = joined.iter().filter(unchanged).map(|member| Arc::clone(member)).collect();
    let stays = |leaver: &&&Leaver| !joined.iter().any(|member| member.pod == leaver.member.pod);
    let removed: Vec<_> = left.iter().filter(stays).map(|leaver| leaver.member.pod.clone()).collect();
    (!added.is_empty() || !removed.is_empty()).then(|| Arc::new(Patch { id, added, removed }))
}
