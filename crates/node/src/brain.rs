//! From what is known to what should be.

mod enforcement;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use delta::{Exhausted, State};
use openflow::flow::Flow;
use pipeline::Pipeline;
use pipeline::model::ServiceGroup;
use pipeline::tables::Table;
use types::control::GroupId;
use types::node::{Node, TRANSPORT_ADDRESSES};
use types::{InvalidField, ObjectName};

use crate::addressing::{Own, local_addresses};
use crate::event::{Change, Event, Interface, Source};
use crate::host;
use crate::owner::{Owner, ServiceKey};
use crate::peers::{PeerNode, peers};
use crate::policies::Policies;
use crate::services::{Catalogue, Connections, Surroundings, Versions};

/// The label with the zone that a Node is in.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Something that cannot be done as it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// A field of an object makes no sense.
    Field(InvalidField),
    /// There are more groups than the switch has numbers.
    Groups(Arc<ServiceKey>, Exhausted),
    /// A Service has more endpoints than a group of the switch can have: so many get no connections from this Node.
    Endpoints(Arc<ServiceKey>, usize),
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
            Problem::Endpoints(key, left_out) => write!(
                f,
                "Service {key}: {left_out} of its endpoints get no connections from this Node, as a switch takes {} a \
                 Service; other Nodes use others",
                ServiceGroup::MAX_ENDPOINTS
            ),
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
    /// Pods that came, moved or went while what is told of policies was not whole.
    moved: BTreeSet<ObjectName>,
    /// Nobody enforces policies in this cluster.
    unpoliced: bool,
    services: Catalogue,
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
            moved: BTreeSet::new(),
            unpoliced: false,
            services: Catalogue::default(),
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
            let ports = self.services.ports().filter(move |port| port.ipv6 == ipv6);
            ports.fold((0, 0), |(ports, endpoints), port| (ports + 1, endpoints + port.reachable().len()))
        };
        let ((ports, endpoints), (ports6, endpoints6)) = (of(false), of(true));
        ((ports, ports6), (endpoints, endpoints6))
    }

    /// What the host should hold.
    pub fn host(&self) -> types::host::Desired {
        let known = host::Known {
            nodes: self.synced.contains(&Source::Nodes),
            services: self.knows_services() || !self.own.features.antrea_proxy,
        };
        host::desired(&self.own, &known, &self.peers, self.services.ports())
    }

    /// Grows whenever [`Brain::host`] may say something else.
    pub fn host_version(&self) -> u64 {
        self.host_version + self.services.versions().frontends
    }

    /// Grow whenever what is said of Services may be something else.
    pub fn service_versions(&self) -> Versions {
        self.services.versions()
    }

    /// Which connections the switch and the host should forget; nothing while it is not known.
    pub fn connections(&self) -> Option<Connections> {
        self.knows_services().then(|| Connections::new(&self.own, self.services.ports()))
    }

    /// What load balancers ask this Node, by Service.
    pub fn health_checks(&self) -> &BTreeMap<ObjectName, proxy::HealthCheck> {
        self.services.health_checks()
    }

    /// Whether this Node is about to go, so that load balancers should send no new connections to it.
    pub fn is_leaving(&self) -> bool {
        self.nodes.get(&self.own.name).is_some_and(|node| node.metadata.deletion_timestamp.is_some())
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
        let services = self.services.problems().cloned();
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
            Event::Service(change) => {
                let service = self.services.service(change);
                self.render_services([service]);
            }
            Event::EndpointSlice(change) => {
                let services = self.services.slice(change);
                self.render_services(services);
            }
            Event::Attached(interface) => self.attached(interface),
            Event::Detached(name) => self.detached(&name),
            Event::Unpoliced => self.unpoliced(),
            Event::Policed => self.policed(),
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
        if source.tells_of_services() {
            self.render_services(self.services.names());
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
        let zone = self.zone();
        let changed = match change {
            Change::Set(node) => {
                let name = node.metadata.name.clone();
                let before = self.nodes.get(&name);
                let transport = |node: &Node| node.metadata.annotations.get(TRANSPORT_ADDRESSES).cloned();
                let same = before.is_some_and(|old| {
                    old.spec == node.spec && old.status == node.status && transport(old) == transport(&node)
                });
                self.nodes.insert(name, node);
                !same
            }
            Change::Gone(name) => self.nodes.remove(&name.name).is_some(),
        };
        // Until all are known each is a peer that comes; to look for overlaps each time would cost a start its time.
        if changed && self.synced.contains(&Source::Nodes) {
            self.find_peers();
        }
        if zone != self.zone() {
            self.render_services(self.services.names());
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
        let before = self.interfaces.insert(name.clone(), interface);
        let is_moved = before.zip(self.interfaces.get(&name)).is_some_and(|(before, now)| before.port != now.port);
        if is_moved && !self.knows_policies() {
            // What keeps others from it is about the port that it had.
            self.admitted.remove(&name);
            self.switch.remove(&Owner::Interface(name.clone()));
        }
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

    fn knows_services(&self) -> bool {
        let told = Source::ALL.into_iter().filter(|source| source.tells_of_services());
        self.own.features.antrea_proxy && told.into_iter().all(|source| self.synced.contains(&source))
    }

    /// The zone that this Node is in.
    fn zone(&self) -> Option<String> {
        self.nodes.get(&self.own.name)?.metadata.labels.get(ZONE_LABEL).cloned()
    }

    fn render_services(&mut self, services: impl IntoIterator<Item = ObjectName>) {
        if !self.knows_services() {
            return;
        }
        let zone = self.zone();
        let (own, pipeline, switch) = (&self.own, &self.pipeline, &mut self.switch);
        let mut around = Surroundings { own, zone: zone.as_deref(), pipeline, switch };
        for service in services {
            self.services.render(&service, &mut around);
        }
    }
}

/// Whether a flow is one that the switch has made: what a client's affinity is remembered by.
fn is_learned(flow: &Flow) -> bool {
    flow.table == Table::SessionAffinity.id() && flow.hard_timeout > 0
}
