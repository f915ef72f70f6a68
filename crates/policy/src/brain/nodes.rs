//! Names of Nodes, and the ids that stand for them in all stages.

use std::sync::Arc;

use selector::Slab;

use super::names::Names;

selector::ids! {
    pub(super) NodeId;
}

/// The Nodes that have Pods or a subscription.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeNames {
    names: Slab<NodeId, Arc<str>>,
    ids: Names<NodeId>,
}

impl NodeNames {
    /// The id of a Node, which may be new.
    pub(super) fn intern(&mut self, name: &str) -> NodeId {
        let names = &mut self.names;
        let hash = self.ids.hash(name);
        if let Some(id) = self.ids.find(hash, name, |id| &*names[id]) {
            return id;
        }
        let id = names.insert(name.into());
        self.ids.insert(hash, id);
        id
    }

    /// Frees the id of a Node without Pods and subscription.
    pub(super) fn remove(&mut self, id: NodeId) {
        let name = self.names.remove(id);
        self.ids.remove(self.ids.hash(&*name), id);
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// The names of some Nodes, sorted.
    pub(super) fn sorted(&self, nodes: impl Iterator<Item = NodeId>) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = nodes.map(|node| self.names[node].clone()).collect();
        names.sort_unstable();
        names
    }
}
