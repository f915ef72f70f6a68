//! Stage 2: which Node needs which groups and policies.
//!
//! An AppliedToGroup is needed on the Nodes of its Pods, a policy on the Nodes of its AppliedToGroups, and an AddressGroup on the
//! Nodes of the AppliedToGroups of rules that use it.
//!
//! Owns policies, AppliedToGroups and AddressGroups. The inputs are a [`PodDelta`], a [`MembershipDelta`](super::selections::MembershipDelta)
//! or a [`CompiledPolicy`](super::compile::CompiledPolicy); the output are [`Deliveries`] for Nodes in the [`Audience`].
//! Members of groups are read from [`Selections`], and are not stored here.

mod outgoing;
mod policies;
mod snapshot;

use std::sync::{Arc, Weak};

use selector::IdSet;
use smallvec::SmallVec;
use types::control::{Change, Group, GroupChange, GroupId, Member, Patch, PodChange, PolicyChange, Seen};

use super::column::Column;
use super::counts::Counts;
use super::nodes::NodeId;
use super::outboxes::{Audience, Deliveries};
use super::selections::{Leaver, PodDelta, PodId, SelectionId, Selections, Shift};
use outgoing::Outgoing;
use policies::{Policies, PolicyId};

/// Groups of at least this size are shared by the Nodes that have not taken them yet; sharing costs a few bytes per group.
const SHARED_FROM: usize = 64;

#[derive(Clone, Debug, Default)]
pub(super) struct Spans {
    groups: Column<SelectionId, Roles>,
    policies: Policies,
}

/// What a selection is used as.
#[derive(Clone, Debug, Default)]
struct Roles {
    applied_to: Option<Box<AppliedToGroup>>,
    address: Option<Box<AddressGroup>>,
}

#[derive(Clone, Debug, Default)]
struct AppliedToGroup {
    /// The policies that apply to it.
    policies: IdSet<PolicyId>,
    /// Its span: Nodes, with the number of its Pods on each.
    nodes: Counts<NodeId>,
    /// The AddressGroups that its policies use, with the number of policies that use each.
    links: Counts<SelectionId>,
}

#[derive(Clone, Debug, Default)]
struct AddressGroup {
    /// The number of policies that use it.
    policies: u32,
    /// Its span: Nodes, with the number of linked AppliedToGroups on each.
    nodes: Counts<NodeId>,
    /// The whole group, while some outbox still has it.
    whole: Weak<Group>,
}

/// Nodes, with the shift by which a selection gets its first or loses its last Pod there.
type Moves<'a> = SmallVec<[(NodeId, &'a Shift); 4]>;

impl Spans {
    /// A Pod was added, changed or removed.
    pub(super) fn pod_changed(
        &mut self,
        selections: &Selections,
        delta: &PodDelta,
        audience: &Audience,
        deliveries: &mut Deliveries,
    ) {
        let out = &mut Outgoing { audience, deliveries };
        self.shift(selections, &delta.membership, out);
        // After the groups and policies that concern the Pod: its Node connects it when it gets this.
        if let (Some(node), Some(member)) = (delta.from, &delta.departed) {
            out.send(node, || Change::Pod(PodChange::Gone(Arc::new(member.pod.clone()))));
        }
        if let Some(pod) = delta.arrived
            && let Some(node) = selections.pod(pod).node
        {
            out.send(node, || seen(selections, pod));
        }
    }

    /// Pods joined or left selections.
    pub(super) fn members_changed(
        &mut self,
        selections: &Selections,
        shifts: &[Shift],
        audience: &Audience,
        deliveries: &mut Deliveries,
    ) {
        self.shift(selections, shifts, &mut Outgoing { audience, deliveries });
    }

    /// Patches for Nodes that have a group, whole groups and policies for Nodes that need them now, and deletions for Nodes that
    /// no longer need them.
    fn shift(&mut self, selections: &Selections, shifts: &[Shift], out: &mut Outgoing<'_>) {
        for shift in shifts {
            self.patch_address_group(selections, shift, out);
        }
        let (mut entered, mut exited) = (Moves::new(), Moves::new());
        for shift in shifts {
            self.shift_applied_to(selections, shift, (&mut entered, &mut exited), out);
        }
        // Enter before exit: what is needed before and after is not deleted in between.
        for (node, shift) in entered {
            self.enter(selections, node, shift, out);
        }
        for (node, shift) in exited {
            self.exit(selections, node, shift.selection, out);
        }
    }

    fn patch_address_group(&mut self, selections: &Selections, shift: &Shift, out: &mut Outgoing<'_>) {
        let Some(address) = self.address_mut(shift.selection) else { return };
        address.whole = Weak::new();
        if out.audience_is_empty() {
            return;
        }
        let joined = shift.joined.iter().map(|pod| &selections.pod(*pod).member);
        let joined: SmallVec<[&Arc<Member>; 1]> = joined.filter(|member| !member.addresses.is_empty()).collect();
        let left = shift.left.iter().filter(|leaver| !leaver.member.addresses.is_empty());
        let left: SmallVec<[&Leaver; 1]> = left.collect();
        if let Some(patch) = patch(selections.group_id(shift.selection), &left, &joined) {
            out.send_to_all(address.nodes.iter(), || Change::Address(GroupChange::Patch(patch)));
        }
    }

    fn shift_applied_to<'a>(
        &mut self,
        selections: &Selections,
        shift: &'a Shift,
        (entered, exited): (&mut Moves<'a>, &mut Moves<'a>),
        out: &mut Outgoing<'_>,
    ) {
        let Some(applied_to) = self.applied_to_mut(shift.selection) else { return };
        let node_of = |pod: &PodId| selections.pod(*pod).node;
        let joined: SmallVec<[NodeId; 1]> = shift.joined.iter().filter_map(node_of).collect();
        let (entered_before, exited_before) = (entered.len(), exited.len());
        for node in &joined {
            if applied_to.nodes.add(*node) {
                entered.push((*node, shift));
            }
        }
        for node in shift.left.iter().filter_map(|leaver| leaver.node) {
            if applied_to.nodes.sub(node) {
                exited.push((node, shift));
            }
        }
        let mut touched: SmallVec<[NodeId; 2]> =
            joined.iter().copied().chain(shift.left.iter().filter_map(|leaver| leaver.node)).collect();
        touched.sort_unstable();
        touched.dedup();
        let moved = entered[entered_before..].iter().chain(&exited[exited_before..]);
        let moved: SmallVec<[NodeId; 2]> = moved.map(|(node, _)| *node).collect();
        let stays = |node: &NodeId| !moved.contains(node) && out.takes(*node);
        let patched: SmallVec<[NodeId; 2]> = touched.into_iter().filter(stays).collect();
        for node in patched {
            let left: SmallVec<[&Leaver; 1]> = shift.left.iter().filter(|leaver| leaver.node == Some(node)).collect();
            let here = shift.joined.iter().filter(|pod| node_of(pod) == Some(node));
            let here: SmallVec<[&Arc<Member>; 1]> = here.map(|pod| &selections.pod(*pod).member).collect();
            if let Some(patch) = patch(selections.group_id(shift.selection), &left, &here) {
                out.send(node, || Change::AppliedTo(GroupChange::Patch(patch)));
            }
        }
    }

    /// An AppliedToGroup has its first Pods on a Node: those that join it now.
    fn enter(&mut self, selections: &Selections, node: NodeId, shift: &Shift, out: &mut Outgoing<'_>) {
        let Some(applied_to) = self.applied_to(shift.selection) else { return };
        let links: SmallVec<[SelectionId; 4]> = applied_to.links.iter().collect();
        for address in links {
            self.link(selections, node, address, out);
        }
        let policies = self.policies_entering(node, shift.selection);
        if !out.takes(node) {
            return;
        }
        let joined = shift.joined.iter().map(|pod| selections.pod(*pod)).filter(|pod| pod.node == Some(node));
        let group = group(selections.group_id(shift.selection), joined.map(|pod| pod.member.clone()).collect());
        out.send(node, || Change::AppliedTo(GroupChange::Set(group)));
        for policy in policies {
            out.send(node, || self.policies.set_change(policy));
        }
    }

    /// The policies of an AppliedToGroup that a Node does not have yet.
    fn policies_entering(&mut self, node: NodeId, selection: SelectionId) -> SmallVec<[PolicyId; 8]> {
        let policies = self.applied_to(selection).into_iter().flat_map(|applied_to| applied_to.policies.iter());
        let mut policies: SmallVec<[PolicyId; 8]> = policies.collect();
        policies.retain(|policy| self.policies.enter(*policy, node));
        policies
    }

    /// An AppliedToGroup has lost its last Pod on a Node.
    fn exit(&mut self, selections: &Selections, node: NodeId, selection: SelectionId, out: &mut Outgoing<'_>) {
        let Some(applied_to) = self.applied_to(selection) else { return };
        let links: SmallVec<[SelectionId; 4]> = applied_to.links.iter().collect();
        let policies: SmallVec<[PolicyId; 8]> = applied_to.policies.iter().collect();
        for policy in policies {
            if self.policies.exit(policy, node) {
                out.send(node, || Change::Policy(PolicyChange::Delete(Arc::new(self.policies.name(policy).clone()))));
            }
        }
        for address in links {
            self.unlink(selections, node, address, out);
        }
        out.send(node, || Change::AppliedTo(GroupChange::Delete(selections.group_id(selection))));
    }

    /// One more AppliedToGroup on a Node needs an AddressGroup.
    fn link(&mut self, selections: &Selections, node: NodeId, selection: SelectionId, out: &mut Outgoing<'_>) {
        let Some(address) = self.address_mut(selection) else { return };
        if address.nodes.add(node) {
            out.send(node, || Change::Address(GroupChange::Set(self.address_group(selections, selection))));
        }
    }

    /// One AppliedToGroup less on a Node needs an AddressGroup.
    fn unlink(&mut self, selections: &Selections, node: NodeId, selection: SelectionId, out: &mut Outgoing<'_>) {
        let Some(address) = self.address_mut(selection) else { return };
        if address.nodes.sub(node) {
            out.send(node, || Change::Address(GroupChange::Delete(selections.group_id(selection))));
        }
    }

    /// A whole AddressGroup, shared by all Nodes that have not taken it yet.
    fn address_group(&mut self, selections: &Selections, selection: SelectionId) -> Arc<Group> {
        let address = self.address_mut(selection);
        if let Some(whole) = address.as_ref().and_then(|address| address.whole.upgrade()) {
            return whole;
        }
        let members = selections.pods_of(selection).map(|pod| &selections.pod(pod).member);
        let members = members.filter(|member| !member.addresses.is_empty()).cloned().collect();
        let whole = group(selections.group_id(selection), members);
        if let Some(address) = address.filter(|_| whole.members.len() >= SHARED_FROM) {
            address.whole = Arc::downgrade(&whole);
        }
        whole
    }

    fn applied_to(&self, id: SelectionId) -> Option<&AppliedToGroup> {
        self.groups.get(id)?.applied_to.as_deref()
    }

    fn applied_to_mut(&mut self, id: SelectionId) -> Option<&mut AppliedToGroup> {
        self.groups.get_mut(id)?.applied_to.as_deref_mut()
    }

    fn address_mut(&mut self, id: SelectionId) -> Option<&mut AddressGroup> {
        self.groups.get_mut(id)?.address.as_deref_mut()
    }
}

fn seen(selections: &Selections, pod: PodId) -> Change {
    let pod = selections.pod(pod);
    Change::Pod(PodChange::Seen(Arc::new(Seen { pod: pod.member.pod.clone(), uid: pod.uid.to_string() })))
}

fn group(id: GroupId, mut members: Vec<Arc<Member>>) -> Arc<Group> {
    members.sort_unstable_by(|a, b| a.pod.cmp(&b.pod));
    Arc::new(Group { id, members })
}

/// How a group changes when Pods leave and join; `None` if it stays the same.
fn patch(id: GroupId, left: &[&Leaver], joined: &[&Arc<Member>]) -> Option<Arc<Patch>> {
    // If many move, all of them leave or all join; only a Pod that has changed does both.
    let has_changed = |member: &&&Arc<Member>| !left.iter().any(|leaver| *leaver.member == ****member);
    let added: Vec<Arc<Member>> = joined.iter().filter(has_changed).map(|member| Arc::clone(member)).collect();
    let has_left = |leaver: &&&Leaver| !joined.iter().any(|member| member.pod == leaver.member.pod);
    let removed: Vec<_> = left.iter().filter(has_left).map(|leaver| leaver.member.pod.clone()).collect();
    (!added.is_empty() || !removed.is_empty()).then(|| Arc::new(Patch { id, added, removed }))
}

#[cfg(test)]
mod tests;
