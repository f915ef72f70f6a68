//! Which Pods are selected by what.
//!
//! Pods of one namespace with the same labels are a *cell*: whatever selects one of them selects all. So a selection is a set of
//! cells, and a Pod that comes or goes changes a cell, not the selections.

mod selections;

use std::sync::Arc;

use selector::{IdMap, IdSet, Index, LabelsId, SelectorId, Slab};
use smallvec::SmallVec;
use types::ObjectName;
use types::control::{Change, Member, PodChange, Seen};
use types::meta::Labels;

use super::names::Names;
use super::nodes::{NodeId, Nodes};
use super::spans::{Address, Applied};
use crate::endpoint::Endpoint;

selector::ids! {
    pub(super) PodId;
    NamespaceId;
    CellId;
    pub(super) SelectionId;
}

#[derive(Clone, Debug, Default)]
pub(super) struct Grouping {
    pods: Slab<PodId, Pod>,
    pod_names: Names<PodId>,
    namespaces: Slab<NamespaceId, Namespace>,
    namespace_names: Names<NamespaceId>,
    namespaces_of: IdMap<LabelsId, IdSet<NamespaceId>>,
    cells: Slab<CellId, Cell>,
    cell_of: IdMap<(NamespaceId, LabelsId), CellId>,
    selections: Slab<SelectionId, Selection>,
    selection_of: IdMap<(Place, SelectorId), SelectionId>,
    /// Selections that are not of one namespace, by the selector of their namespaces and by that of their Pods.
    by_namespaces: IdMap<SelectorId, IdSet<SelectionId>>,
    by_pods: IdMap<SelectorId, IdSet<SelectionId>>,
    /// What Pods can be selected by, and what selects Pods.
    pod_index: Index,
    /// Labels of namespaces, and what selects namespaces.
    namespace_index: Index,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Pod {
    pub(super) member: Arc<Member>,
    pub(super) node: Option<NodeId>,
    uid: Box<str>,
    cell: CellId,
}

impl Pod {
    /// What its Node is told once everything else has taken it into account.
    pub(super) fn seen(&self) -> Change {
        let seen = Seen { pod: self.member.pod.clone(), uid: self.uid.to_string() };
        Change::Pod(PodChange::Seen(Arc::new(seen)))
    }
}

#[derive(Clone, Debug, Default)]
struct Namespace {
    name: Box<str>,
    /// Its labels; none until it is known. Pods and policies may be known before.
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

/// Where Pods are selected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Place {
    Namespace(NamespaceId),
    Namespaces(SelectorId),
}

impl Default for Place {
    fn default() -> Self {
        Self::Namespace(NamespaceId::default())
    }
}

/// Pods that are selected, and what for.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    pub(super) id: types::control::GroupId,
    place: Place,
    pods: SelectorId,
    cells: IdSet<CellId>,
    users: u32,
    /// Its part as an AppliedToGroup.
    pub(super) applied: Option<Box<Applied>>,
    /// Its part as an AddressGroup.
    pub(super) address: Option<Box<Address>>,
}

/// A Pod that is no longer what it was, or where it was.
#[derive(Clone, Debug)]
pub(super) struct Leaver {
    pub(super) member: Arc<Member>,
    pub(super) node: Option<NodeId>,
}

/// How the Pods of a selection change. A Pod that is another one now has left and joined.
#[derive(Clone, Debug)]
pub(super) struct Shift {
    pub(super) selection: SelectionId,
    pub(super) left: SmallVec<[Leaver; 1]>,
    pub(super) joined: SmallVec<[PodId; 1]>,
}

pub(super) type Shifts = SmallVec<[Shift; 4]>;

/// What follows from a Pod that came, went, or is another one now.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) shifts: Shifts,
    /// The Node that it was on.
    pub(super) from: Option<NodeId>,
    /// The Pod, where its Node has not been told of it.
    pub(super) unseen: Option<PodId>,
}

impl Grouping {
    pub(super) fn pod(&self, id: PodId) -> &Pod {
        &self.pods[id]
    }

    pub(super) fn selection(&self, id: SelectionId) -> &Selection {
        &self.selections[id]
    }

    pub(super) fn selection_mut(&mut self, id: SelectionId) -> &mut Selection {
        &mut self.selections[id]
    }

    /// All selections, in no particular order.
    pub(super) fn selections(&self) -> impl Iterator<Item = (SelectionId, &Selection)> {
        self.selections.places()
    }

    /// The selections that a Pod is in.
    pub(super) fn selections_of(&self, pod: PodId) -> &IdSet<SelectionId> {
        &self.cells[self.pods[pod].cell].selections
    }

    /// The Pods of a selection.
    pub(super) fn pods_of(&self, id: SelectionId) -> impl Iterator<Item = PodId> {
        self.selections[id].cells.iter().flat_map(|cell| self.cells[cell].pods.iter())
    }

    /// Takes in a Pod, or what it has become.
    pub(super) fn set_pod(&mut self, endpoint: Endpoint, nodes: &mut Nodes) -> Moved {
        let hash = self.pod_names.hash(&endpoint.member.pod);
        let known = self.pod_names.find(hash, &endpoint.member.pod, |id| &self.pods[id].member.pod);
        let node = nodes.of_pod(&endpoint.node);
        let cell = self.cell(&endpoint);
        if let Some(id) = known {
            let pod = &self.pods[id];
            if pod.cell == cell && pod.node == node && *pod.uid == *endpoint.uid && *pod.member == endpoint.member {
                return Moved::default();
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
        let is_seen = from == node && old.as_ref().is_some_and(|old| old.uid == self.pods[id].uid);
        let before = old_cell.map(|cell| self.cells[cell].selections.iter().collect::<SmallVec<[_; 8]>>());
        let mut shifts = Shifts::new();
        if let (Some(old), Some(before)) = (old, before) {
            if let Some(node) = old.node {
                nodes.remove_pod(node, id);
            }
            let leaver = Leaver { member: old.member, node: old.node };
            shifts.extend(before.iter().map(|selection| Shift {
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
            nodes.add_pod(node, id);
        }
        let left = shifts.len();
        for selection in self.cells[cell].selections.iter() {
            match shifts[..left].binary_search_by_key(&selection, |shift| shift.selection) {
                Ok(place) => shifts[place].joined.push(id),
                Err(_) => shifts.push(Shift { selection, left: SmallVec::new(), joined: [id].into() }),
            }
        }
        Moved { shifts, from, unseen: (!is_seen).then_some(id) }
    }

    /// Forgets a Pod.
    pub(super) fn remove_pod(&mut self, name: &ObjectName, nodes: &mut Nodes) -> Moved {
        let hash = self.pod_names.hash(name);
        let found = self.pod_names.find(hash, name, |id| &self.pods[id].member.pod);
        let Some(id) = found else { return Moved::default() };
        let pod = self.pods.remove(id);
        self.pod_names.remove(hash, id);
        if let Some(node) = pod.node {
            nodes.remove_pod(node, id);
        }
        let leaver = Leaver { member: pod.member, node: pod.node };
        let left = |selection| Shift { selection, left: [leaver.clone()].into(), joined: SmallVec::new() };
        let shifts = self.cells[pod.cell].selections.iter().map(left).collect();
        self.cells[pod.cell].pods.remove(id);
        self.tidy_cell(pod.cell);
        Moved { shifts, from: leaver.node, unseen: None }
    }

    /// Takes in a namespace's labels; `None` if it is gone.
    pub(super) fn set_namespace(&mut self, name: &str, labels: Option<&Labels>) -> Shifts {
        let id = self.namespace(name);
        let new = labels.map(|labels| self.namespace_index.acquire_labels(labels));
        let old = std::mem::replace(&mut self.namespaces[id].labels, new);
        let mut shifts = Shifts::new();
        if old != new {
            let selecting = |labels: Option<LabelsId>| match labels {
                Some(labels) => self.namespace_index.selectors_of(labels).clone(),
                None => IdSet::default(),
            };
            let (before, after) = (selecting(old), selecting(new));
            for selector in before.iter().filter(|selector| !after.contains(*selector)) {
                shifts.extend(self.leave_namespaces(id, selector));
            }
            for selector in after.iter().filter(|selector| !before.contains(*selector)) {
                shifts.extend(self.join_namespaces(id, selector));
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
        shifts
    }

    /// Whether nothing is left of anything.
    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty()
            && self.pod_names.len() == 0
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
            // A cell counts once as a user of its labels.
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
