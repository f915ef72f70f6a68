//! From a NetworkPolicy to the policy that Nodes get: selectors become selections, which are acquired here.

use std::mem::take;
use std::sync::Arc;

use selector::{IdSet, Selector};
use smallvec::SmallVec;
use types::control::{Direction, GroupId, Order, Peers, Policy, PolicyName, Rule, Service};
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
    pub(super) applied_to: AppliedToGroups,
    /// The AddressGroups that its rules name, without duplicates.
    pub(super) addresses: SmallVec<[SelectionId; 2]>,
}

/// The AppliedToGroups of a policy.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum AppliedToGroups {
    /// It needs all AddressGroups of the policy. Most policies have one, and no memory for more.
    One(SelectionId),
    Several(Box<Several>),
}

/// Any number of AppliedToGroups.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Several {
    /// Sorted and without duplicates.
    pub(super) groups: Vec<SelectionId>,
    /// AppliedToGroups, with each AddressGroup that they need.
    pub(super) links: Vec<(SelectionId, SelectionId)>,
}

impl Uses {
    /// The AppliedToGroups, sorted and without duplicates.
    pub(super) fn applied_to(&self) -> &[SelectionId] {
        match &self.applied_to {
            AppliedToGroups::One(group) => std::slice::from_ref(group),
            AppliedToGroups::Several(several) => &several.groups,
        }
    }

    /// AppliedToGroups, with each AddressGroup that they need.
    pub(super) fn links(&self) -> impl Iterator<Item = (SelectionId, SelectionId)> {
        let (one, several) = match &self.applied_to {
            AppliedToGroups::One(group) => (Some(*group), &[][..]),
            AppliedToGroups::Several(several) => (None, &several.links[..]),
        };
        let of_one = one.into_iter().flat_map(|group| self.addresses.iter().map(move |address| (group, *address)));
        of_one.chain(several.iter().copied())
    }

    pub(super) fn release(&self, selections: &mut Selections) {
        for selection in self.applied_to().iter().chain(&self.addresses) {
            selections.release(*selection);
        }
    }
}

/// Reads a NetworkPolicy and acquires the selections that it names.
pub(super) fn compile(selections: &mut Selections, mut written: NetworkPolicy) -> CompiledPolicy {
    let metadata = &mut written.metadata;
    let name = ObjectName { namespace: take(&mut metadata.namespace), name: take(&mut metadata.name) };
    let reading = Reading::new(&name, &written);
    let applied_to = selections.acquire(&name.namespace, &reading.applied_to);
    let mut compiler = Compiler::new(selections);
    let rules = reading.rules.into_iter().map(|rule| compiler.rule(&name.namespace, rule)).collect();
    let uses = Uses { applied_to: AppliedToGroups::One(applied_to), addresses: compiler.addresses };
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

/// Acquires the AddressGroups of a policy, each once.
pub(super) struct Compiler<'a> {
    pub(super) selections: &'a mut Selections,
    pub(super) addresses: SmallVec<[SelectionId; 2]>,
    /// The same, to find them.
    acquired: IdSet<SelectionId>,
    /// The AddressGroups of the last rule.
    pub(super) used: SmallVec<[SelectionId; 2]>,
}

impl<'a> Compiler<'a> {
    pub(super) fn new(selections: &'a mut Selections) -> Self {
        Self { selections, addresses: SmallVec::new(), acquired: IdSet::default(), used: SmallVec::new() }
    }

    /// A rule that allows; `own` is the namespace of selectors without namespaces.
    pub(super) fn rule(&mut self, own: &str, read: ReadRule) -> Rule {
        self.used.clear();
        let has_blocks = read.peers.as_ref().is_none_or(|peers| !peers.blocks.is_empty());
        let peers = read.peers.map(|peers| Peers {
            groups: peers.selected.iter().map(|selected| self.address_group(own, selected)).collect(),
            blocks: peers.blocks,
        });
        let mut services = read.services;
        // Egress to an ipBlock or to any peer by named port: the Node needs all Pods that define this port name.
        if read.direction == Direction::Egress && has_blocks {
            for service in services.iter_mut().flatten() {
                if let Service::Named { protocol, name, known_by } = service {
                    let pods = Selector::having(port_key(*protocol, name));
                    *known_by = Some(self.address_group(own, &Selected { pods, ..Selected::everyone() }));
                }
            }
        }
        Rule::allow(read.direction, read.index, peers, services)
    }

    fn address_group(&mut self, own: &str, selected: &Selected) -> GroupId {
        let selection = self.selections.acquire(own, selected);
        if self.acquired.insert(selection) {
            self.addresses.push(selection);
        } else {
            self.selections.release(selection);
        }
        self.used.push(selection);
        self.selections.group_id(selection)
    }
}
