//! From objects to flows, as an agent would.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Result, anyhow, bail};
use node::{Own, ServiceKey, local_addresses, node_addresses, rule_model};
use openflow::flow::Flow;
use openflow::group::Group;
use openflow::port::Port;
use pipeline::Pipeline;
use pipeline::model::{Applied, Gateway, Mode, Node, Pod};
use policy::Cluster;
use types::{Mac, ObjectName};

use super::State;
use super::node_state::NodeState;

/// Flows and groups, and whose they are.
#[derive(Debug)]
pub(crate) struct Compiled {
    state: delta::State<String>,
    owners: BTreeMap<(u8, u16, String), BTreeSet<String>>,
    /// The groups, each with its owner.
    pub(crate) groups: Vec<(Group, String)>,
}

impl Default for Compiled {
    fn default() -> Self {
        Self { state: delta::State::new(|_| false), owners: BTreeMap::new(), groups: Vec::new() }
    }
}

impl Compiled {
    fn add(&mut self, owner: &str, flows: Vec<Flow>) {
        for flow in &flows {
            let key = (flow.table, flow.priority, flow.matches.to_string());
            self.owners.entry(key).or_default().insert(owner.to_owned());
        }
        self.state.set_flows(&owner.to_owned(), flows);
    }

    /// Whose the flow is.
    pub(crate) fn owners_of(&self, flow: &Flow) -> Vec<String> {
        let key = (flow.table, flow.priority, flow.matches.to_string());
        self.owners.get(&key).into_iter().flatten().cloned().collect()
    }

    /// The flows as a switch would hold them, clauses of rules joined: by table, the highest priority first.
    pub(crate) fn flows(&self) -> Vec<(Flow, Vec<String>)> {
        let mut flows: Vec<(Flow, Vec<String>)> = self
            .state
            .desired_flows()
            .map(|flow| {
                let owners = self.owners_of(&flow);
                (flow, owners)
            })
            .collect();
        flows.sort_by_cached_key(|(flow, _)| (flow.table, u16::MAX - flow.priority, flow.to_string()));
        flows
    }
}

impl State {
    /// The flows that the Node would have.
    pub(crate) fn compile(&self) -> Result<Compiled> {
        self.compile_all().map_err(|error| self.placed(&error))
    }

    fn compile_all(&self) -> Result<Compiled> {
        let Some(local) = &self.node_state else {
            bail!("needs a document `kind: NodeState` that says which Node is meant");
        };
        let own = self.own(local)?;
        let node = own.model();
        let pods = self.pods(local, &node)?;
        let pipeline = Pipeline::new(node.clone());
        let mut compiled = Compiled::default();
        compiled.add("Node", pipeline.base());
        for (name, pod) in &pods {
            compiled.add(&format!("Pod {name}"), pipeline.pod(pod));
        }
        let (peers, problems) = node::peers(&own, &self.nodes);
        if let Some(problem) = problems.into_iter().next() {
            return Err(problem.into());
        }
        for (name, peer) in peers {
            let flows = peer.peers.iter().flat_map(|peer| pipeline.peer(peer)).collect();
            compiled.add(&format!("Node {name}"), flows);
        }
        if node.features.antrea_proxy {
            self.services(&own, &pipeline, &mut compiled)?;
        }
        self.policies(&pipeline, &pods, &mut compiled)?;
        Ok(compiled)
    }

    fn own(&self, local: &NodeState) -> Result<Own> {
        let Some(object) = self.nodes.get(&local.node) else {
            bail!("NodeState {}: node: there is no Node with this name in the file", local.node);
        };
        let mut addresses = local_addresses(object)?;
        for address in [&mut addresses.v4, &mut addresses.v6].into_iter().flatten() {
            let given = local.gateway.ips.iter().find(|ip| ip.is_ipv4() == address.gateway.is_ipv4());
            address.gateway = given.copied().unwrap_or(address.gateway);
        }
        let mode = Mode::from(local.mode);
        let service_cidrs = match &local.service_cidrs {
            Some(cidrs) => cidrs.clone(),
            None => vec!["10.96.0.0/12".parse()?],
        };
        let tunnels = match mode {
            Mode::Encap | Mode::Hybrid => vec![Port(local.tunnel.ofport)],
            Mode::NoEncap | Mode::NetworkPolicyOnly => Vec::new(),
        };
        let first = addresses.v4.or(addresses.v6);
        let mac = local.gateway.mac.map(|text| text.0).or(first.map(|address| Mac::of_ip(address.gateway)));
        let given = local.node_port_addresses.clone();
        Ok(Own {
            name: local.node.clone(),
            mode,
            features: local.features.into(),
            datapath: local.datapath.into(),
            gateway: Gateway { port: Port(local.gateway.ofport), mac: mac.unwrap_or(Mac::GLOBAL_VIRTUAL) },
            tunnels,
            addresses,
            transport_subnets: local.transport_subnet.into_iter().collect(),
            node_port_addresses: given.unwrap_or_else(|| node_addresses(object)),
            service_cidrs,
            serving: proxy::Serving::default(),
            // What follows is the host's, and nothing in the switch depends on it.
            gateway_device: String::new(),
            transport_device: String::new(),
            tunnel_port: None,
            mtu: 0,
            no_snat: false,
        })
    }

    /// The Pods of this Node, with the ports that the file gives them or the next free ones.
    fn pods(&self, local: &NodeState, node: &Node) -> Result<BTreeMap<ObjectName, Pod>> {
        let given: BTreeMap<ObjectName, _> = local
            .pods
            .iter()
            .map(|pod| (ObjectName { namespace: pod.namespace.clone(), name: pod.name.clone() }, pod))
            .collect();
        let here = self.pods.iter().filter(|(_, pod)| {
            pod.spec.node_name == local.node
                && !pod.spec.host_network
                && !pod.is_finished()
                && pod.addresses().next().is_some()
        });
        let mut taken: BTreeMap<u32, String> = BTreeMap::new();
        taken.insert(local.gateway.ofport, "the gateway".to_owned());
        taken.extend(node.tunnels.iter().map(|port| (port.0, "the tunnel".to_owned())));
        for (name, ofport) in given.iter().filter_map(|(name, pod)| Some((name, pod.ofport?))) {
            if let Some(other) = taken.insert(ofport, format!("Pod {name}")) {
                bail!("NodeState {}: pods: Pod {name}: ofport: {ofport} is taken by {other}", local.node);
            }
        }
        let mut owner: BTreeMap<IpAddr, &ObjectName> = BTreeMap::new();
        let mut pods = BTreeMap::new();
        let mut next = 3;
        for (name, object) in here {
            let mut addresses = Vec::new();
            for text in object.addresses() {
                let address: IpAddr =
                    text.parse().map_err(|_| anyhow!("Pod {name}: status.podIPs: `{text}` is not an address"))?;
                if let Some(other) = owner.insert(address, name) {
                    bail!("Pod {name}: status.podIPs: {address} is Pod {other}'s address");
                }
                let inside =
                    [node.addresses.v4, node.addresses.v6].into_iter().flatten().any(|a| a.pod_cidr.contains(&address));
                if !inside && node.mode != Mode::NetworkPolicyOnly {
                    bail!("Pod {name}: status.podIPs: {address} is outside the podCIDR of Node {}", local.node);
                }
                addresses.push(address);
            }
            let Some(first) = addresses.first() else { continue };
            let given = given.get(name);
            let ofport = match given.and_then(|pod| pod.ofport) {
                Some(ofport) => ofport,
                None => {
                    while taken.contains_key(&next) {
                        next += 1;
                    }
                    taken.insert(next, format!("Pod {name}"));
                    next
                }
            };
            let mac = given.and_then(|pod| pod.mac).map_or_else(|| Mac::of_ip(*first), |text| text.0);
            pods.insert(name.clone(), Pod { port: Port(ofport), mac, addresses });
        }
        if let Some(name) = given.keys().find(|name| !pods.contains_key(*name)) {
            bail!("NodeState {}: pods: there is no running Pod {name} on this Node in the file", local.node);
        }
        Ok(pods)
    }

    fn services(&self, own: &Own, pipeline: &Pipeline, compiled: &mut Compiled) -> Result<()> {
        let mut services = node::Services::default();
        let viewpoint = proxy::Viewpoint { node: &own.name, zone: None, serving: &own.serving };
        for (name, service) in &self.services {
            let of_service = |slice: &&types::service::EndpointSlice| {
                slice.service_name() == Some(&name.name) && slice.metadata.namespace == service.metadata.namespace
            };
            let slices: Vec<_> = self.slices.iter().filter(of_service).collect();
            let computed = proxy::compute(service, slices, &viewpoint);
            if let Some(error) = computed.errors.into_iter().next() {
                return Err(error.into());
            }
            for port in &computed.ports {
                let owner = match port.name.as_str() {
                    "" => format!("Service {name}"),
                    port => format!("Service {name}:{port}"),
                };
                let rendered = services.render(pipeline, &ServiceKey::of(port), port, &own.own_addresses())?;
                compiled.groups.extend(rendered.groups.into_iter().map(|group| (group, owner.clone())));
                compiled.add(&owner, rendered.flows);
            }
        }
        Ok(())
    }

    fn policies(&self, pipeline: &Pipeline, pods: &BTreeMap<ObjectName, Pod>, compiled: &mut Compiled) -> Result<()> {
        let mut cluster = Cluster { policies: self.policies.clone(), ..Cluster::default() };
        cluster.namespaces =
            self.namespaces.iter().map(|(name, ns)| (name.clone(), ns.metadata.labels.clone())).collect();
        for name in self.pods.keys().chain(self.policies.keys()) {
            // A file may leave namespaces out; they have the label that Kubernetes gives every namespace.
            cluster
                .namespaces
                .entry(name.namespace.clone())
                .or_insert_with(|| [("kubernetes.io/metadata.name".to_owned(), name.namespace.clone())].into());
        }
        for (name, pod) in &self.pods {
            let mut pod = pod.clone();
            pod.metadata.namespace.clone_from(&name.namespace);
            cluster.add_pod(&pod)?;
        }
        let computed = policy::compute(&cluster);
        if let Some(error) = computed.errors.into_iter().next() {
            return Err(error.into());
        }
        let applied =
            |name: &ObjectName| pods.get(name).map(|pod| Applied { port: pod.port, addresses: pod.addresses.clone() });
        for (direction, name) in &computed.isolated {
            if let Some(pod) = applied(name) {
                let owner = format!("isolated {} of Pod {name}", word(*direction));
                compiled.add(&owner, pipeline.isolated(*direction, &pod));
            }
        }
        let mut id = 1;
        for rule in computed.rules {
            let applied_to: BTreeSet<Applied> = rule.applied_to.iter().filter_map(applied).collect();
            if applied_to.is_empty() {
                continue;
            }
            let owner = format!("NetworkPolicy {} {}[{}] ({id})", rule.policy, word(rule.direction), rule.index);
            compiled.add(&owner, pipeline.rule(&rule_model(rule, id, applied_to)));
            id += 1;
        }
        Ok(())
    }
}

fn word(direction: policy::Direction) -> &'static str {
    match direction {
        policy::Direction::Ingress => "ingress",
        policy::Direction::Egress => "egress",
    }
}
