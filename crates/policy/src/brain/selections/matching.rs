//! Which cells a selection selects, and which selections select a cell.

use selector::{IdSet, LabelsId, SelectorId};
use smallvec::SmallVec;

use super::{CellId, Leaver, NamespaceId, Scope, Selection, SelectionId, Selections, Shift};
use crate::group_id;
use crate::reading::{self, Selected};

impl Selections {
    /// Adds a selection of a policy in namespace `own`, or counts one more user of it.
    pub(in crate::brain) fn acquire(&mut self, own: &str, selected: &Selected) -> SelectionId {
        let pods = self.pod_index.acquire_selector(&selected.pods);
        let scope = match &selected.scope {
            reading::Scope::Own => Scope::One(self.namespace(own)),
            reading::Scope::Namespaces(selector) => Scope::Selected(self.namespace_index.acquire_selector(selector)),
        };
        if let Some(id) = self.selection_of.get(&(scope, pods)).copied() {
            self.selections[id].users += 1;
            self.pod_index.release_selector(pods);
            if let Scope::Selected(selector) = scope {
                self.namespace_index.release_selector(selector);
            }
            return id;
        }
        let (id, cells) = match scope {
            Scope::One(namespace) => {
                let id = group_id::in_namespace(&self.namespaces[namespace].name, &selected.pods);
                (id, self.cells_matching(namespace, pods).collect())
            }
            Scope::Selected(selector) => {
                let id = group_id::in_namespaces(self.namespace_index.selector(selector), &selected.pods);
                let selected = self.namespace_index.sets_of(selector).iter();
                let namespaces = selected.filter_map(|labels| self.namespaces_of.get(&labels)).flat_map(IdSet::iter);
                (id, namespaces.flat_map(|namespace| self.cells_matching(namespace, pods)).collect())
            }
        };
        let selection = Selection { id, scope, pods, cells, users: 1 };
        let id = self.selections.insert(selection);
        self.selection_of.insert((scope, pods), id);
        match scope {
            Scope::One(namespace) => self.namespaces[namespace].selections += 1,
            Scope::Selected(selector) => {
                self.by_namespaces.entry(selector).or_default().insert(id);
                self.by_pods.entry(pods).or_default().insert(id);
            }
        }
        for cell in self.selections[id].cells.iter() {
            self.cells[cell].selections.insert(id);
        }
        id
    }

    /// Counts one user less of a selection, and removes it with the last.
    pub(in crate::brain) fn release(&mut self, id: SelectionId) {
        self.selections[id].users -= 1;
        if self.selections[id].users > 0 {
            return;
        }
        let selection = self.selections.remove(id);
        for cell in selection.cells.iter() {
            self.cells[cell].selections.remove(id);
        }
        self.selection_of.remove(&(selection.scope, selection.pods));
        match selection.scope {
            Scope::One(namespace) => {
                self.namespaces[namespace].selections -= 1;
                self.tidy_namespace(namespace);
            }
            Scope::Selected(selector) => {
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

    /// The cells of a namespace that a selector of Pods selects: iterates over the smaller of both sets.
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
            let in_namespace = self.selection_of.get(&(Scope::One(namespace), pods));
            matching.extend(in_namespace.copied());
            let (Some(wide), Some(namespaces)) = (self.by_pods.get(&pods), namespaces) else { continue };
            if namespaces.len() < wide.len() {
                let found =
                    namespaces.iter().filter_map(|n| self.selection_of.get(&(Scope::Selected(n), pods)).copied());
                matching.extend(found);
            } else {
                let is_in_scope = |selection: &SelectionId| match self.selections[*selection].scope {
                    Scope::Selected(selector) => namespaces.contains(selector),
                    Scope::One(_) => false,
                };
                matching.extend(wide.iter().filter(is_in_scope));
            }
        }
        matching
    }

    /// Removes a namespace from the selections with this namespace selector.
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

    /// Adds a namespace to the selections with this namespace selector.
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
