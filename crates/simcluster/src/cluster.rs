//! The cluster: objects go in, and events, batches and commits run until nothing is left to do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use node::{Change, Event, Interface, Source};
use openflow::port::Port;
use types::control::Batch;
use types::network_policy::NetworkPolicy;
use types::node::{Namespace, Node};
use types::pod::Pod;
use types::service::{EndpointSlice, Service};
use types::{Mac, ObjectName};

use crate::agent::Agent;
use crate::controller::Controller;
use crate::object::{Manifest, Object, ObjectKey};
use crate::settings::NodeSettings;
use crate::{Error, network};

/// The first port that Pods get: 1 is the tunnel, 2 the gateway.
const FIRST_POD_PORT: u32 = 3;

/// The objects that the Kubernetes API holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) namespaces: BTreeMap<String, Namespace>,
    pub(crate) nodes: BTreeMap<String, Node>,
    pub(crate) pods: BTreeMap<ObjectName, Pod>,
    pub(crate) services: BTreeMap<ObjectName, Service>,
    pub(crate) slices: BTreeMap<ObjectName, EndpointSlice>,
    pub(crate) policies: BTreeMap<ObjectName, NetworkPolicy>,
}

impl Objects {
    pub(crate) fn policies_of(&self, namespace: &str) -> impl Iterator<Item = &NetworkPolicy> {
        self.policies.values().filter(move |policy| policy.metadata.namespace == namespace)
    }
}

/// A batch that the controller sent to a Node.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Name of the receiving Node.
    pub node: String,
    /// A snapshot, or the changes since the last batch.
    pub batch: Batch,
}

/// The API objects, the controller, and an agent with a switch for each Node.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) objects: Objects,
    settings: BTreeMap<String, NodeSettings>,
    /// Ports of Pods, by Node and Pod.
    ports: BTreeMap<(String, ObjectName), u32>,
    controller: Option<Controller>,
    pub(crate) agents: BTreeMap<String, Agent>,
    /// Nodes with a stopped agent; their switches run.
    stopped: BTreeSet<String>,
    pub(crate) network: network::State,
}

impl Cluster {
    /// A cluster with the settings of its Nodes, without objects. `pods` are all Pods that the cluster will ever have:
    /// they get their ports by name, so that a port does not depend on the order in which Pods start.
    pub fn new<'a>(settings: BTreeMap<String, NodeSettings>, pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        let mut by_node: BTreeMap<&str, Vec<ObjectName>> = BTreeMap::new();
        for pod in pods {
            by_node.entry(&pod.spec.node_name).or_default().push(pod.metadata.object_name());
        }
        let mut ports = BTreeMap::new();
        for (node, mut names) in by_node {
            names.sort_unstable();
            names.dedup();
            let given: BTreeMap<ObjectName, u32> = settings.get(node).map(NodeSettings::pod_ports).unwrap_or_default();
            let mut free = (FIRST_POD_PORT..).filter(|port| !given.values().any(|taken| taken == port));
            for name in names {
                let port = given.get(&name).copied().or_else(|| free.next());
                ports.extend(port.map(|port| ((node.to_owned(), name), port)));
            }
        }
        let controller = Some(Controller::default());
        let (objects, network) = (Objects::default(), network::State::default());
        let (agents, stopped) = (BTreeMap::new(), BTreeSet::new());
        Self { objects, settings, ports, controller, agents, stopped, network }
    }

    /// A settled cluster with the objects of a manifest; fails if the controller rejects one of them.
    pub fn start(manifest: &Manifest) -> Result<Self, Error> {
        let pods = manifest.objects.iter().filter_map(|object| match object {
            Object::Pod(pod) => Some(&**pod),
            _ => None,
        });
        for (node, settings) in &manifest.nodes {
            let is_known = |object: &Object| matches!(object, Object::Node(object) if object.metadata.name == *node);
            let here = pods.clone().filter(|pod| pod.spec.node_name == *node && has_interface(pod));
            let checked = match manifest.objects.iter().any(is_known) {
                true => settings.check(&here.map(|pod| pod.metadata.object_name()).collect()),
                false => {
                    Err(Error::new(format!("NodeState {node}: node: there is no Node with this name in the file")))
                }
            };
            checked.map_err(|error| manifest.locate(error))?;
        }
        let mut cluster = Self::new(manifest.nodes.clone(), pods);
        for object in &manifest.objects {
            cluster.apply(object.clone()).map_err(|error| manifest.locate(error))?;
        }
        if let Some(problem) = cluster.controller.iter().flat_map(Controller::problems).next() {
            return Err(manifest.locate(problem.clone().into()));
        }
        cluster.sync();
        cluster.settle()?;
        Ok(cluster)
    }

    /// The agents by Node.
    pub fn agents(&self) -> impl Iterator<Item = (&str, &Agent)> {
        self.agents.iter().map(|(name, agent)| (name.as_str(), agent))
    }

    /// The agent of a Node.
    pub fn agent(&self, node: &str) -> Option<&Agent> {
        self.agents.get(node)
    }

    /// Creates or replaces an object.
    pub fn apply(&mut self, object: Object) -> Result<(), Error> {
        self.apply_namespace_of(&object)?;
        match object.clone() {
            Object::Namespace(namespace) => {
                self.objects.namespaces.insert(namespace.metadata.name.clone(), namespace);
            }
            Object::Node(node) => self.apply_node(node)?,
            Object::Pod(pod) => self.apply_pod(&pod)?,
            Object::Service(service) => {
                self.objects.services.insert(service.metadata.object_name(), (*service).clone());
                self.tell_agents(&Event::Service(Change::Set(service)));
            }
            Object::EndpointSlice(slice) => {
                self.objects.slices.insert(slice.metadata.object_name(), slice.clone());
                self.tell_agents(&Event::EndpointSlice(Change::Set(slice)));
            }
            Object::NetworkPolicy(policy) => {
                self.objects.policies.insert(policy.metadata.object_name(), *policy);
            }
        }
        if let Some(controller) = &mut self.controller {
            controller.apply(object);
        }
        Ok(())
    }

    /// The problems that the controller and the agents report, each with the reporter.
    pub fn problems(&self) -> Vec<(String, String)> {
        let own = self.controller.iter().flat_map(Controller::problems);
        let own = own.map(|problem| ("controller".to_owned(), problem.to_string()));
        let agents = self.agents.iter().flat_map(|(name, agent)| {
            let problems = agent.brain().problems().into_iter();
            problems.map(|problem| (name.clone(), problem.to_string()))
        });
        own.chain(agents).collect()
    }

    /// Deletes an object; fails if it does not exist.
    pub fn delete(&mut self, key: &ObjectKey) -> Result<(), Error> {
        let name = &key.name;
        let gone = || name.clone();
        let found = match key.kind.as_str() {
            "Namespace" => self.objects.namespaces.remove(&name.name).is_some(),
            "Node" => {
                self.agents.remove(&name.name);
                self.stopped.remove(&name.name);
                if let Some(controller) = &mut self.controller {
                    controller.disconnect(&name.name);
                }
                self.tell_agents(&Event::Node(Change::Gone(gone())));
                self.objects.nodes.remove(&name.name).is_some()
            }
            "Pod" => {
                self.detach(name);
                self.objects.pods.remove(name).is_some()
            }
            "Service" => {
                self.tell_agents(&Event::Service(Change::Gone(gone())));
                self.objects.services.remove(name).is_some()
            }
            "EndpointSlice" => {
                self.tell_agents(&Event::EndpointSlice(Change::Gone(gone())));
                self.objects.slices.remove(name).is_some()
            }
            "NetworkPolicy" => self.objects.policies.remove(name).is_some(),
            other => return Err(Error::new(format!("{key}: `{other}` is not a kind that the cluster has"))),
        };
        if !found {
            return Err(Error::new(format!("{key}: there is no such object to delete")));
        }
        if let Some(controller) = &mut self.controller {
            controller.delete(key);
        }
        Ok(())
    }

    /// Completes the initial sync of every source: later events are changes.
    pub fn sync(&mut self) {
        for agent in self.agents.values_mut() {
            agent.objects_synced();
        }
        if let Some(controller) = &mut self.controller {
            controller.sync();
            controller.connect(self.agents.keys());
        }
    }

    /// Runs until no event, batch or commit is left. Returns the batches that the controller sent.
    pub fn settle(&mut self) -> Result<Vec<Delivery>, Error> {
        let mut deliveries = Vec::new();
        if let Some(controller) = &mut self.controller {
            controller.connect(self.agents.keys().filter(|name| !self.stopped.contains(*name)));
        }
        for (name, agent) in self.agents.iter_mut().filter(|(name, _)| !self.stopped.contains(*name)) {
            match &mut self.controller {
                Some(controller) => {
                    for batch in controller.take(name)? {
                        agent.receive(batch.clone()).map_err(|error| error.at(format!("Node {name}")))?;
                        deliveries.push(Delivery { node: name.clone(), batch });
                    }
                }
                None => {
                    agent.disconnect();
                    agent.stand_in(&self.objects);
                }
            }
            agent.commit(self.network.now());
        }
        Ok(deliveries)
    }

    /// Stops the agent of a Node; its switch keeps forwarding.
    pub fn stop_agent(&mut self, node: &str) -> Result<(), Error> {
        if !self.agents.contains_key(node) {
            return Err(Error::new(format!("there is no Node {node} whose agent could be stopped")));
        }
        self.stopped.insert(node.to_owned());
        if let Some(controller) = &mut self.controller {
            controller.disconnect(node);
        }
        Ok(())
    }

    /// Whether the agent of a Node runs.
    pub(crate) fn is_running(&self, node: &str) -> bool {
        self.agents.contains_key(node) && !self.stopped.contains(node)
    }

    /// Restarts the agent of a Node, or starts a stopped one: it lists the switch, reads all objects, and gets a
    /// snapshot from the controller, or reads the last one from disk.
    pub fn restart_agent(&mut self, node: &str) -> Result<(), Error> {
        let Some(agent) = self.agents.get_mut(node) else {
            return Err(Error::new(format!("there is no Node {node} whose agent could be restarted")));
        };
        self.stopped.remove(node);
        // Ports of Pods that were deleted while the agent was stopped are removed when it starts.
        let is_there = |interface: &Interface| {
            self.objects
                .pods
                .get(&interface.pod)
                .is_some_and(|pod| pod.metadata.uid == interface.uid && has_interface(pod))
        };
        let was_told = !agent.brain().unsynced().any(|source| source == Source::Policies);
        let remembered = was_told.then(|| agent.brain().replica().snapshot());
        let object = self.objects.nodes.get(node).cloned().unwrap_or_default();
        agent.restart(self.settings.get(node).cloned().unwrap_or_default().local_node(&object)?, is_there);
        for event in self.objects.events() {
            agent.handle(event);
        }
        agent.objects_synced();
        match &mut self.controller {
            Some(controller) => controller.disconnect(node),
            None => {
                if let Some(batch) = remembered {
                    agent.restore(batch);
                }
            }
        }
        let here: Vec<Pod> = self.objects.pods.values().filter(|pod| pod.spec.node_name == node).cloned().collect();
        here.iter().try_for_each(|pod| self.attach(pod))
    }

    /// Stops all replicas of the controller.
    pub fn stop_controller(&mut self) {
        self.controller = None;
    }

    /// Starts the controller: it reads all objects, and sends snapshots.
    pub fn start_controller(&mut self) {
        let mut controller = Controller::default();
        for object in self.objects.all() {
            controller.apply(object);
        }
        controller.sync();
        self.controller = Some(controller);
    }

    /// Lets time pass: connections and learned flows expire.
    pub fn advance(&mut self, by: Duration) {
        self.network.advance(by);
    }

    /// A manifest may omit namespaces: they get the label that Kubernetes gives every namespace.
    fn apply_namespace_of(&mut self, object: &Object) -> Result<(), Error> {
        let name = object.key().name.namespace;
        if name.is_empty() || self.objects.namespaces.contains_key(&name) {
            return Ok(());
        }
        let mut namespace = Namespace::default();
        namespace.metadata.labels.insert("kubernetes.io/metadata.name".to_owned(), name.clone());
        namespace.metadata.name = name;
        self.apply(Object::Namespace(namespace))
    }

    fn tell_agents(&mut self, event: &Event) {
        for (_, agent) in self.agents.iter_mut().filter(|(name, _)| !self.stopped.contains(*name)) {
            agent.handle(event.clone());
        }
    }

    fn apply_node(&mut self, node: Node) -> Result<(), Error> {
        let name = node.metadata.name.clone();
        self.objects.nodes.insert(name.clone(), node.clone());
        let is_simulated = self.settings.is_empty() || self.settings.contains_key(&name);
        // An agent needs a Pod subnet to start.
        let has_subnet = !(node.spec.pod_cidr.is_empty() && node.spec.pod_cidrs.is_empty());
        let starts = is_simulated && has_subnet && !self.agents.contains_key(&name);
        if starts {
            let settings = self.settings.get(&name).cloned().unwrap_or_default();
            let mut agent = Agent::start(settings.local_node(&node)?);
            for event in self.objects.events() {
                agent.handle(event);
            }
            if self.agents.values().any(|agent| agent.brain().is_synced()) {
                agent.objects_synced();
            }
            self.agents.insert(name, agent);
        }
        self.tell_agents(&Event::Node(Change::Set(node)));
        if starts {
            let waiting: Vec<Pod> = self.objects.pods.values().cloned().collect();
            waiting.iter().try_for_each(|pod| self.attach(pod))?;
        }
        Ok(())
    }

    fn apply_pod(&mut self, pod: &Pod) -> Result<(), Error> {
        let name = pod.metadata.object_name();
        let before = self.objects.pods.insert(name.clone(), pod.clone());
        if before.is_some_and(|before| before.metadata.uid != pod.metadata.uid) || !has_interface(pod) {
            self.detach(&name);
        }
        self.attach(pod)
    }

    fn attach(&mut self, pod: &Pod) -> Result<(), Error> {
        let name = pod.metadata.object_name();
        if !has_interface(pod) {
            return Ok(());
        }
        if self.stopped.contains(&pod.spec.node_name) {
            return Ok(());
        }
        let Some(agent) = self.agents.get_mut(&pod.spec.node_name) else { return Ok(()) };
        let own = agent.brain().own();
        let mut addresses = Vec::new();
        for text in pod.addresses() {
            let invalid = |problem: String| Error::new(format!("Pod {name}: status.podIPs: {problem}"));
            let address: IpAddr = text.parse().map_err(|_| invalid(format!("`{text}` is not an address")))?;
            let inside = own.families().any(|family| family.pod_cidr.contains(&address));
            if !inside && own.mode != pipeline::model::Mode::NetworkPolicyOnly {
                return Err(invalid(format!("{address} is outside the podCIDR of Node {}", own.name)));
            }
            addresses.push(address);
        }
        let Some(first) = addresses.first() else { return Ok(()) };
        let Some(port) = self.ports.get(&(pod.spec.node_name.clone(), name.clone())) else {
            return Err(Error::new(format!("Pod {name}: it has no port, as it was not announced to the cluster")));
        };
        let given = self.settings.get(&pod.spec.node_name).and_then(|settings| settings.pod_mac(&name));
        let interface = Interface {
            name: interface_name(&name),
            pod: name,
            uid: pod.metadata.uid.clone(),
            port: Port(*port),
            mac: given.unwrap_or_else(|| Mac::of_ip(*first)),
            addresses,
        };
        agent.attach(interface);
        Ok(())
    }

    fn detach(&mut self, name: &ObjectName) {
        let interface = interface_name(name);
        for (_, agent) in self.agents.iter_mut().filter(|(node, _)| !self.stopped.contains(*node)) {
            if agent.brain().interfaces().any(|attached| attached.name == interface) {
                agent.detach(&interface);
            }
        }
    }
}

/// The name of a Pod's interface; it stands for the Pod in messages.
pub(crate) fn interface_name(pod: &ObjectName) -> String {
    format!("{}-{}", pod.namespace, pod.name)
}

fn has_interface(pod: &Pod) -> bool {
    !pod.spec.host_network && !pod.is_finished() && pod.addresses().next().is_some()
}

impl Objects {
    /// The events from which an agent learns of all objects.
    fn events(&self) -> Vec<Event> {
        let nodes = self.nodes.values().cloned().map(|node| Event::Node(Change::Set(node)));
        let services = self.services.values().cloned().map(|object| Event::Service(Change::Set(Box::new(object))));
        let slices = self.slices.values().cloned().map(|slice| Event::EndpointSlice(Change::Set(slice)));
        nodes.chain(services).chain(slices).collect()
    }

    fn all(&self) -> Vec<Object> {
        let namespaces = self.namespaces.values().cloned().map(Object::Namespace);
        let pods = self.pods.values().cloned().map(|pod| Object::Pod(Box::new(pod)));
        let policies = self.policies.values().cloned().map(|policy| Object::NetworkPolicy(Box::new(policy)));
        namespaces.chain(pods).chain(policies).collect()
    }
}
