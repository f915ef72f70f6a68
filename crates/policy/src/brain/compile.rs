//! From a NetworkPolicy to the policy that Nodes get: selectors become selections, which are acquired here.

use std::mem::take;
use std::sync::Arc;

use selector::Selector;
use smallvec::SmallVec;
use types::control::{Action, Direction, GroupId, Order, Peers, Policy, PolicyName, Rule, Service};
use types::network_policy::NetworkPolicy;
use types::{InvalidField, ObjectName};

use super::selections::{SelectionId, Selections};
use crate::endpoint::port_key;
use crate::reading::{ReadRule, Reading, Selected};

/// A policy with the selections that it uses. They are acquired, and have to be released once.
#[derive(Clone, Debug)]
pub(super) struct CompiledPolicy {
    pub(super) policy: Arc<Policy>,
    pub(super) uses: Uses,
    pub(super) problems: Vec<InvalidField>,
}

/// The selections of a policy.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Uses {
    pub(super) applied_to: SelectionId,
    /// The AddressGroups that its rules name, without duplicates.
    pub(super) addresses: SmallVec<[SelectionId; 2]>,
}

impl Uses {
    pub(super) fn release(&self, selections: &mut Selections) {
        selections.release(self.applied_to);
        for address in &self.addresses {
            selections.release(*address);
        }
    }
}

/// Reads a NetworkPolicy and acquires the selections that it names.
pub(super) fn compile(selections: &mut Selections, mut written: NetworkPolicy) -> CompiledPolicy {
    let metadata = &mut written.metadata;
    let name = ObjectName { namespace: take(&mut metadata.namespace), name: take(&mut metadata.name) };
    let reading = Reading::new(&name, &written);
    let applied_to = selections.acquire(&name.namespace, &reading.applied_to);
    let uses = Uses { applied_to, addresses: SmallVec::new() };
    let mut compiler = Compiler { selections, own: &name.namespace, uses };
    let rules = reading.rules.into_iter().map(|rule| compiler.rule(rule)).collect();
    let uses = compiler.uses;
    let policy = Policy {
        name: PolicyName::kubernetes(name),
        uid: written.metadata.uid,
        generation: written.metadata.generation,
        order: Order::Kubernetes(reading.isolates),
        applied_to: vec![selections.group_id(applied_to)],
        rules,
    };
    CompiledPolicy { policy: Arc::new(policy), uses, problems: reading.problems }
}

struct Compiler<'a> {
    selections: &'a mut Selections,
    /// The namespace of the policy.
    own: &'a str,
    uses: Uses,
}

impl Compiler<'_> {
    fn rule(&mut self, read: ReadRule) -> Rule {
        let has_blocks = read.peers.as_ref().is_none_or(|peers| !peers.blocks.is_empty());
        let peers = read.peers.map(|peers| Peers {
            groups: peers.selected.iter().map(|selected| self.address_group(selected)).collect(),
            blocks: peers.blocks,
        });
        let mut services = read.services;
        // Egress to an ipBlock or to any peer by named port: the Node needs all Pods that define this port name.
        if read.direction == Direction::Egress && has_blocks {
            for service in services.iter_mut().flatten() {
                if let Service::Named { protocol, name, known_by } = service {
                    let pods = Selector::having(port_key(*protocol, name));
                    *known_by = Some(self.address_group(&Selected { pods, ..Selected::everyone() }));
                }
            }
        }
        let ReadRule { direction, index, .. } = read;
        Rule { direction, index, name: String::new(), action: Action::Allow, applied_to: None, peers, services }
    }

    fn address_group(&mut self, selected: &Selected) -> GroupId {
        let selection = self.selections.acquire(self.own, selected);
        if self.uses.addresses.contains(&selection) {
            self.selections.release(selection);
        } else {
            self.uses.addresses.push(selection);
        }
        self.selections.group_id(selection)
    }
}
