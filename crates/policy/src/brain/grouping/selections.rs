//! Selections, and how they find their cells.

use selector::{IdSet, LabelsId, SelectorId};
use smallvec::SmallVec;

use super::{CellId, Grouping, Leaver, NamespaceId, Place, Selection, SelectionId, Shift};
use crate::group_id;
use crate::reading::{Scope, Selected};

impl Grouping {
    /// Takes in a selection of a policy in this namespace, or counts one user more of it.
    pub(in crate::brain) fn acquire_selection(&mut self, own: &str, selected: &Selected) -> SelectionId {
        let pods = self.pod_index.acquire_selector(&selected.pods);
        let place = match &selected.scope {
            Scope::Own => Place::Namespace(self.namespace(own)),
            Scope::Namespaces(selector) => Place::Namespaces(self.namespace_index.acquire_selector(selector)),
        };
        if let Some(id) = self.selection_of.get(&(place, pods)).copied() {
            self.selections[id].users += 1;
            self.pod_index.release_selector(pods);
            if let Place::Namespaces(selector) = place {
                self.namespace_index.release_selector(selector);
            }
            return id;
        }
        let (id, cells) = match place {
            Place::Namespace(namespace) => {
                let id = group_id::in_namespace(&self.namespaces[namespace].name, &selected.pods);
                (id, self.cells_matching(namespace, pods).collect())
            }
            Place::Namespaces(selector) => {
                let id = group_id::in_namespaces(self.namespace_index.selector(selector), &selected.pods);
                let selected = self.namespace_index.sets_of(selector).iter();
                let namespaces = selected.filter_map(|labels| self.namespaces_of.get(&labels)).flat_map(IdSet::iter);
                (id, namespaces.flat_map(|namespace| self.cells_matching(namespace, pods)).collect())
            }
        };
        let selection = Selection { id, place, pods, cells, users: 1, applied: None, address: None };
        let id = self.selections.insert(selection);
        self.selection_of.insert((place, pods), id);
        match place {
            Place::Namespace(namespace) => self.namespaces[namespace].selections += 1,
            Place::Namespaces(selector) => {
                self.by_namespaces.entry(selector).or_default().insert(id);
                self.by_pods.entry(pods).or_default().insert(id);
            }
        }
        for cell in self.selections[id].cells.iter() {
            self.cells[cell].selections.insert(id);
        }
        id
    }

    /// Counts one user less of a selection, which is forgotten with the last.
    pub(in crate::brain) fn release_selection(&mut self, id: SelectionId) {
        self.selections[id].users -= 1;
        if self.selections[id].users > 0 {
            return;
        }
        let selection = self.selections.remove(id);
        for cell in selection.cells.iter() {
            self.cells[cell].selections.remove(id);
        }
        self.selection_of.remove(&(selection.place, selection.pods));
        match selection.place {
            Place::Namespace(namespace) => {
                self.namespaces[namespace].selections -= 1;
                self.tidy_namespace(namespace);
            }
            Place::Namespaces(selector) => {
                for (map, key) in [(&mut self.by_namespaces, selector), (&mut self.by_pods, selection.pods)] {
                    if let Some(selections) = map.get_mut(&key) {
                        selections.remove(id);
                        if selections.is_empty() {
                            map.remove(&key);
                        }
                    }
                }
                self.namespace_index.release_selector(selector);
            }
        }
        self.pod_index.release_selector(selection.pods);
    }

    /// The cells of a namespace that a selector of Pods selects: whichever are fewer are gone through.
    fn cells_matching(&self, namespace: NamespaceId, pods: SelectorId) -> impl Iterator<Item = CellId> {
        let cells = &self.namespaces[namespace].cells;
        let sets = self.pod_index.sets_of(pods);
        let by_cell = cells.len() <= sets.len();
        let of_namespace = by_cell.then(|| cells.iter().filter(|cell| sets.contains(self.cells[*cell].labels)));
        let of_sets =
            (!by_cell).then(|| sets.iter().filter_map(move |set| self.cell_of.get(&(namespace, set)).copied()));
        of_namespace.into_iter().flatten().chain(of_sets.into_iter().flatten())
    }

    /// The selections that select Pods with these labels in a namespace.
    pub(super) fn selections_matching(&self, namespace: NamespaceId, labels: LabelsId) -> IdSet<SelectionId> {
        let mut matching = IdSet::default();
        let namespaces = self.namespaces[namespace].labels.map(|labels| self.namespace_index.selectors_of(labels));
        for pods in self.pod_index.selectors_of(labels).iter() {
            let in_namespace = self.selection_of.get(&(Place::Namespace(namespace), pods));
            matching.extend(in_namespace.copied());
            let (Some(wide), Some(namespaces)) = (self.by_pods.get(&pods), namespaces) else { continue };
            if namespaces.len() < wide.len() {
                let found =
                    namespaces.iter().filter_map(|n| self.selection_of.get(&(Place::Namespaces(n), pods)).copied());
                matching.extend(found);
            } else {
                let is_meant = |selection: &SelectionId| match self.selections[*selection].place {
                    Place::Namespaces(selector) => namespaces.contains(selector),
                    Place::Namespace(_) => false,
                };
                matching.extend(wide.iter().filter(is_meant));
            }
        }
        matching
    }

    /// A namespace is no longer selected by this.
    pub(super) fn leave_namespaces(&mut self, namespace: NamespaceId, selector: SelectorId) -> Vec<Shift> {
        let mut shifts = Vec::new();
        for selection in self.wide(selector) {
            let cells: Vec<CellId> = self.cells_matching(namespace, self.selections[selection].pods).collect();
            let mut left = SmallVec::new();
            for cell in cells {
                self.selections[selection].cells.remove(cell);
                self.cells[cell].selections.remove(selection);
                left.extend(self.cells[cell].pods.iter().map(|pod| {
                    let pod = &self.pods[pod];
                    Leaver { member: pod.member.clone(), node: pod.node }
                }));
            }
            shifts.push(Shift { selection, left, joined: SmallVec::new() });
        }
        shifts
    }

    /// A namespace is now selected by this.
    pub(super) fn join_namespaces(&mut self, namespace: NamespaceId, selector: SelectorId) -> Vec<Shift> {
        let mut shifts = Vec::new();
        for selection in self.wide(selector) {
            let cells: Vec<CellId> = self.cells_matching(namespace, self.selections[selection].pods).collect();
            let mut joined = SmallVec::new();
            for cell in cells {
                self.selections[selection].cells.insert(cell);
                self.cells[cell].selections.insert(selection);
                joined.extend(self.cells[cell].pods.iter());
            }
            shifts.push(Shift { selection, left: SmallVec::new(), joined });
        }
        shifts
    }

    fn wide(&self, selector: SelectorId) -> Vec<SelectionId> {
        self.by_namespaces.get(&selector).map(|selections| selections.iter().collect()).unwrap_or_default()
    }
}
