use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};

use node::database::{Assigned, PodPort, PortRow};
use node::{
    Brain, Change, CniEvent, ControlPath, ControllerEvent, Discovery, Effect, Event, Interface, Own, PortEvent, Source,
    SwitchEvent, Time, local_addresses,
};
use openflow::flow::Flow;
use openflow::port::Port;
use pipeline::model::{Datapath, Features, Gateway, Mode};
use serde_json::json;
use types::control::Batch;
use types::node::Node;
use types::service::{EndpointSlice, Service};
use types::{Mac, ObjectName};

/// Node `n<index>`: Pods in 10.10.<index>.0/24 and fd10:<index>::/64, Node address 192.168.77.<index>.
pub(crate) fn node(index: u8) -> Node {
    let cidrs = [format!("10.10.{index}.0/24"), format!("fd10:{index}::/64")];
    node_with(&format!("n{index}"), &format!("192.168.77.{index}"), &cidrs)
}

pub(crate) fn node_with(name: &str, address: &str, cidrs: &[String]) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }))
    .unwrap()
}

/// The same Node, with this year of creation.
pub(crate) fn created(mut node: Node, year: u16) -> Node {
    node.metadata.creation_timestamp = format!("{year}-01-01T00:00:00Z").parse().ok();
    node
}

/// The Service of the Kubernetes API, at 10.96.0.1.
pub(crate) fn kubernetes() -> Service {
    let mut kubernetes = service(1, 0);
    kubernetes.metadata.namespace = "default".to_owned();
    kubernetes.metadata.name = "kubernetes".to_owned();
    kubernetes
}

/// The endpoint of [`kubernetes`], in a slice of this name.
pub(crate) fn api_server(slice_name: &str, address: &str) -> EndpointSlice {
    let mut slice = slice(1, &[5]);
    slice.metadata.namespace = "default".to_owned();
    slice.metadata.name = slice_name.to_owned();
    slice.metadata.labels.insert("kubernetes.io/service-name".to_owned(), "kubernetes".to_owned());
    slice.endpoints[0].addresses = vec![address.to_owned()];
    slice
}

/// This Node is `n1`, in the subnet 192.168.77.0/24.
pub(crate) fn own(mode: Mode) -> Own {
    let gateway = Gateway { port: Port(2), mac: Mac([2, 0, 0, 0, 0, 1]) };
    Own {
        name: "n1".to_owned(),
        mode,
        features: Features::default(),
        datapath: Datapath::Netdev,
        gateway_device: "antrea-gw0".to_owned(),
        gateway,
        tunnels: vec![Port(1)],
        tunnel_port: Some(6081),
        addresses: local_addresses(&node(1)).unwrap(),
        transport_device: "eth0".to_owned(),
        transport_subnets: vec!["192.168.77.0/24".parse().unwrap()],
        mtu: 1450,
        no_snat: false,
        node_port_addresses: vec!["192.168.77.1".parse().unwrap(), "127.0.0.1".parse().unwrap()],
        service_cidrs: Vec::new(),
        serving: proxy::Serving::default(),
        control_path: ControlPath {
            api_servers: vec!["192.168.77.200".parse().unwrap()],
            by_cluster_ip: false,
            routers: vec!["192.168.77.254".parse().unwrap()],
            controller: ObjectName { namespace: "kube-system".to_owned(), name: "antrea".to_owned() },
        },
        transport_bridge: None,
        tunnel_problem: None,
        all_zero_snat: true,
    }
}

/// A brain with a rim that answers for the controller and the switch.
pub(crate) struct Agent {
    brain: Brain,
    attempt: u64,
}

impl Deref for Agent {
    type Target = Brain;

    fn deref(&self) -> &Brain {
        &self.brain
    }
}

impl DerefMut for Agent {
    fn deref_mut(&mut self) -> &mut Brain {
        &mut self.brain
    }
}

impl Agent {
    pub(crate) fn new(own: Own) -> Self {
        Self { brain: Brain::new(own), attempt: 0 }
    }

    pub(crate) fn handle(&mut self, event: impl Into<Events>) {
        self.step(Time::ZERO, event.into().0);
    }

    /// Takes a step, and returns its effects.
    pub(crate) fn effects(&mut self, event: Event) -> Vec<Effect> {
        self.take_effects();
        self.step(Time::ZERO, [event]);
        self.take_effects()
    }

    /// Receives a batch on the stream of the controller, which is established if there is none.
    pub(crate) fn enforce(&mut self, batch: &Batch) -> Result<(), String> {
        if self.controller().is_none() {
            let addresses = vec![SocketAddr::from(([192, 0, 2, 1], 10349))];
            let discovery = Discovery { is_synced: true, is_deployed: true, has_snapshot: false, addresses };
            let effects = self.effects(Event::Controller(ControllerEvent::Discovered(discovery)));
            let attempt = effects.iter().find_map(|effect| match effect {
                Effect::Connect { attempt, .. } => Some(*attempt),
                _ => None,
            });
            self.attempt = attempt.unwrap();
            self.handle(Event::Controller(ControllerEvent::Connected { attempt: self.attempt }));
        }
        let event = ControllerEvent::Batch { attempt: self.attempt, batch: batch.clone() };
        let ended = self.effects(Event::Controller(event)).into_iter().find_map(|effect| match effect {
            Effect::Disconnect(reason) => Some(reason),
            _ => None,
        });
        ended.map_or(Ok(()), Err)
    }

    /// Connects to a switch that has these flows; returns the number of messages that the brain sends to it.
    pub(crate) fn connect_switch(&mut self, flows: Vec<Flow>) -> usize {
        self.handle(Event::Switch(SwitchEvent::Up(1)));
        self.handle(Event::Switch(SwitchEvent::Flows(flows)));
        self.handle(Event::Switch(SwitchEvent::Listed(Ok(()))));
        self.bundle().count()
    }
}

/// Events that arrive together.
pub(crate) struct Events(Vec<Event>);

impl From<Event> for Events {
    fn from(event: Event) -> Self {
        Self(vec![event])
    }
}

impl<const N: usize> From<[Event; N]> for Events {
    fn from(events: [Event; N]) -> Self {
        Self(events.into())
    }
}

/// The cluster has no controller.
pub(crate) fn controller_absent() -> Event {
    let discovery = Discovery { is_synced: true, ..Discovery::default() };
    Event::Controller(ControllerEvent::Discovered(discovery))
}

/// A controller is deployed, but not ready.
pub(crate) fn controller_deployed() -> Event {
    let discovery = Discovery { is_synced: true, is_deployed: true, ..Discovery::default() };
    Event::Controller(ControllerEvent::Discovered(discovery))
}

/// OVSDB has the port of a Pod.
pub(crate) fn attached(interface: Interface) -> Event {
    let port = u16::try_from(interface.port.0).unwrap();
    let pod = PodPort {
        name: interface.name.clone(),
        container: interface.name.clone(),
        pod: interface.pod,
        uid: interface.uid,
        addresses: interface.addresses,
        mac: interface.mac,
        device: "eth0".to_owned(),
        netns: format!("/netns/{}", interface.name),
    };
    let assigned = Assigned::Port(port);
    let row = PortRow { name: interface.name, pod: Some(pod), requested: Some(port), assigned };
    Event::Port(PortEvent::Set(Box::new(row)))
}

/// The port of a Pod is removed.
pub(crate) fn detached(name: String) -> [Event; 2] {
    [Event::Cni(CniEvent::Collect(vec![name.clone()])), Event::Port(PortEvent::Gone(name))]
}

/// A brain after the initial sync of every source, in a cluster without policies.
pub(crate) fn synced(mode: Mode) -> Agent {
    let mut brain = Agent::new(own(mode));
    sync(&mut brain);
    brain
}

/// Finishes the initial sync of every source, without policies.
pub(crate) fn sync(brain: &mut Agent) {
    brain.handle(controller_absent());
    for source in Source::ALL {
        brain.handle(Event::Synced(source));
    }
}

pub(crate) fn service(index: u8, node_port: u16) -> Service {
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": format!("s{index}")},
        "spec": {
            "type": if node_port == 0 { "ClusterIP" } else { "NodePort" },
            "clusterIP": format!("10.96.0.{index}"),
            "clusterIPs": [format!("10.96.0.{index}")],
            "ports": [{"name": "web", "port": 80, "protocol": "TCP", "nodePort": node_port}],
        },
    }))
    .unwrap()
}

/// Endpoints of Service `s<index>`: Pods with these last bytes on Node `n1`.
pub(crate) fn slice(index: u8, pods: &[u8]) -> EndpointSlice {
    let endpoint = |pod: &u8| json!({"addresses": [format!("10.10.1.{pod}")], "nodeName": "n1"});
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "shop", "name": format!("s{index}-x"),
            "labels": {"kubernetes.io/service-name": format!("s{index}")},
        },
        "addressType": "IPv4",
        "endpoints": pods.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}],
    }))
    .unwrap()
}

pub(crate) fn interface(index: u8) -> Interface {
    Interface {
        name: format!("pod{index}-abcdef"),
        pod: name(&format!("p{index}")),
        uid: format!("uid-of-p{index}"),
        port: Port(u32::from(index)),
        mac: Mac([0x0a, 0x58, 10, 10, 1, index]),
        addresses: vec![format!("10.10.1.{index}").parse().unwrap()],
    }
}

pub(crate) fn name(name: &str) -> ObjectName {
    ObjectName { namespace: "shop".to_owned(), name: name.to_owned() }
}

pub(crate) fn set_service(service: Service) -> Event {
    Event::Service(Change::Set(Box::new(service)))
}

pub(crate) fn problems(brain: &Agent) -> Vec<String> {
    brain.problems().iter().map(ToString::to_string).collect()
}

pub(crate) fn flows(brain: &Agent) -> Vec<String> {
    let mut flows: Vec<String> = brain.desired_flows().map(|flow| flow.to_string()).collect();
    flows.sort();
    flows
}
