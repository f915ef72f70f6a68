//! Nodes: which Pods they have, and what is to be told to them.

use std::collections::BTreeSet;
use std::sync::Arc;

use selector::{IdSet, Slab};
use types::control::Change;

use super::grouping::PodId;
use super::names::Names;

selector::ids! {
    pub(super) NodeId;
}

/// How many changes are kept for a Node that does not take them; then it gets a snapshot instead.
const OUTBOX_LIMIT: usize = 4096;

/// All Nodes that have Pods or listen.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    nodes: Slab<NodeId, Node>,
    names: Names<NodeId>,
    /// How many listen.
    listening: usize,
    subscriptions: u64,
    /// Those who listen and have something to take since they were last named.
    ready: BTreeSet<NodeId>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    name: Arc<str>,
    pods: IdSet<PodId>,
    outbox: Option<Box<Outbox>>,
}

/// What is to be told to a Node.
#[derive(Clone, Debug, Default)]
struct Outbox {
    /// Which subscription it belongs to.
    number: u64,
    /// The Node needs everything; `changes` is empty then.
    stale: bool,
    changes: Vec<Change>,
    /// It was named as ready and has taken nothing since.
    named: bool,
}

/// What a Node has to take.
pub(super) enum Pending {
    Nothing,
    Everything,
    Changes(Vec<Change>),
}

/// A Node that listens. It ends when the same Node subscribes again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subscription {
    node: NodeId,
    number: u64,
}

impl Subscription {
    /// A number that no other subscription has.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The Node has subscribed again, or this subscription was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the Node has subscribed again, or is no longer subscribed")]
pub struct Superseded;

impl Nodes {
    pub(super) fn name(&self, id: NodeId) -> &Arc<str> {
        &self.nodes[id].name
    }

    pub(super) fn pods(&self, id: NodeId) -> &IdSet<PodId> {
        &self.nodes[id].pods
    }

    /// A Pod's Node; none for a Pod that is not scheduled.
    pub(super) fn of_pod(&mut self, name: &str) -> Option<NodeId> {
        (!name.is_empty()).then(|| self.acquire(name))
    }

    pub(super) fn add_pod(&mut self, node: NodeId, pod: PodId) {
        self.nodes[node].pods.insert(pod);
    }

    pub(super) fn remove_pod(&mut self, node: NodeId, pod: PodId) {
        self.nodes[node].pods.remove(pod);
    }

    /// Forgets a Node that nothing is known of any more.
    pub(super) fn tidy(&mut self, id: NodeId) {
        let node = &self.nodes[id];
        if node.pods.is_empty() && node.outbox.is_none() {
            let node = self.nodes.remove(id);
            self.names.remove(self.names.hash(&*node.name), id);
        }
    }

    pub(super) fn subscribe(&mut self, name: &str) -> Subscription {
        let node = self.acquire(name);
        self.subscriptions += 1;
        let number = self.subscriptions;
        let outbox = Outbox { number, stale: true, ..Outbox::default() };
        if self.nodes[node].outbox.replace(Box::new(outbox)).is_none() {
            self.listening += 1;
        }
        self.mark_ready(node);
        Subscription { node, number }
    }

    pub(super) fn unsubscribe(&mut self, subscription: &Subscription) {
        if self.outbox(subscription).is_some() {
            self.nodes[subscription.node].outbox = None;
            self.listening -= 1;
            self.ready.remove(&subscription.node);
            self.tidy(subscription.node);
        }
    }

    pub(super) fn node_of(&self, subscription: &Subscription) -> NodeId {
        subscription.node
    }

    /// What a Node has to take, which it has taken then.
    pub(super) fn take(&mut self, subscription: &Subscription) -> Result<Pending, Superseded> {
        let outbox = self.outbox(subscription).ok_or(Superseded)?;
        outbox.named = false;
        if std::mem::take(&mut outbox.stale) {
            return Ok(Pending::Everything);
        }
        let changes = std::mem::take(&mut outbox.changes);
        Ok(if changes.is_empty() { Pending::Nothing } else { Pending::Changes(changes) })
    }

    /// Names those who have something to take and were not named since they last took.
    pub(super) fn take_ready(&mut self) -> Vec<Subscription> {
        let ready = std::mem::take(&mut self.ready);
        let subscription = |node: NodeId| {
            Some(Subscription { node, number: self.nodes[node].outbox.as_ref().filter(|outbox| outbox.named)?.number })
        };
        ready.into_iter().filter_map(subscription).collect()
    }

    /// Whether anybody listens.
    pub(super) fn any_listens(&self) -> bool {
        self.listening > 0
    }

    /// Whether a Node listens and does not need everything anyway.
    pub(super) fn wants(&self, node: NodeId) -> bool {
        self.nodes[node].outbox.as_ref().is_some_and(|outbox| !outbox.stale)
    }

    /// Puts a change into a Node's outbox, if it wants it.
    pub(super) fn push(&mut self, node: NodeId, change: Change) {
        let Some(outbox) = self.nodes[node].outbox.as_mut().filter(|outbox| !outbox.stale) else { return };
        if outbox.changes.len() < OUTBOX_LIMIT {
            outbox.changes.push(change);
        } else {
            outbox.stale = true;
            outbox.changes = Vec::new();
        }
        if !outbox.named {
            self.mark_ready(node);
        }
    }

    /// Puts a change of one of its Pods into a Node's outbox, if it wants it.
    pub(super) fn push_pod(&mut self, node: NodeId, change: impl FnOnce() -> Change) {
        if self.wants(node) {
            self.push(node, change());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    fn mark_ready(&mut self, node: NodeId) {
        if let Some(outbox) = &mut self.nodes[node].outbox {
            outbox.named = true;
            self.ready.insert(node);
        }
    }

    fn acquire(&mut self, name: &str) -> NodeId {
        let nodes = &mut self.nodes;
        let hash = self.names.hash(name);
        if let Some(id) = self.names.find(hash, name, |id| &*nodes[id].name) {
            return id;
        }
        let id = nodes.insert(Node { name: name.into(), ..Node::default() });
        self.names.insert(hash, id);
        id
    }

    fn outbox(&mut self, subscription: &Subscription) -> Option<&mut Outbox> {
        let outbox = self.nodes[subscription.node].outbox.as_deref_mut();
        outbox.filter(|outbox| outbox.number == subscription.number)
    }
}
