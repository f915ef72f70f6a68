//! The network between Nodes: tunnels, and kernels with their routes and NAT.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use openflow::field::Field;
use openflow::port::Port;
use pipeline::tables::Table;
use simulator::fields::Tunnel;
use simulator::{Arrival, Packet, Reason};
use types::Mac;

use super::{End, Flight, Hop, Place, bits};
use crate::agent::Agent;
use crate::cluster::Cluster;
use crate::host;

impl Cluster {
    /// Forwards a packet through the tunnel from one switch to another.
    pub(super) fn through_tunnel(&self, from: &str, packet: Packet, tunnel: Tunnel) -> Result<Hop, Box<End>> {
        if tunnel.dst == 0 && tunnel.ipv6_dst == 0 {
            let (node, table) = (from.to_owned(), Table::L2ForwardingOut.id());
            let nowhere = Place::Dropped { node, table, owners: Vec::new(), reason: Reason::NoOutput };
            return Err(Box::new((nowhere, None)));
        }
        let to: IpAddr =
            if tunnel.dst == 0 { Ipv6Addr::from(tunnel.ipv6_dst).into() } else { Ipv4Addr::from(tunnel.dst).into() };
        let source = self.transport_addresses(from).into_iter().find(|ip| ip.is_ipv4() == to.is_ipv4());
        let peer = self.agents().find(|(name, _)| self.transport_addresses(name).contains(&to));
        let (Some((name, agent)), Some(source)) = (peer, source) else {
            return Err(Box::new((Place::Outside, Some(packet))));
        };
        let port = agent.brain().own().tunnels.first().copied().unwrap_or(Port(0));
        let mut arrival = Arrival::new(port, packet);
        arrival.tunnel = match source {
            IpAddr::V4(ip) => Tunnel { src: ip.into(), dst: tunnel.dst, ..Tunnel::default() },
            IpAddr::V6(ip) => Tunnel { ipv6_src: ip.into(), ipv6_dst: tunnel.ipv6_dst, ..Tunnel::default() },
        };
        Ok(Hop::Switch { node: name.to_owned(), arrival })
    }

    /// NAT and routing in the kernel of a Node.
    pub(super) fn kernel(&mut self, name: &str, mut packet: Packet, flight: Flight) -> Result<Hop, Box<End>> {
        let Flight { protocol, is_reply } = flight;
        let Some(agent) = self.agents.get(name) else { return Err(Box::new((Place::Outside, Some(packet)))) };
        let (desired, own) = (agent.brain().host(), agent.brain().own().clone());
        let known = self.network.translations.entry(name.to_owned()).or_default();
        if !host::untranslate(known, &mut packet) {
            known.extend(host::node_port(&desired, &mut packet, protocol));
            if !own.features.antrea_proxy {
                known.extend(host::kube_proxy(&self.objects, name, &mut packet, protocol));
            }
        }
        let Some(dst) = packet.dst() else { return Err(Box::new((Place::Outside, Some(packet)))) };
        let is_gateway = own.families().any(|family| family.gateway == dst);
        if is_gateway || self.node_with(dst).is_some_and(|(there, _)| there == name) {
            return Err(Box::new((Place::Node(name.to_owned()), Some(packet))));
        }
        let on_link = own.families().any(|family| family.pod_cidr.contains(&dst));
        let route = host::route(&desired, dst).filter(|_| !on_link);
        if on_link || route.is_some_and(|route| route.device == own.gateway_device) {
            // A next hop behind the gateway is a peer's gateway or the virtual Service address: the switch answers ARP for both.
            let eth_dst = if on_link { self.neighbour(name, dst) } else { Mac::GLOBAL_VIRTUAL };
            let from_device = packet.src().is_some_and(|src| own.families().any(|family| family.gateway == src));
            let is_own = |src| self.node_with(src).is_some_and(|(there, _)| there == name);
            let from_node = packet.src().is_some_and(is_own);
            if from_node && !is_reply {
                let gateway = own.families().map(|family| family.gateway).find(|ip| ip.is_ipv4() == dst.is_ipv4());
                let known = self.network.translations.entry(name.to_owned()).or_default();
                known.extend(gateway.and_then(|gateway| host::translate_source(&mut packet, gateway)));
            }
            packet.set(Field::EthSrc, bits(own.gateway.mac));
            packet.set(Field::EthDst, bits(eth_dst));
            let mut arrival = Arrival::new(own.gateway.port, packet);
            if from_device || from_node {
                arrival.pkt_mark = desired.firewall.and_then(|firewall| firewall.host_mark).unwrap_or_default();
            }
            return Ok(Hop::Switch { node: name.to_owned(), arrival });
        }
        let next = route.and_then(|route| route.via).unwrap_or(dst);
        if let Some(address) = self.node_address_of_family(name, dst).filter(|_| !is_reply) {
            let known = self.network.translations.entry(name.to_owned()).or_default();
            known.extend(host::masquerade(&desired, &mut packet, address));
        }
        match self.node_with(next) {
            Some((peer, _)) => Ok(Hop::Kernel { node: peer.to_owned(), packet }),
            None => Err(Box::new((Place::Outside, Some(packet)))),
        }
    }

    /// The Node with this address, and its agent.
    fn node_with(&self, address: IpAddr) -> Option<(&str, &Agent)> {
        let has = |name: &str| {
            let own = self.objects.nodes.get(name).map(node::node_addresses).unwrap_or_default();
            own.contains(&address) || self.transport_addresses(name).contains(&address)
        };
        self.agents().find(|(name, _)| has(name))
    }

    /// The addresses at which other Nodes reach a Node.
    fn transport_addresses(&self, node: &str) -> Vec<IpAddr> {
        self.objects.nodes.get(node).and_then(|node| node::transport_addresses(node).ok()).unwrap_or_default()
    }

    pub(super) fn node_address(&self, node: &str) -> Option<IpAddr> {
        node::node_addresses(self.objects.nodes.get(node)?).first().copied()
    }

    pub(super) fn node_address_of_family(&self, node: &str, like: IpAddr) -> Option<IpAddr> {
        let addresses = node::node_addresses(self.objects.nodes.get(node)?);
        addresses.into_iter().find(|address| address.is_ipv4() == like.is_ipv4())
    }
}
