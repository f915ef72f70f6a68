//! Stage 1: which Pods each selection selects.
//!
//! Pods of one namespace with the same labels form a *cell*: a selector selects all of them or none. So a selection is a set of
//! cells, and a Pod that is added or removed changes a cell, not the selections.
//!
//! Owns Pods, Namespaces, cells and selections. An event changes them and returns a [`PodDelta`] or a [`MembershipDelta`]; the
//! next stage reads Pods and selections, and changes neither.

mod matching;

use std::sync::Arc;

use selector::{IdMap, IdSet, Index, LabelsId, SelectorId, Slab};
use smallvec::SmallVec;
use types::ObjectName;
use types::control::{GroupId, Member};
use types::meta::Labels;

use super::column::Column;
use super::names::Names;
use super::nodes::NodeId;
use crate::endpoint::Endpoint;

selector::ids! {
    pub(super) PodId;
    NamespaceId;
    CellId;
    pub(super) SelectionId;
}

#[derive(Clone, Debug, Default)]
pub(super) struct Selections {
    pods: Slab<PodId, Pod>,
    pod_names: Names<PodId>,
    pods_on: Column<NodeId, IdSet<PodId>>,
    namespaces: Slab<NamespaceId, Namespace>,
    namespace_names: Names<NamespaceId>,
    namespaces_of: IdMap<LabelsId, IdSet<NamespaceId>>,
    cells: Slab<CellId, Cell>,
    cell_of: IdMap<(NamespaceId, LabelsId), CellId>,
    selections: Slab<SelectionId, Selection>,
    selection_of: IdMap<(Scope, SelectorId), SelectionId>,
    /// Selections over several namespaces, by namespace selector and by Pod selector.
    by_namespaces: IdMap<SelectorId, IdSet<SelectionId>>,
    by_pods: IdMap<SelectorId, IdSet<SelectionId>>,
    /// Label sets of Pods, and Pod selectors.
    pod_index: Index,
    /// Label sets of Namespaces, and namespace selectors.
    namespace_index: Index,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pod {
    pub(super) member: Arc<Member>,
    pub(super) node: Option<NodeId>,
    pub(super) uid: Box<str>,
    cell: CellId,
}

#[derive(Clone, Debug, Default)]
struct Namespace {
    name: Box<str>,
    /// `None` until the Namespace event; its Pods and policies may arrive before.
    labels: Option<LabelsId>,
    cells: IdSet<CellId>,
    selections: u32,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    namespace: NamespaceId,
    labels: LabelsId,
    pods: IdSet<PodId>,
    selections: IdSet<SelectionId>,
}

/// The namespaces in which Pods are selected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Scope {
    One(NamespaceId),
    Selected(SelectorId),
}

impl Default for Scope {
    fn default() -> Self {
        Self::One(NamespaceId::default())
    }
}

/// Selected Pods. Counted by the policies that use the selection.
#[derive(Clone, Debug, Default)]
struct Selection {
    id: GroupId,
    scope: Scope,
    pods: SelectorId,
    cells: IdSet<CellId>,
    users: u32,
}

/// A Pod as it was before the event.
#[derive(Clone, Debug)]
pub(super) struct Leaver {
    pub(super) member: Arc<Member>,
    pub(super) node: Option<NodeId>,
}

/// How the Pods of a selection change. A changed Pod has left and joined.
#[derive(Clone, Debug)]
pub(super) struct Shift {
    pub(super) selection: SelectionId,
    pub(super) left: SmallVec<[Leaver; 1]>,
    pub(super) joined: SmallVec<[PodId; 1]>,
}

/// How the Pods of all selections change.
pub(super) type MembershipDelta = SmallVec<[Shift; 4]>;

/// What a Pod event changes.
#[derive(Debug, Default)]
pub(super) struct PodDelta {
    pub(super) membership: MembershipDelta,
    /// The Node of the Pod before the event.
    pub(super) from: Option<NodeId>,
    /// The Pod as it was on `from`, if it is no longer there.
    pub(super) departed: Option<Arc<Member>>,
    /// The Pod, if its Node does not know it yet: it is new there, or has another uid.
    pub(super) arrived: Option<PodId>,
}

impl Selections {
    pub(super) fn pod(&self, id: PodId) -> &Pod {
        &self.pods[id]
    }

    /// The id of the group that a selection is.
    pub(super) fn group_id(&self, id: SelectionId) -> GroupId {
        self.selections[id].id
    }

    /// The Pods on a Node.
    pub(super) fn pods_on(&self, node: NodeId) -> impl Iterator<Item = PodId> {
        self.pods_on.get(node).into_iter().flat_map(IdSet::iter)
    }

    /// Whether a Node has Pods.
    pub(super) fn has_pods_on(&self, node: NodeId) -> bool {
        self.pods_on.get(node).is_some_and(|pods| !pods.is_empty())
    }

    /// The selections that select a Pod.
    pub(super) fn selections_of(&self, pod: PodId) -> &IdSet<SelectionId> {
        &self.cells[self.pods[pod].cell].selections
    }

    /// The Pods of a selection.
    pub(super) fn pods_of(&self, id: SelectionId) -> impl Iterator<Item = PodId> {
        self.selections[id].cells.iter().flat_map(|cell| self.cells[cell].pods.iter())
    }

    /// The Namespaces that exist, with their labels.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = (&str, &Labels)> {
        let named = self.namespaces.places().filter_map(|(_, namespace)| Some((&*namespace.name, namespace.labels?)));
        named.map(|(name, labels)| (name, self.namespace_index.labels(labels)))
    }

    /// Adds or updates a Pod; `node` is the id of its Node, if it is scheduled.
    pub(super) fn set_pod(&mut self, endpoint: Endpoint, node: Option<NodeId>) -> PodDelta {
        let hash = self.pod_names.hash(&endpoint.member.pod);
        let known = self.pod_names.find(hash, &endpoint.member.pod, |id| &self.pods[id].member.pod);
        let cell = self.cell(&endpoint);
        if let Some(id) = known {
            let pod = &self.pods[id];
            if pod.cell == cell && pod.node == node && *pod.uid == *endpoint.uid && *pod.member == endpoint.member {
                return PodDelta::default();
            }
        }
        let pod = Pod { member: Arc::new(endpoint.member), node, uid: endpoint.uid.into(), cell };
        let (id, old) = match known {
            Some(id) => (id, Some(std::mem::replace(&mut self.pods[id], pod))),
            None => {
                let id = self.pods.insert(pod);
                self.pod_names.insert(hash, id);
                (id, None)
            }
        };
        self.cells[cell].pods.insert(id);
        let (old_cell, from) = (old.as_ref().map(|old| old.cell), old.as_ref().and_then(|old| old.node));
        let is_known_there = from == node && old.as_ref().is_some_and(|old| old.uid == self.pods[id].uid);
        let departed = old.as_ref().filter(|_| from.is_some() && from != node).map(|old| old.member.clone());
        let before = old_cell.map(|cell| self.cells[cell].selections.iter().collect::<SmallVec<[_; 8]>>());
        let mut membership = MembershipDelta::new();
        if let (Some(old), Some(before)) = (old, before) {
            if let Some(node) = old.node {
                self.pods_on.slot(node).remove(id);
            }
            let leaver = Leaver { member: old.member, node: old.node };
            membership.extend(before.iter().map(|selection| Shift {
                selection: *selection,
                left: [leaver.clone()].into(),
                joined: SmallVec::new(),
            }));
            if old.cell != cell {
                self.cells[old.cell].pods.remove(id);
                self.tidy_cell(old.cell);
            }
        }
        if let Some(node) = node {
            self.pods_on.slot(node).insert(id);
        }
        let left = membership.len();
        for selection in self.cells[cell].selections.iter() {
            match membership[..left].binary_search_by_key(&selection, |shift| shift.selection) {
                Ok(place) => membership[place].joined.push(id),
                Err(_) => membership.push(Shift { selection, left: SmallVec::new(), joined: [id].into() }),
            }
        }
        PodDelta { membership, from, departed, arrived: (!is_known_there).then_some(id) }
    }

    /// Removes a Pod from all selections.
    pub(super) fn remove_pod(&mut self, name: &ObjectName) -> PodDelta {
        let hash = self.pod_names.hash(name);
        let found = self.pod_names.find(hash, name, |id| &self.pods[id].member.pod);
        let Some(id) = found else { return PodDelta::default() };
        let pod = self.pods.remove(id);
        self.pod_names.remove(hash, id);
        if let Some(node) = pod.node {
            self.pods_on.slot(node).remove(id);
        }
        let leaver = Leaver { member: pod.member, node: pod.node };
        let left = |selection| Shift { selection, left: [leaver.clone()].into(), joined: SmallVec::new() };
        let membership = self.cells[pod.cell].selections.iter().map(left).collect();
        self.cells[pod.cell].pods.remove(id);
        self.tidy_cell(pod.cell);
        PodDelta { membership, from: leaver.node, departed: leaver.node.map(|_| leaver.member), arrived: None }
    }

    /// Sets the labels of a Namespace; `None` if it was deleted. Returns whether they have changed, too.
    pub(super) fn set_namespace(&mut self, name: &str, labels: Option<&Labels>) -> (bool, MembershipDelta) {
        let id = self.namespace(name);
        let new = labels.map(|labels| self.namespace_index.acquire_labels(labels));
        let old = std::mem::replace(&mut self.namespaces[id].labels, new);
        let mut membership = MembershipDelta::new();
        if old != new {
            let selecting = |labels: Option<LabelsId>| match labels {
                Some(labels) => self.namespace_index.selectors_of(labels).clone(),
                None => IdSet::default(),
            };
            let (before, after) = (selecting(old), selecting(new));
            for selector in before.iter().filter(|selector| !after.contains(*selector)) {
                membership.extend(self.leave_namespaces(id, selector));
            }
            for selector in after.iter().filter(|selector| !before.contains(*selector)) {
                membership.extend(self.join_namespaces(id, selector));
            }
            if let Some(labels) = new {
                self.namespaces_of.entry(labels).or_default().insert(id);
            }
            if let Some(labels) = old
                && let Some(namespaces) = self.namespaces_of.get_mut(&labels)
            {
                namespaces.remove(id);
                if namespaces.is_empty() {
                    self.namespaces_of.remove(&labels);
                }
            }
        }
        if let Some(labels) = old {
            self.namespace_index.release_labels(labels);
        }
        self.tidy_namespace(id);
        (old != new, membership)
    }

    /// Whether all tables are empty.
    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty()
            && self.pod_names.len() == 0
            && self.pods_on.iter().all(|(_, pods)| pods.is_empty())
            && self.namespaces.is_empty()
            && self.namespace_names.len() == 0
            && self.namespaces_of.is_empty()
            && self.cells.is_empty()
            && self.cell_of.is_empty()
            && self.selections.is_empty()
            && self.selection_of.is_empty()
            && self.by_namespaces.is_empty()
            && self.by_pods.is_empty()
            && self.pod_index.is_empty()
            && self.namespace_index.is_empty()
    }

    fn namespace(&mut self, name: &str) -> NamespaceId {
        let namespaces = &mut self.namespaces;
        let hash = self.namespace_names.hash(name);
        if let Some(id) = self.namespace_names.find(hash, name, |id| &*namespaces[id].name) {
            return id;
        }
        let id = namespaces.insert(Namespace { name: name.into(), ..Namespace::default() });
        self.namespace_names.insert(hash, id);
        id
    }

    fn tidy_namespace(&mut self, id: NamespaceId) {
        let namespace = &self.namespaces[id];
        if namespace.labels.is_none() && namespace.cells.is_empty() && namespace.selections == 0 {
            let namespace = self.namespaces.remove(id);
            self.namespace_names.remove(self.namespace_names.hash(&*namespace.name), id);
        }
    }

    /// The cell of a Pod, which may be new.
    fn cell(&mut self, endpoint: &Endpoint) -> CellId {
        let namespace = self.namespace(&endpoint.member.pod.namespace);
        let labels = self.pod_index.acquire_labels(&endpoint.attributes());
        if let Some(cell) = self.cell_of.get(&(namespace, labels)) {
            // A cell counts as one user of its label set.
            self.pod_index.release_labels(labels);
            return *cell;
        }
        let selections = self.selections_matching(namespace, labels);
        let cell = self.cells.insert(Cell { namespace, labels, pods: IdSet::default(), selections });
        self.cell_of.insert((namespace, labels), cell);
        self.namespaces[namespace].cells.insert(cell);
        for selection in self.cells[cell].selections.iter() {
            self.selections[selection].cells.insert(cell);
        }
        cell
    }

    fn tidy_cell(&mut self, id: CellId) {
        if !self.cells[id].pods.is_empty() {
            return;
        }
        let cell = self.cells.remove(id);
        for selection in cell.selections.iter() {
            self.selections[selection].cells.remove(id);
        }
        self.cell_of.remove(&(cell.namespace, cell.labels));
        self.pod_index.release_labels(cell.labels);
        self.namespaces[cell.namespace].cells.remove(id);
        self.tidy_namespace(cell.namespace);
    }
}

#[cfg(test)]
mod tests;
