//! The brain of the controller: which groups and policies each Node needs, kept up to date incrementally.
//!
//! Three stages, each the only owner of its tables. An event enters on the left; a stage returns a delta, which is the input
//! of the next one. A stage may read the tables of an earlier stage, and changes its own only.
//!
//! ```text
//!   Event::Pod, PodGone                       Event::Policy   Event::AntreaPolicy, Tier, Group, Namespace
//!   Event::Namespace, NamespaceGone              |                 |
//!        |                                    compile <------- Tiered (which policies to compile)
//!        |                                       |  acquires selections, which Uses::release gives back
//!        v                                       v
//!  +------------+  PodDelta         +----------------------+                  +----------------------+
//!  | Selections |  MembershipDelta  | Spans                |    Deliveries    | Outboxes             |
//!  |            | ----------------> |                      | ---------------> |                      | --> take: Batch
//!  | Pods       |                   | policies             |                  | subscriptions        |
//!  | Namespaces | <- - reads - - -  | AppliedToGroups      | < - Audience - - | pending changes      |
//!  | cells      |                   | AddressGroups        |   (who listens)  | who needs a snapshot |
//!  | selections |                   | whole groups, shared |                  | who is ready to take |
//!  +------------+                   +----------------------+                  +----------------------+
//!                                      | Spans::snapshot, for a Node that Outboxes says needs one
//! ```
//!
//! [`NodeNames`] assigns the ids that stand for Nodes in all stages. [`Brain`] wires the stages and holds no policy logic.

mod column;
mod compile;
mod counts;
mod event;
mod names;
mod nodes;
mod outboxes;
mod selections;
mod spans;
mod tiered;

pub use event::{Event, Kind};
pub use outboxes::{Subscription, Superseded};

use std::collections::BTreeSet;
use std::sync::Arc;

use types::control::{Batch, Group, Policy, PolicyKind, PolicyName};
use types::meta::Labels;
use types::network_policy::NetworkPolicy;
use types::pod::Pod;
use types::{InvalidField, ObjectName};

use crate::endpoint::Endpoint;
use crate::reading::{EntityReading, policy_name};
use compile::{CompiledPolicy, Uses, compile};
use nodes::{NodeId, NodeNames};
use outboxes::{Deliveries, Outboxes, Pending};
use selections::{PodDelta, Selections};
use spans::Spans;
use tiered::Tiered;

/// Computes which groups and policies each Node needs.
#[derive(Clone, Debug, Default)]
pub struct Brain {
    nodes: NodeNames,
    selections: Selections,
    tiered: Tiered,
    spans: Spans,
    outboxes: Outboxes,
    /// Empty between two events.
    deliveries: Deliveries,
    synced: BTreeSet<Kind>,
    /// Kinds of Antrea that the API server serves.
    watched: BTreeSet<Kind>,
    /// Namespaces or ExternalEntities have changed before the end of the initial sync: rules that depend on all of them are
    /// compiled at its end, once.
    is_stale: bool,
}

/// The size of the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Stats {
    pub applied_to_groups: usize,
    pub address_groups: usize,
    pub policies: usize,
    /// Nodes with Pods or a subscription.
    pub nodes: usize,
}

impl Brain {
    /// Processes an event. Returns the invalid fields of its object, and new ones of policies that depend on it.
    pub fn step(&mut self, event: Event) -> Vec<InvalidField> {
        match event {
            Event::Pod(pod) => return self.set_pod(*pod),
            Event::PodGone(name) => self.remove_pod(&name),
            Event::Namespace(namespace) => {
                return self.set_namespace(&namespace.metadata.name, Some(&namespace.metadata.labels));
            }
            Event::NamespaceGone(name) => return self.set_namespace(&name, None),
            Event::Policy(policy) => return self.set_policy(*policy),
            Event::PolicyGone(name) => {
                let (audience, name) = (self.outboxes.audience(), PolicyName::kubernetes(name));
                let unused = self.spans.remove_policy(&self.selections, &name, audience, &mut self.deliveries);
                self.apply_policy(unused);
            }
            Event::Tier(tier) => {
                let (changed, problems) = self.tiered.set_tier(&tier);
                return self.compile_tiered(changed, problems);
            }
            Event::TierGone(name) => {
                let changed = self.tiered.remove_tier(name);
                return self.compile_tiered(changed, Vec::new());
            }
            Event::AntreaPolicy(policy) => {
                let name = self.tiered.set_policy(&policy);
                return self.compile_tiered(vec![name], Vec::new());
            }
            Event::AntreaPolicyGone(name) => {
                self.tiered.remove_policy(&name);
                self.set_tiered(name, None);
            }
            Event::Group(group) => {
                let (changed, problems) = self.tiered.set_group(&group);
                return self.compile_tiered(changed, problems);
            }
            Event::GroupGone(name) => {
                let changed = self.tiered.remove_group(name);
                return self.compile_tiered(changed, Vec::new());
            }
            Event::ExternalEntity(entity) => {
                let name = entity.metadata.object_name();
                let (reading, problems) = EntityReading::new(&name, &entity);
                return self.set_entity(name, Some(reading), problems);
            }
            Event::ExternalEntityGone(name) => return self.set_entity(name, None, Vec::new()),
            Event::Watched(kind) => {
                self.watched.insert(kind);
            }
            Event::Synced(kind) => {
                self.synced.insert(kind);
                if self.is_synced() && std::mem::take(&mut self.is_stale) {
                    let problems = self.compile_tiered(self.tiered.namespaces_changed(), Vec::new());
                    return self.compile_tiered(self.tiered.entities_changed(), problems);
                }
            }
        }
        Vec::new()
    }

    /// Whether the initial lists of all kinds that the API server serves are complete. Before, Nodes get nothing: they would
    /// enforce half of a group as if it were the whole.
    pub fn is_synced(&self) -> bool {
        Kind::ALWAYS.iter().chain(&self.watched).all(|kind| self.synced.contains(kind))
    }

    /// Subscribes a Node. It gets a snapshot first, then changes.
    pub fn subscribe(&mut self, node: &str) -> Subscription {
        let node = self.nodes.intern(node);
        self.outboxes.subscribe(node)
    }

    /// Ends a subscription, unless a newer one has replaced it.
    pub fn unsubscribe(&mut self, subscription: &Subscription) {
        if self.outboxes.unsubscribe(subscription) {
            self.forget_if_unused(subscription.node());
        }
    }

    /// The Nodes that have something to take and were not returned since they last took.
    pub fn take_ready(&mut self) -> Vec<Subscription> {
        if self.is_synced() { self.outboxes.take_ready() } else { Vec::new() }
    }

    /// Takes what a Node has not received yet: its pending changes, or a snapshot if it is new or too many changes were pending.
    pub fn take(&mut self, subscription: &Subscription) -> Result<Option<Batch>, Superseded> {
        if !self.is_synced() {
            return Ok(None);
        }
        Ok(match self.outboxes.take(subscription)? {
            Pending::Nothing => None,
            Pending::Changes(changes) => Some(Batch { snapshot: false, changes }),
            Pending::Snapshot(node) => {
                Some(Batch { snapshot: true, changes: self.spans.snapshot(&self.selections, node) })
            }
        })
    }

    /// The invalid fields of a policy.
    pub fn problems(&self, name: &PolicyName) -> &[InvalidField] {
        match name.kind {
            PolicyKind::Kubernetes => self.spans.problems(name),
            PolicyKind::Antrea | PolicyKind::AntreaCluster => self.tiered.problems(&name.object),
        }
    }

    /// A policy, and the Nodes that have to enforce it. An Antrea policy that cannot be enforced, because of its Tier or its
    /// priority, has only [`Brain::problems`].
    pub fn policy(&self, name: &PolicyName) -> Option<(Arc<Policy>, Vec<Arc<str>>)> {
        self.spans.policy(name).map(|(policy, nodes)| (policy.clone(), self.nodes.sorted(nodes)))
    }

    /// All policies, and the Nodes that have to enforce each.
    pub fn policies(&self) -> impl Iterator<Item = (Arc<Policy>, Vec<Arc<str>>)> {
        self.spans.policies().map(|(policy, nodes)| (policy.clone(), self.nodes.sorted(nodes)))
    }

    /// All AppliedToGroups with the Pods of all Nodes, and the Nodes that need each.
    pub fn applied_to_groups(&self) -> impl Iterator<Item = (Group, Vec<Arc<str>>)> {
        self.spans.applied_to_groups(&self.selections).map(|(group, nodes)| (group, self.nodes.sorted(nodes)))
    }

    /// All AddressGroups, and the Nodes that need each.
    pub fn address_groups(&self) -> impl Iterator<Item = (Group, Vec<Arc<str>>)> {
        self.spans.address_groups(&self.selections).map(|(group, nodes)| (group, self.nodes.sorted(nodes)))
    }

    /// The size of the state.
    pub fn stats(&self) -> Stats {
        let (applied_to_groups, address_groups, policies) = self.spans.counts();
        Stats { applied_to_groups, address_groups, policies, nodes: self.nodes.len() }
    }

    /// Whether all tables are empty.
    pub fn is_empty(&self) -> bool {
        self.selections.is_empty() && self.tiered.is_empty() && self.stats() == Stats::default()
    }

    fn set_pod(&mut self, pod: Pod) -> Vec<InvalidField> {
        let (endpoint, problems) = Endpoint::read(pod);
        match endpoint {
            Ok(endpoint) => {
                let node = (!endpoint.node.is_empty()).then(|| self.nodes.intern(&endpoint.node));
                let delta = self.selections.set_pod(endpoint, node);
                self.apply_pod(&delta);
            }
            Err(name) => self.remove_pod(&name),
        }
        problems
    }

    fn remove_pod(&mut self, name: &ObjectName) {
        let delta = self.selections.remove_pod(name);
        self.apply_pod(&delta);
    }

    fn apply_pod(&mut self, delta: &PodDelta) {
        self.spans.pod_changed(&self.selections, delta, self.outboxes.audience(), &mut self.deliveries);
        self.outboxes.deliver(&mut self.deliveries);
        if let Some(node) = delta.from {
            self.forget_if_unused(node);
        }
    }

    fn set_namespace(&mut self, name: &str, labels: Option<&Labels>) -> Vec<InvalidField> {
        let (has_changed, delta) = self.selections.set_namespace(name, labels);
        self.spans.members_changed(&self.selections, &delta, self.outboxes.audience(), &mut self.deliveries);
        self.outboxes.deliver(&mut self.deliveries);
        if has_changed && self.is_synced() {
            return self.compile_tiered(self.tiered.namespaces_changed(), Vec::new());
        }
        self.is_stale |= has_changed;
        Vec::new()
    }

    fn set_entity(
        &mut self,
        name: ObjectName,
        entity: Option<EntityReading>,
        problems: Vec<InvalidField>,
    ) -> Vec<InvalidField> {
        let has_changed = self.tiered.set_entity(name, entity);
        if has_changed && self.is_synced() {
            return self.compile_tiered(self.tiered.entities_changed(), problems);
        }
        self.is_stale |= has_changed;
        problems
    }

    /// Compiles Antrea policies again. Returns `problems` and their new problems.
    fn compile_tiered(&mut self, policies: Vec<ObjectName>, mut problems: Vec<InvalidField>) -> Vec<InvalidField> {
        for name in policies {
            let (compiled, found) = self.tiered.compile(&mut self.selections, &name);
            problems.extend(found);
            self.set_tiered(name, compiled);
        }
        problems
    }

    /// Sets an Antrea policy, or removes it if it is not to be enforced.
    fn set_tiered(&mut self, name: ObjectName, compiled: Option<CompiledPolicy>) {
        let (selections, audience, deliveries) = (&self.selections, self.outboxes.audience(), &mut self.deliveries);
        let unused = match compiled {
            Some(compiled) => self.spans.set_policy(selections, compiled, audience, deliveries),
            None => self.spans.remove_policy(selections, &policy_name(name), audience, deliveries),
        };
        self.apply_policy(unused);
    }

    fn set_policy(&mut self, policy: NetworkPolicy) -> Vec<InvalidField> {
        let compiled = compile(&mut self.selections, policy);
        let problems = compiled.problems.clone();
        let audience = self.outboxes.audience();
        let unused = self.spans.set_policy(&self.selections, compiled, audience, &mut self.deliveries);
        self.apply_policy(unused);
        problems
    }

    fn apply_policy(&mut self, unused: Option<Uses>) {
        self.outboxes.deliver(&mut self.deliveries);
        if let Some(uses) = unused {
            uses.release(&mut self.selections);
        }
    }

    fn forget_if_unused(&mut self, node: NodeId) {
        if !self.selections.has_pods_on(node) && !self.outboxes.is_subscribed(node) {
            self.nodes.remove(node);
        }
    }
}

#[cfg(test)]
mod tests;
