//! Computes desired state from events.

mod checkpoint;
mod controller;
mod convergence;
mod enforcement;
mod pods;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use delta::{Exhausted, State};
use openflow::flow::Flow;
use pipeline::Pipeline;
use pipeline::model::ServiceGroup;
use pipeline::tables::Table;
use types::control::{GroupId, PolicyName};
use types::node::{Node, TRANSPORT_ADDRESSES};
use types::{InvalidField, ObjectName};

use crate::addressing::{Own, local_addresses};
use crate::attachments::Attachments;
use crate::controller_link::ControllerLink;
use crate::effect::{Effect, Notice};
use crate::event::{Change, Event, Interface, Source, Time};
use crate::host;
use crate::owner::{Owner, ServiceKey};
use crate::peers::{ControlEndpoints, PeerNode, Survey, survey};
use crate::policies::Policies;
use crate::services::{Catalogue, Connections, RenderContext, Versions};
use crate::tunnels::Tunnels;
use crate::underlay::Underlay;
pub use checkpoint::Resume;
use convergence::Convergence;

/// Well-known label with the Node's zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// A part of the desired state that cannot be realised, for the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// A field of an object is invalid.
    Field(InvalidField),
    /// More groups than the switch has group numbers.
    Groups(Arc<ServiceKey>, Exhausted),
    /// A Service has more endpoints than fit into a group: this many get no connections from this Node.
    Endpoints(Arc<ServiceKey>, usize),
    /// Two interfaces have the same address: the first by name keeps it.
    Address(IpAddr, String, String),
    /// This Node's addresses differ from those at the agent's start.
    Restart(String),
    /// A policy names a group that the controller has not sent: connections that need it are denied.
    Group(PolicyName, GroupId),
    /// A tier table has more levels than OpenFlow priorities, so the last ones share a priority.
    Order(PolicyName),
    /// More rules than the switch has conjunction numbers.
    Rules(Exhausted),
    /// Tunnels cannot work on this Node.
    Tunnels(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Field(field) => field.fmt(f),
            Problem::Groups(key, exhausted) => write!(f, "Service {key}: {exhausted}"),
            Problem::Endpoints(key, left_out) => write!(
                f,
                "Service {key}: {left_out} endpoints get no connections from this Node: the limit is {} per Service; other \
                 Nodes use a different subset",
                ServiceGroup::MAX_ENDPOINTS
            ),
            Problem::Address(address, loser, keeper) => {
                write!(f, "interface {loser}: address {address} is in use by interface {keeper}, which keeps it")
            }
            Problem::Restart(why) => write!(f, "{why}: restart the agent"),
            Problem::Group(policy, group) => {
                write!(f, "{policy}: group {group} has not arrived yet; connections that need it are denied")
            }
            Problem::Order(policy) => write!(
                f,
                "{policy}: the order of its rules is undefined: rules with more than {} different priorities apply to Pods \
                 of this Node; use equal priorities for policies that do not overlap",
                pipeline::TIER_PRIORITIES.len()
            ),
            Problem::Rules(exhausted) => write!(f, "NetworkPolicies: {exhausted}"),
            Problem::Tunnels(why) => write!(f, "Pods of other Nodes are unreachable: {why}"),
        }
    }
}

/// State of the cluster and of this Node, and the desired state of the switch and the host computed from it.
#[derive(Debug)]
pub struct Brain {
    own: Own,
    pipeline: Pipeline,
    synced: BTreeSet<Source>,
    nodes: BTreeMap<String, Node>,
    peers: BTreeMap<String, PeerNode>,
    underlay: Underlay,
    /// Endpoints of the Kubernetes API and of the controller.
    endpoints: ControlEndpoints,
    node_problems: Vec<InvalidField>,
    interfaces: BTreeMap<String, Interface>,
    /// Connected interfaces: the policies of their Pods are known.
    admitted: BTreeSet<String>,
    policies: Policies,
    policy_version: u64,
    /// Pods that were attached, moved or detached while the policies were incomplete.
    moved: BTreeSet<ObjectName>,
    /// There is no controller in this cluster.
    without_controller: bool,
    services: Catalogue,
    switch: State<Owner>,
    /// Increases with every change of the host's desired state.
    host_version: u64,
    /// Increases with every change of the tunnels to other Nodes.
    tunnel_version: u64,
    convergence: Convergence,
    controller: ControllerLink,
    attachments: Attachments,
    effects: Vec<Effect>,
    /// Time of the last step.
    now: Time,
}

impl Brain {
    /// A brain that has not handled any event.
    pub fn new(own: Own) -> Self {
        let pipeline = Pipeline::new(own.model());
        let mut switch = State::new(is_learned);
        switch.set_flows(&Owner::Node, pipeline.base());
        let underlay = Underlay::of(&own);
        let controller = ControllerLink::new(&own.name);
        Self {
            own,
            pipeline,
            synced: BTreeSet::new(),
            nodes: BTreeMap::new(),
            peers: BTreeMap::new(),
            underlay,
            endpoints: ControlEndpoints::default(),
            node_problems: Vec::new(),
            interfaces: BTreeMap::new(),
            admitted: BTreeSet::new(),
            policies: Policies::new(),
            policy_version: 0,
            moved: BTreeSet::new(),
            without_controller: false,
            services: Catalogue::default(),
            switch,
            host_version: 1,
            tunnel_version: 1,
            convergence: Convergence::default(),
            controller,
            attachments: Attachments::default(),
            effects: Vec::new(),
            now: Time::ZERO,
        }
    }

    /// This Node's configuration and addresses.
    pub fn own(&self) -> &Own {
        &self.own
    }

    /// The flows that the switch should have.
    pub fn desired_flows(&self) -> impl Iterator<Item = Flow> + '_ {
        self.switch.desired_flows()
    }

    /// The flows that the switch should have, each with its owners.
    pub fn flows(&self) -> impl Iterator<Item = (Flow, Vec<Owner>)> + '_ {
        self.switch.owned_flows()
    }

    /// The groups that the switch should have, each with its owners.
    pub fn groups(&self) -> impl Iterator<Item = (openflow::group::Group, Vec<Owner>)> + '_ {
        self.switch.owned_groups()
    }

    /// The owner of a flow or group in the words of Kubernetes: `Pod default/web`, `NetworkPolicy default/web ingress[0]`.
    pub fn owner_name(&self, owner: &Owner) -> String {
        let pod = |interface: &str| {
            let attached = self.interfaces.get(interface);
            attached.map_or_else(|| format!("interface {interface}"), |attached| format!("Pod {}", attached.pod))
        };
        match owner {
            Owner::Node => "Node".to_owned(),
            Owner::Interface(name) => pod(name),
            Owner::Peer(name) => format!("Node {name}"),
            Owner::Service(key) => format!("Service {key}"),
            Owner::Rule(id) => match self.rule(*id) {
                Some(rule) => format!("{} {rule} ({id})", rule.policy),
                None => format!("rule {id}"),
            },
            Owner::Isolation(name) => format!("isolation of {}", pod(name)),
        }
    }

    /// Number of Service ports and of their endpoints that this Node serves: for IPv4 and for IPv6.
    pub fn service_counts(&self) -> ((usize, usize), (usize, usize)) {
        let of = |ipv6: bool| {
            let ports = self.services.ports().filter(move |port| port.ipv6 == ipv6);
            ports.fold((0, 0), |(ports, endpoints), port| (ports + 1, endpoints + port.reachable().len()))
        };
        let ((ports, endpoints), (ports6, endpoints6)) = (of(false), of(true));
        ((ports, ports6), (endpoints, endpoints6))
    }

    /// The desired state of the host.
    pub fn host(&self) -> types::host::Desired {
        let known = host::Known {
            nodes: self.synced.contains(&Source::Nodes),
            services: self.knows_services() || !self.own.features.antrea_proxy,
        };
        host::desired(&self.own, &known, (&self.peers, &self.underlay), self.services.ports())
    }

    /// Increases whenever [`Brain::host`] may have changed.
    pub fn host_version(&self) -> u64 {
        self.host_version + self.services.versions().frontends
    }

    /// The tunnels to other Nodes, if they end in the userspace datapath.
    pub fn tunnels(&self) -> Option<Tunnels> {
        Tunnels::new(&self.own, &self.peers, self.synced.contains(&Source::Nodes))
    }

    /// Increases whenever [`Brain::tunnels`] may have changed.
    pub fn tunnel_version(&self) -> u64 {
        self.tunnel_version
    }

    /// Increase whenever the results for Services may have changed.
    pub fn service_versions(&self) -> Versions {
        self.services.versions()
    }

    /// Which connections the switch and the host should delete; `None` before the initial sync.
    pub fn connections(&self) -> Option<Connections> {
        self.knows_services().then(|| Connections::new(&self.own, self.services.ports()))
    }

    /// Health checks for load balancers, by Service.
    pub fn health_checks(&self) -> &BTreeMap<ObjectName, proxy::HealthCheck> {
        self.services.health_checks()
    }

    /// Whether this Node is being drained, so that load balancers should send it no new connections.
    pub fn is_leaving(&self) -> bool {
        self.own_node().is_some_and(|node| node.metadata.deletion_timestamp.is_some())
    }

    /// Whether every source has finished its initial sync, so that stale state may be removed.
    pub fn is_synced(&self) -> bool {
        Source::ALL.iter().all(|source| self.synced.contains(source))
    }

    /// The sources whose initial sync has not finished.
    pub fn unsynced(&self) -> impl Iterator<Item = Source> {
        Source::ALL.into_iter().filter(|source| !self.synced.contains(source))
    }

    /// The interfaces of attached Pods.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.values()
    }

    /// The object of this Node, once it is known.
    pub fn own_node(&self) -> Option<&Node> {
        self.nodes.get(&self.own.name)
    }

    /// The other Nodes by name.
    pub fn peers(&self) -> &BTreeMap<String, PeerNode> {
        &self.peers
    }

    /// All current problems, sorted by kind.
    pub fn problems(&self) -> Vec<Problem> {
        let nodes = self.node_problems.iter().cloned().map(Problem::Field);
        let own = self.own_node().and_then(|node| self.own_problem(node));
        let services = self.services.problems().cloned();
        let tunnels = self.own.tunnel_problem.iter().cloned().map(Problem::Tunnels);
        own.into_iter()
            .chain(tunnels)
            .chain(nodes)
            .chain(services)
            .chain(self.address_problems())
            .chain(self.policy_problems())
            .collect()
    }

    /// Handles events that arrived together, and what is due at this time. A Service is rendered once, however many of its
    /// EndpointSlices have changed: rendering takes as long as the Service has endpoints.
    pub fn step(&mut self, now: Time, events: impl IntoIterator<Item = Event>) {
        self.now = now;
        self.handle_all(events);
        loop {
            self.converge(now);
            if !self.advance_attachments(now) {
                break;
            }
        }
        self.advance_controller(now);
    }

    /// The requests to the rim since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// When the next step is due, even without an event ([`Event::Tick`]).
    pub fn wake_at(&self) -> Option<Time> {
        let due = [self.convergence.wake_at(), self.controller_wake_at(), self.attachments.wake_at()];
        // What was due and has not happened waits for an event.
        due.into_iter().flatten().filter(|at| *at > self.now).min()
    }

    fn log(&mut self, notice: Notice) {
        self.effects.push(Effect::Log(notice));
    }

    fn handle(&mut self, event: Event) {
        self.handle_all([event]);
    }

    fn handle_all(&mut self, events: impl IntoIterator<Item = Event>) {
        let mut changed = BTreeSet::new();
        for event in events {
            if !matches!(event, Event::Service(_) | Event::EndpointSlice(_)) {
                // A sync allows the sweep of what is not rendered.
                self.render_services(std::mem::take(&mut changed));
            }
            match event {
                Event::Service(change) => changed.extend(self.services.service(change)),
                Event::EndpointSlice(change) => {
                    let services = self.services.slice(change);
                    self.control_endpoints(&services);
                    changed.extend(services);
                }
                Event::Node(change) => self.node(change),
                Event::Synced(source) => self.source_synced(source),
                Event::Controller(event) => self.controller_event(self.now, event),
                Event::Switch(event) => self.switch_event(self.now, event),
                Event::Port(event) => self.port_event(event),
                Event::Cni(event) => self.cni_event(self.now, event),
                Event::Resume(resume) => self.resume(*resume),
                Event::Tick => {}
            }
        }
        self.render_services(changed);
    }

    fn source_synced(&mut self, source: Source) {
        if !self.synced.insert(source) {
            return;
        }
        if source == Source::Nodes {
            self.find_peers();
            self.tunnel_version += 1;
        }
        if source.needed_for_services() {
            self.render_services(self.services.names());
        }
        if matches!(source, Source::Policies | Source::Switch) {
            self.enforce_everything();
        }
        self.host_version += 1;
        if self.is_synced() {
            self.switch.allow_sweep();
            self.policies.release_unclaimed_ids();
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
                    old.spec == node.spec
                        && old.status == node.status
                        && transport(old) == transport(&node)
                        && old.metadata.creation_timestamp == node.metadata.creation_timestamp
                });
                self.nodes.insert(name, node);
                !same
            }
            Change::Gone(name) => self.nodes.remove(&name.name).is_some(),
        };
        // During the initial sync peers are added one by one; looking for overlaps each time would slow down the start.
        if changed && self.synced.contains(&Source::Nodes) {
            self.find_peers();
        }
        if zone != self.zone() {
            self.render_services(self.services.names());
        }
    }

    fn find_peers(&mut self) {
        let Survey { peers: found, problems, underlay } = survey(&self.own, &self.nodes, &self.endpoints);
        let gone = self.peers.keys().filter(|name| !found.contains_key(*name));
        for name in gone {
            self.switch.remove(&Owner::Peer(name.clone()));
        }
        for (name, peer) in found.iter().filter(|(name, peer)| self.peers.get(*name) != Some(peer)) {
            self.switch.set_flows(&Owner::Peer(name.clone()), peer.flows(&self.pipeline));
        }
        self.node_problems = problems;
        if self.peers != found {
            self.tunnel_version += 1;
        }
        if self.peers != found || self.underlay != underlay {
            self.peers = found;
            let before = std::mem::replace(&mut self.underlay, underlay);
            self.host_version += 1;
            let is_news = |ip| before.role(ip) != self.underlay.role(ip);
            self.render_services(self.services.reached_at(is_news));
        }
    }

    /// Updates the endpoints of the Kubernetes API and the controller, if `changed` has one of their Services.
    fn control_endpoints(&mut self, changed: &[ObjectName]) {
        let (namespace, name) = host::KUBERNETES;
        let kubernetes = ObjectName { namespace: namespace.to_owned(), name: name.to_owned() };
        let controller = &self.own.control_path.controller;
        if !changed.iter().any(|service| *service == kubernetes || service == controller) {
            return;
        }
        let endpoints = ControlEndpoints {
            // Only the API server writes the slice of this name; any user with access to the namespace may write others.
            api_servers: self.services.addresses_of(&kubernetes, |slice| slice.metadata.name == kubernetes.name),
            controllers: self.services.addresses_of(controller, |_| true),
        };
        if self.endpoints != endpoints {
            self.endpoints = endpoints;
            if self.synced.contains(&Source::Nodes) {
                self.find_peers();
            }
        }
    }

    /// Whether this Node's object no longer matches the addresses in use.
    fn own_problem(&self, node: &Node) -> Option<Problem> {
        match local_addresses(node) {
            Err(problem) => Some(Problem::Field(problem)),
            Ok(addresses) if !self.own.has(addresses) => {
                Some(Problem::Restart(format!("Node {}: addresses have changed", self.own.name)))
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
            // Its isolation flows match the old port.
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
        let needed = Source::ALL.into_iter().filter(|source| source.needed_for_services());
        self.own.features.antrea_proxy && needed.into_iter().all(|source| self.synced.contains(&source))
    }

    /// The zone of this Node, if it has one.
    fn zone(&self) -> Option<String> {
        self.own_node()?.metadata.labels.get(ZONE_LABEL).cloned()
    }

    fn render_services(&mut self, services: impl IntoIterator<Item = ObjectName>) {
        if !self.knows_services() {
            return;
        }
        let zone = self.zone();
        let (own, pipeline, switch) = (&self.own, &self.pipeline, &mut self.switch);
        let underlay = &self.underlay;
        let mut context = RenderContext { own, zone: zone.as_deref(), underlay, pipeline, switch };
        for service in services {
            self.services.render(&service, &mut context);
        }
    }
}

/// Whether the switch created the flow itself: learned flows of session affinity.
fn is_learned(flow: &Flow) -> bool {
    flow.table == Table::SessionAffinity.id() && flow.hard_timeout > 0
}
