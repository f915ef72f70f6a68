//! Packets between Pods, Nodes and the outside: from switch to switch, through tunnels and kernels.

mod underlay;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use node::{Interface, Owner};
use pipeline::tables::Table;
use simulator::packet::{Segment, TcpSegment};
use simulator::trace::Sent;
use simulator::{Arrival, Packet, Reason, Time, Trace, Verdict};
use types::meta::Protocol;
use types::{Mac, ObjectName};

use crate::cluster::Cluster;
use crate::host::{self, Translation};
use crate::probe::{Probe, Target};
use crate::{Error, settings};

/// The address of the host outside the cluster.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const OUTSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 7);
/// Maximum number of switches and kernels on the way of a packet: more means a loop.
const MAX_HOPS: usize = 12;
const SYN: u16 = 0x02;
const SYN_ACK: u16 = 0x12;

/// Where a packet ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// It arrived at a Pod.
    Pod(ObjectName),
    /// It arrived at a process in a Node's host network.
    Node(String),
    /// It left the cluster.
    Outside,
    /// The agent rejects it: the Service has no endpoints.
    Refused {
        /// Node of the agent that rejects it.
        node: String,
    },
    /// A switch dropped it.
    Dropped {
        /// Node of the switch that dropped it.
        node: String,
        /// The table in which it ended.
        table: u8,
        /// The owners of the flow that matched last.
        owners: Vec<Owner>,
        /// Reason of the simulator, such as a matching drop flow.
        reason: Reason,
    },
    /// It passed more than `MAX_HOPS` switches and kernels.
    Loop,
}

/// The result of a probe.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Where the first packet ended.
    pub request: Place,
    /// The destination of the first packet when it arrived, after translation.
    pub endpoint: Option<(IpAddr, u16)>,
    /// The source of the first packet when it arrived.
    pub source: Option<IpAddr>,
    /// Where the reply ended, if the request arrived at a Pod or a Node.
    pub reply: Option<Place>,
    /// Whether the reply arrived where the request began, from the address that the request was sent to.
    pub is_established: bool,
    /// The trace of each switch, in order.
    pub traces: Vec<(String, Trace)>,
}

/// The state that the network keeps between packets.
#[derive(Debug, Default)]
pub(crate) struct State {
    now: Time,
    next_port: u16,
    translations: BTreeMap<String, Vec<Translation>>,
}

impl State {
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.now += by;
    }

    /// The next client port: every probe is a new connection.
    fn client_port(&mut self) -> u16 {
        self.next_port = if self.next_port < 40_000 { 40_000 } else { self.next_port + 1 };
        self.next_port
    }
}

/// Properties of a packet's connection that a kernel uses.
#[derive(Clone, Copy)]
struct Flight {
    protocol: Protocol,
    /// Only the first packet of a connection decides about SNAT.
    is_reply: bool,
}

/// A packet on its way.
enum Hop {
    Switch { node: String, arrival: Arrival },
    Kernel { node: String, packet: Packet },
}

impl Cluster {
    /// Opens a connection and sends the reply back.
    pub fn probe(&mut self, probe: &Probe) -> Result<Connection, Error> {
        self.advance(Duration::from_secs(1));
        let destination = self.destination(probe)?;
        let client_port = self.network.client_port();
        let source = self.source(&probe.from, destination)?;
        let segment = segment(probe.protocol, client_port, probe.port, SYN);
        let sent = (destination, probe.port);
        let first = self.send(&probe.from, source, destination, &segment)?;
        let mut traces = Vec::new();
        let flight = Flight { protocol: probe.protocol, is_reply: false };
        let (request, arrived) = self.carry(first, flight, &mut traces);
        let tuple = arrived.as_ref().and_then(host::Tuple::of);
        let (mut reply, mut is_established) = (None, false);
        let answering = match &request {
            Place::Pod(pod) => Some(Target::Pod(pod.clone())),
            Place::Node(node) => Some(Target::Node(node.clone())),
            _ => None,
        };
        if let (Some(answering), Some(tuple)) = (answering, tuple) {
            let segment = self::segment(probe.protocol, tuple.dst.1, tuple.src.1, SYN_ACK);
            let first = self.send(&answering, tuple.dst.0, tuple.src.0, &segment)?;
            let (place, back) = self.carry(first, Flight { is_reply: true, ..flight }, &mut traces);
            let from = back.as_ref().and_then(host::Tuple::of).map(|tuple| tuple.src);
            is_established = from == Some(sent) && is_at(&probe.from, &place);
            reply = Some(place);
        }
        let (endpoint, source) = (tuple.map(|tuple| tuple.dst), tuple.map(|tuple| tuple.src.0));
        Ok(Connection { request, endpoint, source, reply, is_established, traces })
    }

    fn destination(&self, probe: &Probe) -> Result<IpAddr, Error> {
        let missing = |what: &str| Error::new(format!("probe `{probe}`: {what}"));
        match &probe.to {
            Target::Address(address) => Ok(*address),
            Target::Pod(name) => {
                let pod = self.objects.pods.get(name).ok_or_else(|| missing("there is no such Pod"))?;
                let address = pod.addresses().find_map(|text| text.parse().ok());
                address.ok_or_else(|| missing("the Pod has no address"))
            }
            Target::Service(name) => {
                let service = self.objects.services.get(name).ok_or_else(|| missing("there is no such Service"))?;
                let address = service.spec.cluster_ips.first().and_then(|text| text.parse().ok());
                address.ok_or_else(|| missing("the Service has no cluster IP"))
            }
            Target::Node(name) => self.node_address(name).ok_or_else(|| missing("there is no such Node")),
            Target::Outside(_) => Err(missing("the destination cannot be `outside`: give an address")),
        }
    }

    fn source(&self, from: &Target, to: IpAddr) -> Result<IpAddr, Error> {
        let of_family = |address: &IpAddr| address.is_ipv4() == to.is_ipv4();
        let missing = || Error::new(format!("`{from}` has no address of the destination's family, or does not exist"));
        match from {
            Target::Pod(name) => {
                let (_, interface) = self.interface(name).ok_or_else(missing)?;
                interface.addresses.iter().copied().find(of_family).ok_or_else(missing)
            }
            Target::Node(name) => {
                let own = self.agents.get(name).ok_or_else(missing)?.brain().own();
                let family =
                    own.families().find(|family| family.gateway.is_ipv4() == to.is_ipv4()).ok_or_else(missing)?;
                // The kernel takes the address of the device by which the packet leaves.
                let desired = self.agents[name].brain().host();
                let by_gateway = family.pod_cidr.contains(&to)
                    || host::route(&desired, to).is_some_and(|route| route.device == settings::GATEWAY_DEVICE);
                let node = self.node_address_of_family(name, to).ok_or_else(missing)?;
                Ok(if by_gateway { family.gateway } else { node })
            }
            _ if to.is_ipv4() => Ok(OUTSIDE.into()),
            _ => Ok(OUTSIDE6.into()),
        }
    }

    /// The first hop of a packet.
    fn send(&self, from: &Target, src: IpAddr, dst: IpAddr, segment: &Segment) -> Result<Hop, Error> {
        let missing = || Error::new(format!("`{from}` is not attached"));
        match from {
            Target::Pod(name) => {
                let (node, interface) = self.interface(name).ok_or_else(missing)?;
                let eth_dst = self.neighbour(node, dst);
                let packet = Packet::ip(interface.mac.0, eth_dst.0, src, dst, 64, segment);
                Ok(Hop::Switch { node: node.to_owned(), arrival: Arrival::new(interface.port, packet) })
            }
            Target::Node(node) | Target::Outside(node) => {
                let packet = Packet::ip([0; 6], [0; 6], src, dst, 64, segment);
                Ok(Hop::Kernel { node: node.clone(), packet })
            }
            Target::Service(_) | Target::Address(_) => Err(missing()),
        }
    }

    /// The MAC address by which a Pod or the kernel of a Node sends to an address on the bridge's link.
    fn neighbour(&self, node: &str, ip: IpAddr) -> Mac {
        let Some(agent) = self.agents.get(node) else { return Mac::GLOBAL_VIRTUAL };
        let own = agent.brain().own();
        let pod = agent.brain().interfaces().find(|interface| interface.addresses.contains(&ip));
        match pod {
            Some(interface) => interface.mac,
            None if own.families().any(|family| family.snat == ip || family.virtual_service == ip) => {
                Mac::GLOBAL_VIRTUAL
            }
            None => own.gateway.mac,
        }
    }

    /// Forwards a packet until it ends; returns it as it arrived there.
    fn carry(&mut self, first: Hop, flight: Flight, traces: &mut Vec<(String, Trace)>) -> (Place, Option<Packet>) {
        let mut next = first;
        for _ in 0..MAX_HOPS {
            let step = match next {
                Hop::Switch { node, arrival } => self.switch(&node, &arrival, traces),
                Hop::Kernel { node, packet } => self.kernel(&node, packet, flight),
            };
            match step {
                Ok(hop) => next = hop,
                Err(end) => return *end,
            }
        }
        (Place::Loop, None)
    }

    fn switch(&mut self, name: &str, arrival: &Arrival, traces: &mut Vec<(String, Trace)>) -> Result<Hop, Box<End>> {
        let now = self.network.now();
        let Some(agent) = self.agents.get_mut(name) else { return Err(Box::new((Place::Outside, None))) };
        let trace = agent.run(now, arrival);
        traces.push((name.to_owned(), trace.clone()));
        let node = name.to_owned();
        let sent = match trace.verdict {
            Verdict::Dropped(reason) => {
                let last = trace.steps.iter().rev().find(|step| step.flow.is_some());
                let table = last.map(|step| step.table).unwrap_or_default();
                let owners = last.and_then(|step| step.flow.as_ref()).map(|flow| agent.owners_of(flow));
                let owners = owners.unwrap_or_default();
                return Err(Box::new((Place::Dropped { node, table, owners, reason }, None)));
            }
            Verdict::Sent(sent) => sent,
        };
        let output = sent.into_iter().find_map(|sent| match sent {
            Sent::Output { port, packet, tunnel } => Some((port, packet, tunnel)),
            Sent::Controller { .. } => None,
        });
        let Some((port, packet, tunnel)) = output else { return Err(Box::new((Place::Refused { node }, None))) };
        let own = agent.brain().own();
        if port == own.gateway.port {
            return Ok(Hop::Kernel { node, packet });
        }
        if own.tunnels.contains(&port) {
            return self.through_tunnel(name, packet, tunnel);
        }
        let pod = agent.brain().interfaces().find(|interface| interface.port == port);
        let is_there = |interface: &&Interface| {
            let pod = self.objects.pods.get(&interface.pod);
            pod.is_some_and(|pod| pod.metadata.uid == interface.uid)
        };
        match pod {
            // The Pod was deleted while the agent was stopped, and its interface with it.
            Some(interface) if !is_there(&interface) => {
                let (table, owners) = (Table::L2ForwardingOut.id(), vec![Owner::Interface(interface.name.clone())]);
                Err(Box::new((Place::Dropped { node, table, owners, reason: Reason::NoPort(port) }, None)))
            }
            Some(interface) => Err(Box::new((Place::Pod(interface.pod.clone()), Some(packet)))),
            None => Err(Box::new((Place::Outside, Some(packet)))),
        }
    }

    fn interface(&self, pod: &ObjectName) -> Option<(&str, &Interface)> {
        self.agents.iter().find_map(|(name, agent)| {
            let found = agent.brain().interfaces().find(|interface| interface.pod == *pod)?;
            Some((name.as_str(), found))
        })
    }
}

/// Where a packet ended, and its contents there.
type End = (Place, Option<Packet>);

fn is_at(target: &Target, place: &Place) -> bool {
    match (target, place) {
        (Target::Pod(wanted), Place::Pod(there)) => wanted == there,
        (Target::Node(wanted), Place::Node(there)) => wanted == there,
        (Target::Outside(_), Place::Outside) => true,
        _ => false,
    }
}

fn bits(mac: Mac) -> u128 {
    mac.0.into_iter().fold(0, |bits, octet| bits << 8 | u128::from(octet))
}

fn segment(protocol: Protocol, src: u16, dst: u16, flags: u16) -> Segment {
    match protocol {
        Protocol::Tcp => Segment::Tcp(TcpSegment {
            src,
            dst,
            seq: 1,
            ack: u32::from(flags != SYN) * 2,
            flags,
            ..TcpSegment::default()
        }),
        Protocol::Udp => Segment::Udp { src, dst, payload: b"probe".to_vec() },
        Protocol::Sctp => Segment::Sctp { src, dst },
    }
}
