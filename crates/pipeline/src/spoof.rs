//! Where a packet comes from, and whether it is who it says it is.

use std::net::IpAddr;

use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::Match;
use openflow::port::Port;

use crate::Pipeline;
use crate::family::{Addressed, Family, bits};
use crate::model::{Mac, Pod};
use crate::regs::{FROM_GATEWAY, FROM_POD, FROM_TUNNEL, REWRITE};
use crate::tables::Table;

/// Neighbour solicitation and advertisement.
const ND: [u8; 2] = [135, 136];

impl Pipeline {
    pub(crate) fn spoof_base(&self) -> Vec<Flow> {
        let gateway = self.node.gateway;
        let from = |port: u32| Match::any().with(Field::InPort, port);
        let mut flows = vec![
            Table::Classifier.flow(0),
            Table::Classifier
                .flow(200)
                .when(from(gateway.port.0))
                .then(FROM_GATEWAY.load())
                .then(Table::SpoofGuard.resubmit()),
            Table::SpoofGuard.flow(0),
        ];
        for tunnel in &self.node.tunnels {
            let mut flow = Table::Classifier.flow(200).when(from(tunnel.0)).then(FROM_TUNNEL.load());
            if self.has_proxy() {
                flow = flow.then(REWRITE.load());
            }
            flows.push(flow.then(self.layout.to([Table::ServiceConntrack, Table::Conntrack])));
        }
        for (family, address) in self.node.addresses.iter() {
            flows.push(
                Table::SpoofGuard
                    .flow(200)
                    .when(family.ip().with(Field::InPort, gateway.port.0))
                    .then(self.after_spoof_guard()),
            );
            match family {
                Family::V4 => flows.push(arp_guard(gateway.port, gateway.mac, address.gateway)),
                // The host looks for peers' gateways here.
                Family::V6 => flows.extend(nd_guard(gateway.port, gateway.mac, address.gateway)),
            }
        }
        flows
    }

    pub(crate) fn spoof_pod(&self, pod: &Pod) -> Vec<Flow> {
        let from = Match::any().with(Field::InPort, pod.port.0);
        let mut flows =
            vec![Table::Classifier.flow(190).when(from).then(FROM_POD.load()).then(Table::SpoofGuard.resubmit())];
        for address in &pod.addresses {
            let family = Family::of(*address);
            let itself = family.ip().with(Field::InPort, pod.port.0).with(Field::EthSrc, pod.mac).from(*address);
            flows.push(Table::SpoofGuard.flow(200).when(itself).then(self.after_spoof_guard()));
            match family {
                Family::V4 => flows.push(arp_guard(pod.port, pod.mac, *address)),
                Family::V6 => flows.extend(nd_guard(pod.port, pod.mac, *address)),
            }
        }
        flows
    }

    fn after_spoof_guard(&self) -> openflow::action::Action {
        self.layout.to([Table::ServiceHairpin, Table::ServiceConntrack, Table::Conntrack])
    }
}

/// Only who has the address may announce it.
fn arp_guard(port: Port, mac: Mac, address: IpAddr) -> Flow {
    let announced =
        Match::arp().with(Field::InPort, port.0).with(Field::ArpSpa, bits(address)).with(Field::ArpSha, mac);
    Table::SpoofGuard.flow(200).when(announced).then(Table::ArpResponder.resubmit())
}

/// Who has the address may look for neighbours from it, and from nowhere yet, and announce it.
fn nd_guard(port: Port, mac: Mac, address: IpAddr) -> Vec<Flow> {
    let message = |kind: u8| {
        Match::ipv6()
            .with(Field::InPort, port.0)
            .with(Field::EthSrc, mac)
            .with(Field::IpProto, openflow::matching::ip_proto::ICMPV6)
            .with(Field::Icmpv6Type, kind)
    };
    let [solicitation, advertisement] = ND;
    let link_local = (u128::from(0xfe80u16) << 112, u128::from(0xffc0u16) << 112);
    let to_responder = |matches: Match| Table::SpoofGuard.flow(210).when(matches).then(Table::NdResponder.resubmit());
    vec![
        to_responder(message(solicitation).from(address)),
        to_responder(message(solicitation).with(Field::Ipv6Src, 0u8)),
        to_responder(message(solicitation).with_masked(Field::Ipv6Src, link_local.0, link_local.1)),
        to_responder(message(advertisement).with(Field::NdTarget, bits(address))),
        to_responder(message(advertisement).with_masked(Field::NdTarget, link_local.0, link_local.1)),
    ]
}
