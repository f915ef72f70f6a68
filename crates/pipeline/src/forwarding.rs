//! Forwarding: by IP address, then by MAC, then to the output port.

use openflow::action::Action;
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::Match;
use openflow::port::Port;

use crate::Pipeline;
use crate::conntrack::{Tracked, state};
use crate::family::{Addressed, Family, bits};
use crate::model::{Address, Mac, Peer, PeerPath, Pod};
use crate::priority;
use crate::regs::{CT_GATEWAY, CT_SERVICE, FOUND, FROM_GATEWAY, FROM_POD, Marked, OUT_PORT, REWRITE};
use crate::tables::Table;

/// The bit of a MAC that is set in group addresses: multicast and broadcast.
const MULTICAST: u128 = 1 << 40;

impl Pipeline {
    pub(crate) fn forwarding_base(&self) -> Vec<Flow> {
        let mut flows = vec![
            Table::L3Forwarding.flow(priority::MISS).then(Table::L2ForwardingCalc.resubmit()),
            Table::L2ForwardingCalc.flow(priority::MISS).then(self.after_l2()),
            self.found(self.node.gateway.mac, self.node.gateway.port, self.after_l2()),
            Table::L2ForwardingOut.flow(priority::MISS),
        ];
        if let Some(tunnel) = self.node.tunnels.first() {
            flows.push(self.found(Mac::GLOBAL_VIRTUAL, *tunnel, self.after_l2()));
        }
        if self.layout.has(Table::L3DecTtl) {
            flows.push(Table::L3DecTtl.flow(priority::MISS).then(Table::L2ForwardingCalc.resubmit()));
        }
        for (family, address) in self.node.addresses.iter() {
            let out = Action::output_field(OUT_PORT.subfield());
            flows.push(
                Table::L2ForwardingOut
                    .flow(priority::l2_forwarding_out::OUTPUT)
                    .when(family.ip().mark(FOUND))
                    .then(out),
            );
            // After DNAT: a Service's endpoint may be any address, including the host's loopback.
            let loopback = family.loopback().into_iter().map(|loopback| family.ip().within(family.dst(), loopback));
            flows.extend(
                loopback.map(|matches| Table::L3Forwarding.flow(priority::l3_forwarding::DROP_LOOPBACK).when(matches)),
            );
            if self.is_policy_only() {
                continue;
            }
            let to_gateway = self.to_be_rewritten(family).to(address.gateway);
            flows.push(self.through_gateway(priority::l3_forwarding::ROUTE, to_gateway, Table::L2ForwardingCalc));
            // The host has decremented the TTL of its packets.
            let at = |priority, matches| Table::L3DecTtl.flow(priority).when(matches);
            flows.push(
                at(priority::l3_dec_ttl::SKIP, family.ip().mark(FROM_GATEWAY)).then(Table::L2ForwardingCalc.resubmit()),
            );
            flows.push(
                at(priority::l3_dec_ttl::DECREMENT, family.ip())
                    .then(Action::DecTtl)
                    .then(Table::L2ForwardingCalc.resubmit()),
            );
            let replies = family.ip().ct(state::RPL | state::TRK, 0).mark(CT_GATEWAY);
            flows.push(self.through_gateway(
                priority::l3_forwarding::REPLY_TO_GATEWAY,
                replies,
                Table::L2ForwardingCalc,
            ));
            // Policies match IP addresses, so a Pod's packet must not reach another destination by its MAC.
            let elsewhere = family.ip().mark(FROM_POD).with_masked(Field::EthDst, 0u8, MULTICAST);
            flows.push(self.through_gateway(priority::l3_forwarding::POD_DEFAULT, elsewhere, Table::L2ForwardingCalc));
            flows.extend(self.unassigned_addresses(family, &address));
            if self.has_proxy() {
                let services = family.ip().ct(state::TRK, 0).mark(CT_SERVICE).mark(REWRITE);
                flows.push(self.through_gateway(priority::l3_forwarding::SERVICE, services, Table::L3DecTtl));
            }
        }
        flows
    }

    pub(crate) fn forwarding_pod(&self, pod: &Pod) -> Vec<Flow> {
        let policies = self.layout.to([Table::AntreaIngress, Table::IngressRule]);
        let mut flows = vec![self.found(pod.mac, pod.port, policies)];
        for address in &pod.addresses {
            let family = Family::of(*address);
            let to_pod = Action::set(Field::EthDst, pod.mac);
            // Whatever its destination MAC: a connection that took another way would bypass the ingress policies of the Pod,
            // and be marked as accepted.
            let priority =
                if self.is_policy_only() { priority::l3_forwarding::ROUTE } else { priority::l3_forwarding::LOCAL_POD };
            flows.push(
                Table::L3Forwarding
                    .flow(priority)
                    .when(family.ip().to(*address))
                    .then(to_pod.clone())
                    .then(Table::L2ForwardingCalc.resubmit()),
            );
            if !self.is_policy_only() {
                flows.push(
                    Table::L3Forwarding
                        .flow(priority::l3_forwarding::ROUTE)
                        .when(self.to_be_rewritten(family).to(*address))
                        .then(Action::set(Field::EthSrc, self.node.gateway.mac))
                        .then(to_pod)
                        .then(Table::L3DecTtl.resubmit()),
                );
            }
        }
        flows
    }

    pub(crate) fn forwarding_peer(&self, peer: &Peer) -> Vec<Flow> {
        let family = Family::of(peer.gateway);
        let to_peer = family.ip().within(family.dst(), peer.pod_cidr);
        vec![match peer.path {
            PeerPath::Route => self.through_gateway(priority::l3_forwarding::ROUTE, to_peer, Table::L2ForwardingCalc),
            PeerPath::Tunnel(node) => Table::L3Forwarding
                .flow(priority::l3_forwarding::ROUTE)
                .when(to_peer)
                .then(Action::set(Field::EthSrc, self.node.gateway.mac))
                .then(Action::set(Field::EthDst, Mac::GLOBAL_VIRTUAL))
                .then(Action::set(Family::of(node).tunnel_dst(), bits(node)))
                .then(Table::L3DecTtl.resubmit()),
        }]
    }

    /// Drops packets to addresses of the Pod subnet that have no Pod. Otherwise their connection would be accepted, as no
    /// policies apply, and stay accepted for the next Pod with the address.
    fn unassigned_addresses(&self, family: Family, address: &Address) -> [Flow; 3] {
        let within = |packets: Match| packets.within(family.dst(), address.pod_cidr);
        let at = |priority, packets| Table::L3Forwarding.flow(priority).when(packets);
        [
            self.through_gateway(
                priority::l3_forwarding::LOCAL_GATEWAY,
                family.ip().to(address.gateway),
                Table::L2ForwardingCalc,
            ),
            at(priority::l3_forwarding::DROP_UNASSIGNED, within(family.ip())),
            // Before packets to be rewritten are sent to the gateway.
            at(priority::l3_forwarding::DROP_UNASSIGNED_ROUTED, within(self.to_be_rewritten(family))),
        ]
    }

    /// Forwards to the host, which routes the packet.
    pub(crate) fn through_gateway(&self, priority: u16, matches: Match, next: Table) -> Flow {
        Table::L3Forwarding
            .flow(priority)
            .when(matches)
            .then(Action::set(Field::EthDst, self.node.gateway.mac))
            .then(next.resubmit())
    }

    /// Packets whose MACs must be rewritten.
    fn to_be_rewritten(&self, family: Family) -> Match {
        if self.has_proxy() { family.ip().mark(REWRITE) } else { family.ip().with(Field::EthDst, Mac::GLOBAL_VIRTUAL) }
    }

    /// The next table for packets to the gateway or a tunnel, which skip ingress rules if AntreaProxy is used.
    fn after_l2(&self) -> Action {
        if self.has_proxy() {
            self.layout.to([Table::IngressMetric, Table::ConntrackCommit])
        } else {
            self.layout.to([Table::AntreaIngress, Table::IngressRule])
        }
    }

    fn found(&self, mac: Mac, port: Port, next: Action) -> Flow {
        Table::L2ForwardingCalc
            .flow(priority::DISJOINT)
            .when(Match::any().with(Field::EthDst, mac))
            .then(OUT_PORT.holds(u128::from(port.0)).load())
            .then(FOUND.load())
            .then(next)
    }
}
