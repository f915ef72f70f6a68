//! Tunnels run between Nodes only: decapsulated packets are checked against the peer that sent them, and packets that pass the
//! bridge cannot reach the tunnel port of a Node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::Match;
use types::host::Guard;

use crate::Pipeline;
use crate::conntrack::{Tracked, state};
use crate::family::{Addressed, Family, bits, port_field, proto_number};
use crate::model::{Endpoint, Peer, PeerPath, Protocol};
use crate::priority;
use crate::regs::{CT_TUNNEL_PORT, FROM_TUNNEL, MAY_BE_TUNNEL, Marked, NO_TUNNEL};
use crate::tables::Table;

/// Bit of `ip_frag` that is set in every fragment, first or later.
const FRAGMENT: u8 = 1;

impl Pipeline {
    /// Drops tunnel packets in `TunnelGuard`, and sends packets for this Node's addresses there.
    pub(crate) fn tunnel_base(&self) -> Vec<Flow> {
        if self.node.tunnels.is_empty() {
            return Vec::new();
        }
        let drop = |priority, matches: Match| Table::TunnelGuard.flow(priority).when(matches);
        let miss = Table::TunnelGuard.flow(priority::MISS).then(NO_TUNNEL.load()).then(Table::L3Forwarding.resubmit());
        let mut flows = vec![miss];
        let mut own = BTreeSet::from_iter(self.node.node_port_addresses.iter().copied());
        for (family, address) in self.node.addresses.iter() {
            own.extend([address.node, address.gateway]);
            for (protocol, port) in self.tunnel_ports() {
                let packets = || family.protocol(protocol);
                flows.push(drop(priority::tunnel_guard::DROP_PORT, packets().with(port_field(protocol), port)));
                // Fragments have port 0. The userspace datapath gives the first fragment the connection's original
                // tuple (the kernel forwards the reassembled packet); without it the later fragments are useless.
                let parts = |rpl: u8| {
                    let parts = packets().with_masked(Field::IpFrag, FRAGMENT, FRAGMENT);
                    parts
                        .ct(state::TRK | rpl, state::INV | (state::RPL & !rpl))
                        .with(Field::CtNwProto, proto_number(protocol))
                };
                flows.push(drop(priority::tunnel_guard::DROP_FRAGMENT, parts(0).with(Field::CtTpDst, port)));
                flows.push(drop(priority::tunnel_guard::DROP_FRAGMENT, parts(state::RPL).with(Field::CtTpSrc, port)));
            }
            flows.push(drop(priority::tunnel_guard::DROP_PORT, family.ip().with(Field::IpProto, Guard::GRE)));
            // DNAT to a tunnel port: in fragments the original tuple has the Service's port.
            flows.push(drop(priority::tunnel_guard::DROP_TRANSLATED, family.ip().mark(CT_TUNNEL_PORT)));
        }
        flows.extend(self.tunnel_targets(&own));
        flows
    }

    /// Sends packets for the addresses of a Node through `TunnelGuard`, once.
    pub(crate) fn tunnel_targets(&self, addresses: &BTreeSet<IpAddr>) -> Vec<Flow> {
        let known = |address: &&IpAddr| !self.node.tunnels.is_empty() && self.speaks(Family::of(**address));
        let target = |address: &IpAddr| {
            let matches = Family::of(*address).ip().mark(MAY_BE_TUNNEL).to(*address);
            Table::L3Forwarding
                .flow(priority::l3_forwarding::TUNNEL_GUARD)
                .when(matches)
                .then(Table::TunnelGuard.resubmit())
        };
        addresses.iter().filter(known).map(target).collect()
    }

    /// Accepts decapsulated packets of a peer: the outer source is one of its addresses (its routes choose which), the inner
    /// source is in its Pod subnets or one of its addresses.
    pub(crate) fn tunnel_sources(&self, addresses: &BTreeSet<IpAddr>, subnets: &[Peer]) -> Vec<Flow> {
        let tunnelled = subnets.iter().filter(|subnet| matches!(subnet.path, PeerPath::Tunnel(_)));
        let pods: Vec<_> = tunnelled.map(|subnet| subnet.pod_cidr).collect();
        if pods.is_empty() {
            return Vec::new();
        }
        // A peer must not claim an address of this Node or its Pods.
        let is_own =
            |ip: &IpAddr| self.node.addresses.iter().any(|(_, own)| own.node == *ip || own.pod_cidr.contains(ip));
        let is_foreign = |ip: &&IpAddr| !is_own(ip) && !self.node.node_port_addresses.contains(ip);
        let host = addresses.iter().filter(is_foreign).map(|ip| (*ip).into());
        let inner: Vec<ipnet::IpNet> = pods.into_iter().chain(host).collect();
        let inner = inner.into_iter().filter(|source| self.speaks(Family::of(source.addr())));
        let accept = |source: ipnet::IpNet, node: &IpAddr| {
            let family = Family::of(source.addr());
            let from = family.ip().mark(FROM_TUNNEL).with(Family::of(*node).tunnel_src(), bits(*node));
            let next = self.layout.to([Table::ServiceConntrack, Table::Conntrack]);
            Table::SpoofGuard
                .flow(priority::spoof_guard::TUNNEL_SOURCE)
                .when(from.within(family.src(), source))
                .then(next)
        };
        inner.flat_map(|source| addresses.iter().map(move |node| accept(source, node))).collect()
    }

    /// Whether the endpoint has the port of a tunnel protocol.
    pub(crate) fn is_tunnel_port(&self, protocol: Protocol, endpoint: &Endpoint) -> bool {
        !self.node.tunnels.is_empty() && self.tunnel_ports().contains(&(protocol, endpoint.port))
    }

    fn tunnel_ports(&self) -> BTreeSet<(Protocol, u16)> {
        let udp = Guard::TUNNEL_PORTS.into_iter().chain(self.node.tunnel_port).map(|port| (Protocol::Udp, port));
        udp.chain([(Protocol::Tcp, Guard::STT_PORT)]).collect()
    }

    fn speaks(&self, family: Family) -> bool {
        self.node.addresses.iter().any(|(own, _)| own == family)
    }
}
