//! The controller's brain: what each Node has to know of the policies, kept up to date by what changes.

mod counts;
mod grouping;
mod listing;
mod names;
mod nodes;
mod policies;
mod spans;

pub use listing::Held;
pub use nodes::{Subscription, Superseded};

use std::collections::BTreeSet;
use std::sync::Arc;

use types::control::{Batch, Change, GroupChange, PodChange};
use types::meta::Labels;
use types::network_policy::NetworkPolicy;
use types::node::Namespace;
use types::pod::Pod;
use types::{InvalidField, ObjectName};

use crate::endpoint::Endpoint;
use grouping::{Grouping, Moved, SelectionId};
use nodes::{NodeId, Nodes, Pending};
use policies::{Policies, PolicyId};

/// What happens in the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A Pod is there, and like this.
    Pod(Box<Pod>),
    /// A Pod is gone.
    PodGone(ObjectName),
    /// A Namespace is there, and like this.
    Namespace(Namespace),
    /// A Namespace is gone.
    NamespaceGone(String),
    /// A NetworkPolicy is there, and like this.
    Policy(Box<NetworkPolicy>),
    /// A NetworkPolicy is gone.
    PolicyGone(ObjectName),
    /// All objects of a kind that are there have been told.
    Synced(Kind),
}

/// The kinds of objects that policies depend on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Pods.
    Pod,
    /// Namespaces.
    Namespace,
    /// NetworkPolicies.
    Policy,
}

/// What each Node has to know of the policies.
#[derive(Clone, Debug, Default)]
pub struct Brain {
    grouping: Grouping,
    policies: Policies,
    nodes: Nodes,
    synced: BTreeSet<Kind>,
}

impl Brain {
    /// Follows what has happened; says what of the object could not be understood.
    pub fn step(&mut self, event: Event) -> Vec<InvalidField> {
        match event {
            Event::Pod(pod) => return self.set_pod(*pod),
            Event::PodGone(name) => self.remove_pod(&name),
            Event::Namespace(namespace) => {
                self.set_namespace(&namespace.metadata.name, Some(&namespace.metadata.labels));
            }
            Event::NamespaceGone(name) => self.set_namespace(&name, None),
            Event::Policy(policy) => return self.set_policy(*policy),
            Event::PolicyGone(name) => self.remove_policy(&name),
            Event::Synced(kind) => {
                self.synced.insert(kind);
            }
        }
        Vec::new()
    }

    /// Whether all there is has been told; until then nobody gets anything, since half of a group would be enforced as if it were all.
    pub fn is_synced(&self) -> bool {
        self.synced.len() == 3
    }

    /// A Node listens from now on. It gets a snapshot first, then what changes.
    pub fn subscribe(&mut self, node: &str) -> Subscription {
        self.nodes.subscribe(node)
    }

    /// A Node listens no more.
    pub fn unsubscribe(&mut self, subscription: &Subscription) {
        self.nodes.unsubscribe(subscription);
    }

    /// Who has something to take, and was not named here since it last took.
    pub fn take_ready(&mut self) -> Vec<Subscription> {
        if self.is_synced() { self.nodes.take_ready() } else { Vec::new() }
    }

    /// What a Node has not been told yet. One that took nothing for so long that too much would have to be kept gets a snapshot.
    pub fn take(&mut self, subscription: &Subscription) -> Result<Option<Batch>, Superseded> {
        if !self.is_synced() {
            return Ok(None);
        }
        Ok(match self.nodes.take(subscription)? {
            Pending::Nothing => None,
            Pending::Changes(changes) => Some(Batch { snapshot: false, changes }),
            Pending::Everything => {
                let changes = self.snapshot(self.nodes.node_of(subscription));
                Some(Batch { snapshot: true, changes })
            }
        })
    }

    fn set_pod(&mut self, pod: Pod) -> Vec<InvalidField> {
        let (endpoint, problems) = Endpoint::read(pod);
        match endpoint {
            Ok(endpoint) => {
                let Moved { shifts, from, unseen } = self.grouping.set_pod(endpoint, &mut self.nodes);
                self.settle(&shifts);
                if let Some(pod) = unseen.map(|id| self.grouping.pod(id)) {
                    if let Some(from) = from.filter(|from| pod.node != Some(*from)) {
                        self.nodes.push_pod(from, || gone(&pod.member.pod));
                    }
                    if let Some(node) = pod.node {
                        self.nodes.push_pod(node, || pod.seen());
                    }
                }
                if let Some(node) = from {
                    self.nodes.tidy(node);
                }
            }
            Err(name) => self.remove_pod(&name),
        }
        problems
    }

    fn remove_pod(&mut self, name: &ObjectName) {
        let Moved { shifts, from, .. } = self.grouping.remove_pod(name, &mut self.nodes);
        self.settle(&shifts);
        if let Some(node) = from {
            self.nodes.push_pod(node, || gone(name));
            self.nodes.tidy(node);
        }
    }

    fn set_namespace(&mut self, name: &str, labels: Option<&Labels>) {
        let shifts = self.grouping.set_namespace(name, labels);
        self.settle(&shifts);
    }

    /// Everything that a Node has to know, groups before the policies that name them, and Pods after what concerns them.
    fn snapshot(&mut self, node: NodeId) -> Vec<Change> {
        let selections: BTreeSet<SelectionId> =
            self.nodes.pods(node).iter().flat_map(|pod| self.grouping.selections_of(pod).iter()).collect();
        let applied = selections.iter().filter_map(|id| Some((*id, self.grouping.selection(*id).applied.as_deref()?)));
        let (mut applied_to, mut addresses, mut policies) = (Vec::new(), BTreeSet::new(), BTreeSet::<PolicyId>::new());
        for (id, applied) in applied {
            applied_to.push(id);
            addresses.extend(applied.links.iter());
            policies.extend(applied.policies.iter());
        }
        let pods = self.nodes.pods(node).len();
        let mut changes = Vec::with_capacity(applied_to.len() + addresses.len() + policies.len() + pods);
        for id in addresses {
            changes.push(Change::Address(GroupChange::Set(self.address_group(id))));
        }
        for id in applied_to {
            changes.push(Change::AppliedTo(GroupChange::Set(self.applied_to_group(node, id))));
        }
        changes.extend(policies.into_iter().map(|id| self.policies.set(id)));
        changes.extend(self.nodes.pods(node).iter().map(|pod| self.grouping.pod(pod).seen()));
        changes
    }

    fn node_names(&self, nodes: impl Iterator<Item = NodeId>) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = nodes.map(|node| self.nodes.name(node).clone()).collect();
        names.sort_unstable();
        names
    }
}

fn gone(pod: &ObjectName) -> Change {
    Change::Pod(PodChange::Gone(Arc::new(pod.clone())))
}

#[cfg(test)]
mod tests;
