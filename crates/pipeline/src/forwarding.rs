//! Where a packet goes: by address, then by MAC address, then out.

use openflow::action::Action;
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::Match;
use openflow::port::Port;

use crate::Pipeline;
use crate::conntrack::{Tracked, state};
use crate::family::{Addressed, Family, bits};
use crate::model::{Mac, Peer, PeerPath, Pod};
use crate::regs::{CT_GATEWAY, CT_SERVICE, FOUND, FROM_GATEWAY, FROM_POD, Marked, OUT_PORT, REWRITE};
use crate::tables::Table;

/// The bit of an Ethernet address that says that it is not one station's.
const MULTICAST: u128 = 1 << 40;

impl Pipeline {
    pub(crate) fn forwarding_base(&self) -> Vec<Flow> {
        let mut flows = vec![
            Table::L3Forwarding.flow(0).then(Table::L2ForwardingCalc.resubmit()),
            Table::L2ForwardingCalc.flow(0).then(self.after_l2()),
            self.found(self.node.gateway.mac, self.node.gateway.port, self.after_l2()),
            Table::L2ForwardingOut.flow(0),
        ];
        if let Some(tunnel) = self.node.tunnels.first() {
            flows.push(self.found(Mac::GLOBAL_VIRTUAL, *tunnel, self.after_l2()));
        }
        if self.layout.has(Table::L3DecTtl) {
            flows.push(Table::L3DecTtl.flow(0).then(Table::L2ForwardingCalc.resubmit()));
        }
        for (family, address) in self.node.addresses.iter() {
            let out = Action::output_field(OUT_PORT.subfield());
            flows.push(Table::L2ForwardingOut.flow(200).when(family.ip().mark(FOUND)).then(out));
            if self.is_policy_only() {
                continue;
            }
            let to_gateway = self.to_be_rewritten(family).to(address.gateway);
            flows.push(self.through_gateway(200, to_gateway, Table::L2ForwardingCalc));
            // The host has counted its own packets down.
            let at = |priority, matches| Table::L3DecTtl.flow(priority).when(matches);
            flows.push(at(210, family.ip().mark(FROM_GATEWAY)).then(Table::L2ForwardingCalc.resubmit()));
            flows.push(at(200, family.ip()).then(Action::DecTtl).then(Table::L2ForwardingCalc.resubmit()));
            let replies = family.ip().ct(state::RPL | state::TRK, 0).mark(CT_GATEWAY);
            flows.push(self.through_gateway(210, replies, Table::L2ForwardingCalc));
            // Policies are asked about addresses, so a Pod's packet must not get elsewhere by its MAC address.
            let elsewhere = family.ip().mark(FROM_POD).with_masked(Field::EthDst, 0u8, MULTICAST);
            flows.push(self.through_gateway(170, elsewhere, Table::L2ForwardingCalc));
            if self.has_proxy() {
                let services = family.ip().ct(state::TRK, 0).mark(CT_SERVICE).mark(REWRITE);
                flows.push(self.through_gateway(190, services, Table::L3DecTtl));
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
            // Whatever MAC address it was sent to: a connection that came by another way would not be asked about by the
            // policies of the Pod, but count as accepted.
            let priority = if self.is_policy_only() { 200 } else { 180 };
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
                        .flow(200)
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
            PeerPath::Route => self.through_gateway(200, to_peer, Table::L2ForwardingCalc),
            PeerPath::Tunnel(node) => Table::L3Forwarding
                .flow(200)
                .when(to_peer)
                .then(Action::set(Field::EthSrc, self.node.gateway.mac))
                .then(Action::set(Field::EthDst, Mac::GLOBAL_VIRTUAL))
                .then(Action::set(Family::of(node).tunnel_dst(), bits(node)))
                .then(Table::L3DecTtl.resubmit()),
        }]
    }

    /// To the host, which knows the way.
    pub(crate) fn through_gateway(&self, priority: u16, matches: Match, next: Table) -> Flow {
        Table::L3Forwarding
            .flow(priority)
            .when(matches)
            .then(Action::set(Field::EthDst, self.node.gateway.mac))
            .then(next.resubmit())
    }

    /// Packets whose MAC addresses are not those of this Node's ports.
    fn to_be_rewritten(&self, family: Family) -> Match {
        if self.has_proxy() { family.ip().mark(REWRITE) } else { family.ip().with(Field::EthDst, Mac::GLOBAL_VIRTUAL) }
    }

    /// What is for the gateway or a tunnel meets no ingress rules here.
    fn after_l2(&self) -> Action {
        if self.has_proxy() {
            self.layout.to([Table::IngressMetric, Table::ConntrackCommit])
        } else {
            self.layout.to([Table::AntreaIngress, Table::IngressRule])
        }
    }

    fn found(&self, mac: Mac, port: Port, next: Action) -> Flow {
        Table::L2ForwardingCalc
            .flow(200)
            .when(Match::any().with(Field::EthDst, mac))
            .then(OUT_PORT.holds(u128::from(port.0)).load())
            .then(FOUND.load())
            .then(next)
    }
}
