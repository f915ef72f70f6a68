//! Which Nodes need subnets, and what to do about them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use k8s::WatchEvent;
use types::node::Node;

use super::{Allocation, Exhausted};

/// The Nodes without subnets, and the subnets of the others.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    allocation: Allocation,
    /// Nodes without subnets, with their uids.
    nodes: BTreeMap<String, String>,
    /// Nodes that already have an Event that no subnet is free.
    reported: BTreeSet<String>,
    is_synced: bool,
}

/// What to do about a Node without subnets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    Assign { node: String, subnets: Vec<IpNet> },
    Report { node: String, uid: String, exhausted: Exhausted },
}

impl Waiting {
    pub(crate) fn new(allocation: Allocation) -> Self {
        Self { allocation, nodes: BTreeMap::new(), reported: BTreeSet::new(), is_synced: false }
    }

    pub(crate) fn observe(&mut self, event: &WatchEvent<Node>) {
        match event {
            WatchEvent::Applied(node) => self.set(node),
            WatchEvent::Deleted(name) => {
                self.done(&name.name);
                self.allocation.release(&name.name);
            }
            WatchEvent::Synced => self.is_synced = true,
        }
    }

    fn set(&mut self, node: &Node) {
        let name = &node.metadata.name;
        let subnets: Vec<IpNet> = node.spec.pod_cidrs.iter().filter_map(|net| net.parse().ok()).collect();
        if subnets.is_empty() {
            self.nodes.insert(name.clone(), node.metadata.uid.clone());
        } else {
            self.done(name);
            self.allocation.record(name, subnets);
        }
    }

    /// What is due now. All existing assignments must be known before new ones are made. A Node without a free subnet is
    /// reported once, and does not delay the others.
    pub(crate) fn decide(&mut self) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for (node, uid) in self.nodes.iter().filter(|_| self.is_synced) {
            match self.allocation.assign(node) {
                Ok(subnets) => decisions.push(Decision::Assign { node: node.clone(), subnets }),
                Err(exhausted) if !self.reported.contains(node) => {
                    decisions.push(Decision::Report { node: node.clone(), uid: uid.clone(), exhausted });
                }
                Err(_) => {}
            }
        }
        decisions
    }

    /// A Node has subnets, or was deleted.
    pub(crate) fn done(&mut self, node: &str) {
        self.nodes.remove(node);
        self.reported.remove(node);
    }

    /// A Node has an Event that no subnet is free.
    pub(crate) fn reported(&mut self, node: String) {
        self.reported.insert(node);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use types::ObjectName;

    use super::*;

    fn node(name: &str, subnets: &[&str]) -> WatchEvent<Node> {
        let object = json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": {"podCIDRs": subnets}});
        WatchEvent::Applied(serde_json::from_value(object).unwrap())
    }

    fn deleted(name: &str) -> WatchEvent<Node> {
        WatchEvent::Deleted(ObjectName { namespace: String::new(), name: name.to_owned() })
    }

    /// Two subnets, of which the Node `old` has one.
    fn two_subnets() -> Waiting {
        let config = super::super::tests::config(&["10.0.0.0/23"], 24, None);
        let mut waiting = Waiting::new(Allocation::new(&config));
        waiting.observe(&node("old", &["10.0.0.0/24"]));
        waiting
    }

    fn assign(node: &str, subnet: &str) -> Decision {
        Decision::Assign { node: node.to_owned(), subnets: vec![subnet.parse().unwrap()] }
    }

    #[test]
    fn nothing_is_assigned_before_all_existing_assignments_are_known() {
        let mut waiting = two_subnets();
        waiting.observe(&node("new", &[]));
        assert_eq!(waiting.decide(), []);
        waiting.observe(&WatchEvent::Synced);
        assert_eq!(waiting.decide(), [assign("new", "10.0.1.0/24")]);
        assert_eq!(waiting.decide(), [assign("new", "10.0.1.0/24")], "a retry assigns the same subnet");
        waiting.done("new");
        assert_eq!(waiting.decide(), []);
    }

    #[test]
    fn a_node_without_a_free_subnet_is_reported_once_and_gets_the_next_free_one() {
        let mut waiting = two_subnets();
        for event in [node("a", &[]), node("b", &[]), WatchEvent::Synced] {
            waiting.observe(&event);
        }
        let decisions = waiting.decide();
        assert_eq!(decisions[0], assign("a", "10.0.1.0/24"));
        assert!(matches!(&decisions[1], Decision::Report { node, uid, .. } if node == "b" && uid == "uid-b"));
        assert_eq!(waiting.decide().len(), 2, "a report that failed is repeated");
        waiting.done("a");
        waiting.reported("b".to_owned());
        assert_eq!(waiting.decide(), []);
        waiting.observe(&deleted("old"));
        assert_eq!(waiting.decide(), [assign("b", "10.0.0.0/24")]);
    }
}
