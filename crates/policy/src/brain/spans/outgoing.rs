//! Sends changes to the Nodes that take them.

use types::control::Change;

use super::super::nodes::NodeId;
use super::super::outboxes::{Audience, Deliveries};

/// Deliveries for Nodes of an audience. A change for other Nodes is not built.
pub(super) struct Outgoing<'a> {
    pub(super) audience: &'a Audience,
    pub(super) deliveries: &'a mut Deliveries,
}

impl Outgoing<'_> {
    pub(super) fn audience_is_empty(&self) -> bool {
        self.audience.is_empty()
    }

    pub(super) fn takes(&self, node: NodeId) -> bool {
        self.audience.contains(node)
    }

    pub(super) fn send(&mut self, node: NodeId, change: impl FnOnce() -> Change) {
        if self.takes(node) {
            self.deliveries.push([node].into_iter(), change);
        }
    }

    pub(super) fn send_to_all(&mut self, nodes: impl Iterator<Item = NodeId>, change: impl FnOnce() -> Change) {
        if !self.audience_is_empty() {
            self.deliveries.push(nodes.filter(|node| self.audience.contains(*node)), change);
        }
    }
}
