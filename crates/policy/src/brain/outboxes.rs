//! Stage 3: the changes that each subscribed Node has not taken yet.
//!
//! Owns subscriptions and pending changes. [`Deliveries`] are the input; a Node that takes gets its pending changes, or learns
//! that it needs a snapshot. The [`Audience`] tells the stage before which Nodes take changes at all.

use std::collections::BTreeSet;

use types::control::Change;

use super::column::Column;
use super::nodes::NodeId;

/// Pending changes per Node; a Node that exceeds this gets a snapshot instead.
const OUTBOX_LIMIT: usize = 4096;

/// Up to this size, the memory of [`Deliveries`] is kept for the next event.
const REUSED_SIZE: usize = 64;

/// Changes, each with the Nodes that it is for, in order. Flat, and reused from event to event: most events have few changes, and
/// allocations would be most of their cost.
#[derive(Clone, Debug, Default)]
pub(super) struct Deliveries {
    /// With the end of its Nodes in `nodes`.
    changes: Vec<(usize, Change)>,
    nodes: Vec<NodeId>,
}

impl Deliveries {
    /// Adds a change for some Nodes. It is not built if there are none.
    pub(super) fn push(&mut self, nodes: impl Iterator<Item = NodeId>, change: impl FnOnce() -> Change) {
        let start = self.nodes.len();
        self.nodes.extend(nodes);
        if self.nodes.len() > start {
            self.changes.push((self.nodes.len(), change()));
        }
    }

    /// The changes with their Nodes.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[NodeId], &Change)> {
        let starts = std::iter::once(0).chain(self.changes.iter().map(|(end, _)| *end));
        starts.zip(&self.changes).map(|(start, (end, change))| (&self.nodes[start..*end], change))
    }

    fn clear(&mut self) {
        if self.changes.capacity() > REUSED_SIZE || self.nodes.capacity() > REUSED_SIZE {
            *self = Self::default();
        }
        self.changes.clear();
        self.nodes.clear();
    }
}

/// The Nodes that take changes: subscribed, and not waiting for a snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct Audience {
    nodes: Column<NodeId, bool>,
    count: usize,
}

impl Audience {
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.nodes.get(node).is_some_and(|takes| *takes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn set(&mut self, node: NodeId, takes: bool) {
        let before = std::mem::replace(self.nodes.slot(node), takes);
        self.count = self.count + usize::from(takes) - usize::from(before);
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Outboxes {
    outboxes: Column<NodeId, Option<Outbox>>,
    audience: Audience,
    /// The number of the last subscription.
    last_number: u64,
    /// Nodes that got something to take since the last [`Outboxes::take_ready`].
    ready: BTreeSet<NodeId>,
}

#[derive(Clone, Debug, Default)]
struct Outbox {
    /// The number of its subscription.
    number: u64,
    /// The Node needs a snapshot; `changes` is empty then.
    stale: bool,
    changes: Vec<Change>,
    /// The Node was reported as ready and has not taken since.
    reported: bool,
}

/// What a Node has to take.
#[derive(PartialEq, Debug)]
pub(super) enum Pending {
    Nothing,
    Snapshot(NodeId),
    Changes(Vec<Change>),
}

/// The subscription of a Node. It ends when the same Node subscribes again.
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

    pub(super) fn node(&self) -> NodeId {
        self.node
    }
}

/// The subscription has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the subscription was closed, or replaced by a newer one of the same Node")]
pub struct Superseded;

impl Outboxes {
    pub(super) fn audience(&self) -> &Audience {
        &self.audience
    }

    pub(super) fn is_subscribed(&self, node: NodeId) -> bool {
        self.outboxes.get(node).is_some_and(Option::is_some)
    }

    pub(super) fn subscribe(&mut self, node: NodeId) -> Subscription {
        self.last_number += 1;
        let number = self.last_number;
        *self.outboxes.slot(node) = Some(Outbox { number, stale: true, reported: true, ..Outbox::default() });
        self.audience.set(node, false);
        self.ready.insert(node);
        Subscription { node, number }
    }

    /// Ends a subscription; whether it had not ended before.
    pub(super) fn unsubscribe(&mut self, subscription: &Subscription) -> bool {
        let is_current = self.outbox(subscription).is_some();
        if is_current {
            *self.outboxes.slot(subscription.node) = None;
            self.audience.set(subscription.node, false);
            self.ready.remove(&subscription.node);
        }
        is_current
    }

    /// Moves changes to the outboxes of the Nodes that they are for.
    pub(super) fn deliver(&mut self, deliveries: &mut Deliveries) {
        let mut start = 0;
        for (end, change) in deliveries.changes.drain(..) {
            if let [others @ .., last] = &deliveries.nodes[start..end] {
                for node in others {
                    self.push(*node, change.clone());
                }
                self.push(*last, change);
            }
            start = end;
        }
        deliveries.clear();
    }

    /// Takes what a Node has to take.
    pub(super) fn take(&mut self, subscription: &Subscription) -> Result<Pending, Superseded> {
        let outbox = self.outbox(subscription).ok_or(Superseded)?;
        outbox.reported = false;
        if std::mem::take(&mut outbox.stale) {
            self.audience.set(subscription.node, true);
            return Ok(Pending::Snapshot(subscription.node));
        }
        let changes = std::mem::take(&mut outbox.changes);
        Ok(if changes.is_empty() { Pending::Nothing } else { Pending::Changes(changes) })
    }

    /// The Nodes that have something to take and were not reported since they last took.
    pub(super) fn take_ready(&mut self) -> Vec<Subscription> {
        let ready = std::mem::take(&mut self.ready);
        let subscription = |node: NodeId| {
            let outbox = self.outboxes.get(node)?.as_ref().filter(|outbox| outbox.reported)?;
            Some(Subscription { node, number: outbox.number })
        };
        ready.into_iter().filter_map(subscription).collect()
    }

    fn push(&mut self, node: NodeId, change: Change) {
        let outbox = self.outboxes.get_mut(node).and_then(Option::as_mut);
        let Some(outbox) = outbox.filter(|outbox| !outbox.stale) else { return };
        if outbox.changes.len() < OUTBOX_LIMIT {
            outbox.changes.push(change);
        } else {
            outbox.stale = true;
            outbox.changes = Vec::new();
            self.audience.set(node, false);
        }
        if !std::mem::replace(&mut outbox.reported, true) {
            self.ready.insert(node);
        }
    }

    fn outbox(&mut self, subscription: &Subscription) -> Option<&mut Outbox> {
        let outbox = self.outboxes.get_mut(subscription.node)?.as_mut();
        outbox.filter(|outbox| outbox.number == subscription.number)
    }
}

#[cfg(test)]
mod tests;
