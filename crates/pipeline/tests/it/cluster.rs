//! A Node with all its objects, compiled together.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use openflow::action::Action;
use openflow::flow::Flow;
use openflow::group::Group;
use openflow::matching::Match;
use pipeline::Pipeline;
use pipeline::model::{Applied, Direction, Node, Peer, PeerPath, Pod, Protocol, Rule, ServiceFrontend, ServiceGroup};

/// A Service: its frontends and their groups.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) protocol: Protocol,
    pub(crate) frontends: Vec<ServiceFrontend>,
    pub(crate) groups: Vec<ServiceGroup>,
}

/// All objects that a Node has flows for.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) node: Node,
    pub(crate) pods: Vec<Pod>,
    pub(crate) peers: Vec<Peer>,
    /// Further addresses of peers, by their tunnel address.
    pub(crate) other_addresses: Vec<(IpAddr, IpAddr)>,
    pub(crate) services: Vec<Service>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) isolated: Vec<(Direction, Applied)>,
}

/// Distance between the number of a group and that of the same group for fragments.
const FOR_FRAGMENTS: u32 = 10_000;

/// The identity of a flow in the switch.
pub(crate) type Key = (u8, u16, Match);
pub(crate) type Flows = BTreeMap<Key, Flow>;

impl Cluster {
    /// A Node without Pods, peers, Services and rules.
    pub(crate) fn new(node: Node) -> Self {
        let (pods, peers, other_addresses, services, rules, isolated) = Default::default();
        Self { node, pods, peers, other_addresses, services, rules, isolated }
    }

    pub(crate) fn pipeline(&self) -> Pipeline {
        Pipeline::new(self.node.clone())
    }

    /// Every flow, with clauses of rules merged. Panics if two compilers give one flow different actions.
    pub(crate) fn flows(&self) -> Flows {
        let compiler = self.pipeline();
        let mut flows = compiler.base();
        flows.extend(self.pods.iter().flat_map(|pod| compiler.pod(pod)));
        flows.extend(self.peers.iter().flat_map(|peer| compiler.peer(peer)));
        for (addresses, subnets) in self.peer_nodes() {
            flows.extend(compiler.peer_node(&addresses, &subnets));
        }
        for service in &self.services {
            let endpoints = service.groups.iter().flat_map(|group| &group.endpoints);
            flows.extend(endpoints.flat_map(|endpoint| compiler.endpoint(service.protocol, endpoint)));
        }
        let frontends = self.services.iter().flat_map(|service| service.frontends.iter().map(move |f| (service, f)));
        for (cookie, (service, frontend)) in (1..).zip(frontends) {
            flows.extend(compiler.frontend(frontend, cookie));
            if compiler.serves_fragments(service.protocol) {
                let for_fragments = |id: u32| id + FOR_FRAGMENTS;
                let (group, in_cluster_group) = (frontend.group, frontend.in_cluster_group);
                let (group, in_cluster_group) = (group.map(for_fragments), in_cluster_group.map(for_fragments));
                flows.extend(
                    compiler.fragments(&ServiceFrontend { group, in_cluster_group, ..frontend.clone() }, cookie),
                );
            }
            if frontend.affinity.is_some() {
                let endpoints = service.groups.iter().flat_map(|group| &group.endpoints).copied().collect();
                flows.extend(compiler.remembered(frontend, &endpoints, cookie));
            }
        }
        flows.extend(self.rules.iter().flat_map(|rule| compiler.rule(rule)));
        flows.extend(self.isolated.iter().flat_map(|(direction, pod)| compiler.isolated(*direction, pod)));
        merge(flows)
    }

    /// The tunnel peers, with their addresses and Pod subnets.
    fn peer_nodes(&self) -> Vec<(BTreeSet<IpAddr>, Vec<Peer>)> {
        let mut nodes: BTreeMap<IpAddr, Vec<Peer>> = BTreeMap::new();
        for peer in &self.peers {
            if let PeerPath::Tunnel(node) = peer.path {
                nodes.entry(node).or_default().push(*peer);
            }
        }
        let with_others = |(node, subnets)| {
            let others = self.other_addresses.iter().filter(|(of, _)| *of == node).map(|(_, other)| *other);
            (others.chain([node]).collect(), subnets)
        };
        nodes.into_iter().map(with_others).collect()
    }

    /// Every group, by its id.
    pub(crate) fn groups(&self) -> BTreeMap<u32, Group> {
        let compiler = self.pipeline();
        let mut groups = BTreeMap::new();
        for service in &self.services {
            for group in &service.groups {
                groups.insert(group.id, compiler.group(group));
                if compiler.serves_fragments(service.protocol) {
                    let group = ServiceGroup { id: group.id + FOR_FRAGMENTS, ..group.clone() };
                    groups.insert(group.id, compiler.fragment_group(&group));
                }
            }
        }
        groups
    }
}

pub(crate) fn key(flow: &Flow) -> Key {
    (flow.table, flow.priority, flow.matches.clone())
}

/// Whether all actions of the flow are clauses of rules.
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
