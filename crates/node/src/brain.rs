//! From what is known to what should be.

mod enforcement;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use delta::{Exhausted, State};
use openflow::flow::Flow;
use pipeline::Pipeline;
use pipeline::tables::Table;
use types::control::GroupId;
use types::node::Node;
use types::service::{EndpointSlice, Service};
use types::{InvalidField, ObjectName};

use crate::addressing::{Own, local_addresses};
use crate::event::{Change, Event, Interface, Source};
use crate::host;
use crate::owner::{Owner, ServiceKey};
use crate::peers::{PeerNode, peers};
use crate::policies::Policies;
use crate::services::{Services, key};

/// Something that cannot be done as it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// A field of an object makes no sense.
    Field(InvalidField),
    /// There are more groups than the switch has numbers.
    Groups(ServiceKey, Exhausted),
    /// Two interfaces have one address: the first by name keeps it.
    Address(IpAddr, String, String),
    /// This Node's own addresses are others than those that the agent has started with.
    Restart(String),
    /// A policy names a group that the controller has not told of: what needs it is not allowed.
    Group(ObjectName, GroupId),
    /// There are more rules than the switch has numbers.
    Rules(Exhausted),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Field(field) => field.fmt(f),
            Problem::Groups(key, exhausted) => write!(f, "Service {key}: {exhausted}"),
            Problem::Address(address, loser, keeper) => {
                write!(f, "interface {loser}: its address {address} is that of {keeper}, which keeps it")
            }
            Problem::Restart(why) => write!(f, "{why}: the agent has to be restarted"),
            Problem::Group(policy, group) => {
                write!(f, "NetworkPolicy {policy}: its group {group} is not known yet; what needs it is not allowed")
            }
            Problem::Rules(exhausted) => write!(f, "NetworkPolicies: {exhausted}"),
        }
    }
}

/// What is known of the cluster and of this Node, and what follows from it for the switch and the host.
#[derive(Debug)]
pub struct Brain {
    own: Own,
    pipeline: Pipeline,
    synced: BTreeSet<Source>,
    nodes: BTreeMap<String, Node>,
    peers: BTreeMap<String, PeerNode>,
    node_problems: Vec<InvalidField>,
    interfaces: BTreeMap<String, Interface>,
    /// The interfaces that are connected, since the policies of their Pods are known.
    admitted: BTreeSet<String>,
    policies: Policies,
    policy_version: u64,
    /// Nobody enforces policies in this cluster.
    unpoliced: bool,
    services: BTreeMap<ObjectName, Box<Service>>,
    /// By Service, then by slice.
    slices: BTreeMap<ObjectName, BTreeMap<ObjectName, EndpointSlice>>,
    /// The Service that each slice is of.
    slice_owners: BTreeMap<ObjectName, ObjectName>,
    renderer: Services,
    rendered: BTreeMap<ObjectName, BTreeMap<ServiceKey, proxy::ServicePort>>,
    service_problems: BTreeMap<ObjectName, Vec<Problem>>,
    switch: State<Owner>,
    /// Counts changes of what the host should hold.
    host_version: u64,
}

impl Brain {
    /// Nothing is known but this Node.
    pub fn new(own: Own) -> Self {
        let pipeline = Pipeline::new(own.model());
        let mut switch = State::new(is_learned);
        switch.set_flows(&Owner::Node, pipeline.base());
        Self {
            own,
            pipeline,
            synced: BTreeSet::new(),
            nodes: BTreeMap::new(),
            peers: BTreeMap::new(),
            node_problems: Vec::new(),
            interfaces: BTreeMap::new(),
            admitted: BTreeSet::new(),
            policies: Policies::new(),
            policy_version: 0,
            unpoliced: false,
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            slice_owners: BTreeMap::new(),
            renderer: Services::default(),
            rendered: BTreeMap::new(),
            service_problems: BTreeMap::new(),
            switch,
            host_version: 1,
        }
    }

    /// This Node.
    pub fn own(&self) -> &Own {
        &self.own
    }

    /// What the switch should hold, and what is known of what it holds.
    pub fn switch(&mut self) -> &mut State<Owner> {
        &mut self.switch
    }

    /// The flows that the switch should hold.
    pub fn desired_flows(&self) -> impl Iterator<Item = Flow> + '_ {
        self.switch.desired_flows()
    }

    /// How many ports of Services, and how many endpoints of theirs, are balanced here: of IPv4 and of IPv6.
    pub fn service_counts(&self) -> ((usize, usize), (usize, usize)) {
        let of = |ipv6: bool| {
            let ports = self.rendered.values().flat_map(BTreeMap::values).filter(move |port| port.ipv6 == ipv6);
            ports.fold((0, 0), |(ports, endpoints), port| (ports + 1, endpoints + port.endpoints.len()))
        };
        let ((ports, endpoints), (ports6, endpoints6)) = (of(false), of(true));
        ((ports, ports6), (endpoints, endpoints6))
    }

    /// What the host should hold.
    pub fn host(&self) -> types::host::Desired {
        let ports = self.rendered.values().flat_map(BTreeMap::values);
        let known = host::Known {
            nodes: self.synced.contains(&Source::Nodes),
            services: self.knows_services() || !self.own.features.antrea_proxy,
        };
        host::desired(&self.own, &known, &self.peers, ports)
    }

    /// Grows whenever [`Brain::host`] may say something else.
    pub fn host_version(&self) -> u64 {
        self.host_version
    }

    /// Whether everything has been said, so that what nobody wants may be removed.
    pub fn is_synced(&self) -> bool {
        Source::ALL.iter().all(|source| self.synced.contains(source))
    }

    /// The sources that have not said everything yet.
    pub fn unsynced(&self) -> impl Iterator<Item = Source> {
        Source::ALL.into_iter().filter(|source| !self.synced.contains(source))
    }

    /// The Pods that are attached.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.values()
    }

    /// The other Nodes.
    pub fn peers(&self) -> &BTreeMap<String, PeerNode> {
        &self.peers
    }

    /// What cannot be done as it was asked, in order.
    pub fn problems(&self) -> Vec<Problem> {
        let nodes = self.node_problems.iter().cloned().map(Problem::Field);
        let own = self.nodes.get(&self.own.name).and_then(|node| self.own_problem(node));
        let services = self.service_problems.values().flatten().cloned();
        own.into_iter()
            .chain(nodes)
            .chain(services)
            .chain(self.address_problems())
            .chain(self.policy_problems())
            .collect()
    }

    /// Takes note of something.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Node(change) => self.node(change),
            Event::Service(change) => self.service(change),
            Event::EndpointSlice(change) => self.slice(change),
            Event::Attached(interface) => self.attached(interface),
            Event::Detached(name) => self.detached(&name),
            Event::Unpoliced => self.unpoliced(),
            Event::Synced(source) => self.source_synced(source),
        }
    }

    fn source_synced(&mut self, source: Source) {
        if !self.synced.insert(source) {
            return;
        }
        if source == Source::Nodes {
            self.find_peers();
        }
        if matches!(source, Source::Services | Source::EndpointSlices) && self.knows_services() {
            let all: Vec<ObjectName> = self.services.keys().cloned().collect();
            for service in all {
                self.render_service(&service);
            }
        }
        if matches!(source, Source::Policies | Source::Switch) {
            self.enforce_everything();
        }
        self.host_version += 1;
        if self.is_synced() {
            self.switch.allow_sweep();
            self.policies.swept();
        }
    }

    fn node(&mut self, change: Change<Node>) {
        let changed = match change {
            Change::Set(node) => {
                let name = node.metadata.name.clone();
                let before = self.nodes.get(&name);
                let same = before.is_some_and(|old| old.spec == node.spec && old.status == node.status);
                self.nodes.insert(name, node);
                !same
            }
            Change::Gone(name) => self.nodes.remove(&name.name).is_some(),
        };
        // Until all are known each is a peer that comes; to look for overlaps each time would cost a start its time.
        if changed && self.synced.contains(&Source::Nodes) {
            self.find_peers();
        }
    }

    fn find_peers(&mut self) {
        let (found, problems) = peers(&self.own, &self.nodes);
        let gone = self.peers.keys().filter(|name| !found.contains_key(*name));
        for name in gone {
            self.switch.remove(&Owner::Peer(name.clone()));
        }
        for (name, peer) in found.iter().filter(|(name, peer)| self.peers.get(*name) != Some(peer)) {
            let flows = peer.peers.iter().flat_map(|peer| self.pipeline.peer(peer));
            self.switch.set_flows(&Owner::Peer(name.clone()), flows);
        }
        if self.peers != found {
            self.peers = found;
            self.host_version += 1;
        }
        self.node_problems = problems;
    }

    /// Whether this Node is another one now.
    fn own_problem(&self, node: &Node) -> Option<Problem> {
        match local_addresses(node) {
            Err(problem) => Some(Problem::Field(problem)),
            Ok(addresses) if addresses != self.own.addresses => {
                Some(Problem::Restart(format!("Node {}: its addresses have changed", self.own.name)))
            }
            Ok(_) => None,
        }
    }

    fn attached(&mut self, interface: Interface) {
        let name = interface.name.clone();
        let before = self.interfaces.get(&name);
        if before == Some(&interface) {
            return;
        }
        if before.is_some_and(|before| before.pod != interface.pod || before.uid != interface.uid) {
            self.detached(&name);
        }
        let pod = interface.pod.clone();
        self.interfaces.insert(name.clone(), interface);
        self.enforce_for(&pod);
        self.connect(&name);
    }

    fn detached(&mut self, name: &str) {
        if let Some(interface) = self.interfaces.remove(name) {
            self.admitted.remove(name);
            self.switch.remove(&Owner::Interface(name.to_owned()));
            self.switch.remove(&Owner::Isolation(name.to_owned()));
            self.enforce_for(&interface.pod);
        }
    }

    fn address_problems(&self) -> Vec<Problem> {
        let mut keepers: BTreeMap<IpAddr, &str> = BTreeMap::new();
        let mut problems = Vec::new();
        for interface in self.interfaces.values() {
            for address in &interface.addresses {
                let keeper = keepers.entry(*address).or_insert(&interface.name);
                if *keeper != interface.name {
                    problems.push(Problem::Address(*address, interface.name.clone(), (*keeper).to_owned()));
                }
            }
        }
        problems
    }

    fn service(&mut self, change: Change<Box<Service>>) {
        let name = match change {
            Change::Set(service) => {
                let name = service.metadata.object_name();
                self.services.insert(name.clone(), service);
                name
            }
            Change::Gone(name) => {
                self.services.remove(&name);
                name
            }
        };
        self.render_service(&name);
    }

    fn slice(&mut self, change: Change<EndpointSlice>) {
        let (slice, now) = match change {
            Change::Set(slice) => (slice.metadata.object_name(), Some(slice)),
            Change::Gone(slice) => (slice, None),
        };
        let service = now.as_ref().and_then(|now| {
            let name = now.service_name()?.to_owned();
            Some(ObjectName { namespace: slice.namespace.clone(), name })
        });
        let before = match &service {
            Some(service) => self.slice_owners.insert(slice.clone(), service.clone()),
            None => self.slice_owners.remove(&slice),
        };
        if let Some(before) = before.filter(|before| Some(before) != service.as_ref()) {
            self.drop_slice(&before, &slice);
            self.render_service(&before);
        }
        if let (Some(service), Some(now)) = (service, now) {
            self.slices.entry(service.clone()).or_default().insert(slice, now);
            self.render_service(&service);
        }
    }

    fn drop_slice(&mut self, service: &ObjectName, slice: &ObjectName) {
        if let Some(slices) = self.slices.get_mut(service) {
            slices.remove(slice);
            if slices.is_empty() {
                self.slices.remove(service);
            }
        }
    }

    fn knows_services(&self) -> bool {
        self.own.features.antrea_proxy
            && self.synced.contains(&Source::Services)
            && self.synced.contains(&Source::EndpointSlices)
    }

    fn render_service(&mut self, name: &ObjectName) {
        if !self.knows_services() {
            return;
        }
        let computed = match self.services.get(name) {
            Some(service) => {
                let slices = self.slices.get(name).into_iter().flat_map(BTreeMap::values);
                proxy::compute(service, slices, &self.own.name)
            }
            None => proxy::Computed::default(),
        };
        let mut problems: Vec<Problem> = computed.errors.into_iter().map(Problem::Field).collect();
        let own = self.own.own_addresses();
        let before = self.rendered.remove(name).unwrap_or_default();
        let mut now = BTreeMap::new();
        for port in computed.ports {
            let key = key(&port);
            if before.get(&key) != Some(&port) {
                let owner = Owner::Service(key.clone());
                match self.renderer.render(&self.pipeline, &port, &own) {
                    Ok(rendered) => {
                        self.switch.set_groups(&owner, rendered.groups);
                        self.switch.set_flows(&owner, rendered.flows);
                    }
                    Err(exhausted) => problems.push(Problem::Groups(key.clone(), exhausted)),
                }
                if before.get(&key).map(|port| &port.frontends) != Some(&port.frontends) {
                    self.host_version += 1;
                }
            }
            now.insert(key, port);
        }
        for key in before.into_keys().filter(|key| !now.contains_key(key)) {
            self.renderer.forget(&key);
            self.switch.remove(&Owner::Service(key));
            self.host_version += 1;
        }
        if !now.is_empty() {
            self.rendered.insert(name.clone(), now);
        }
        if problems.is_empty() {
            self.service_problems.remove(name);
        } else {
            self.service_problems.insert(name.clone(), problems);
        }
    }
}

/// Whether a flow is one that the switch has made: what a client's affinity is remembered by.
fn is_learned(flow: &Flow) -> bool {
    flow.table == Table::SessionAffinity.id() && flow.hard_timeout > 0
}
