//! A Node with all there is on it, compiled as a whole.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use openflow::action::Action;
use openflow::flow::Flow;
use openflow::group::Group;
use openflow::matching::Match;
use pipeline::Pipeline;
use pipeline::model::{Applied, Direction, Frontend, Node, Peer, Pod, Protocol, Rule, ServiceGroup};

/// A Service: the ways into it, and the groups that they name.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) protocol: Protocol,
    pub(crate) frontends: Vec<Frontend>,
    pub(crate) groups: Vec<ServiceGroup>,
}

/// All that a Node has to know.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) node: Node,
    pub(crate) pods: Vec<Pod>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) services: Vec<Service>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) isolated: Vec<(Direction, Applied)>,
}

/// What makes two flows the same one to the switch.
pub(crate) type Key = (u8, u16, Match);
pub(crate) type Flows = BTreeMap<Key, Flow>;

impl Cluster {
    /// A Node where there is nothing yet.
    pub(crate) fn new(node: Node) -> Self {
        let (pods, peers, services, rules, isolated) = Default::default();
        Self { node, pods, peers, services, rules, isolated }
    }

    pub(crate) fn pipeline(&self) -> Pipeline {
        Pipeline::new(self.node.clone())
    }

    /// Every flow. Clauses of rules are joined; that two compilers want different things of one flow is an error.
    pub(crate) fn flows(&self) -> Flows {
        let compiler = self.pipeline();
        let mut flows = compiler.base();
        flows.extend(self.pods.iter().flat_map(|pod| compiler.pod(pod)));
        flows.extend(self.peers.iter().flat_map(|peer| compiler.peer(peer)));
        for service in &self.services {
            let endpoints = service.groups.iter().flat_map(|group| &group.endpoints);
            flows.extend(endpoints.flat_map(|endpoint| compiler.endpoint(service.protocol, endpoint)));
        }
        let frontends = self.services.iter().flat_map(|service| service.frontends.iter().map(move |f| (service, f)));
        for (cookie, (service, frontend)) in (1..).zip(frontends) {
            flows.extend(compiler.frontend(frontend, cookie));
            if frontend.affinity.is_some() {
                let endpoints = service.groups.iter().flat_map(|group| &group.endpoints).copied().collect();
                flows.extend(compiler.remembered(frontend, &endpoints, cookie));
            }
        }
        flows.extend(self.rules.iter().flat_map(|rule| compiler.rule(rule)));
        flows.extend(self.isolated.iter().flat_map(|(direction, pod)| compiler.isolated(*direction, pod)));
        merge(flows)
    }

    /// Every group, by its number.
    pub(crate) fn groups(&self) -> BTreeMap<u32, Group> {
        let groups = self.services.iter().flat_map(|service| &service.groups);
        groups.map(|group| (group.id, self.pipeline().group(group))).collect()
    }
}

pub(crate) fn key(flow: &Flow) -> Key {
    (flow.table, flow.priority, flow.matches.clone())
}

/// Whether the flow is nothing but clauses of rules.
pub(crate) fn is_clause(flow: &Flow) -> bool {
    !flow.actions.is_empty() && flow.actions.iter().all(|action| matches!(action, Action::Conjunction { .. }))
}

fn merge(flows: Vec<Flow>) -> Flows {
    let mut merged = Flows::new();
    for flow in flows {
        match merged.entry(key(&flow)) {
            Entry::Vacant(entry) => {
                entry.insert(flow);
            }
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                if is_clause(known) && is_clause(&flow) {
                    let new = flow.actions.into_iter().filter(|action| !known.actions.contains(action));
                    let new: Vec<_> = new.collect();
                    known.actions.extend(new);
                } else {
                    assert_eq!(*known, flow, "one flow is compiled twice, and not to the same");
                }
            }
        }
    }
    merged
}
