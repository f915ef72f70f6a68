//! Classification of packets by source, and the spoof guard.

use std::net::IpAddr;

use ipnet::IpNet;
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::Match;
use openflow::port::Port;

use crate::Pipeline;
use crate::arp::{ADVERTISEMENT, SOLICITATION, discovery_of_any_code, neighbour_discovery};
use crate::family::{Addressed, Family, bits};
use crate::model::{Address, Mac, Peer, PeerPath, Pod};
use crate::priority;
use crate::regs::{FROM_GATEWAY, FROM_POD, FROM_TUNNEL, REWRITE};
use crate::tables::Table;

/// `nd_sll` and `nd_tll` of a message without the option.
const NO_MAC: Mac = Mac([0; 6]);
/// The bit of `vlan_vid` that is set in tagged frames (`CFI`).
const TAGGED: u16 = 0x1000;

impl Pipeline {
    pub(crate) fn spoof_base(&self) -> Vec<Flow> {
        let gateway = self.node.gateway;
        let from = |port: u32| Match::any().with(Field::InPort, port);
        let mut flows = vec![
            Table::Classifier.flow(priority::MISS),
            Table::Classifier
                .flow(priority::classifier::HOST_PORT)
                .when(from(gateway.port.0))
                .then(FROM_GATEWAY.load())
                .then(Table::SpoofGuard.resubmit()),
            Table::SpoofGuard.flow(priority::MISS),
            // No port uses VLANs. NORMAL learns per VLAN, so tagged ARP from one Pod could fill the MAC table.
            Table::SpoofGuard.flow(priority::spoof_guard::DROP_TAGGED).when(Match::any().with_masked(
                Field::VlanVid,
                TAGGED,
                TAGGED,
            )),
        ];
        for tunnel in &self.node.tunnels {
            let mut flow =
                Table::Classifier.flow(priority::classifier::HOST_PORT).when(from(tunnel.0)).then(FROM_TUNNEL.load());
            if self.has_proxy() {
                flow = flow.then(REWRITE.load());
            }
            flows.push(flow.then(Table::SpoofGuard.resubmit()));
        }
        for (family, address) in self.node.addresses.iter() {
            // Loopback destinations are dropped in L3Forwarding, after DNAT.
            let loopback = family.loopback().into_iter().map(|loopback| family.ip().within(family.src(), loopback));
            flows.extend(
                loopback.map(|matches| Table::SpoofGuard.flow(priority::spoof_guard::DROP_LOOPBACK).when(matches)),
            );
            flows.extend(self.gateway_sources(family, &address));
            flows.push(
                Table::SpoofGuard
                    .flow(priority::spoof_guard::SOURCE)
                    .when(family.ip().with(Field::InPort, gateway.port.0))
                    .then(self.after_spoof_guard()),
            );
            match family {
                Family::V4 => flows.push(arp_guard(gateway.port, gateway.mac, address.gateway)),
                // The host resolves the gateways of peers.
                Family::V6 => {
                    flows.extend(nd_guard(gateway.port, gateway.mac, address.gateway));
                    // OVS reads malformed options, such as two link-layer addresses, as target `::` without any option.
                    let unreadable = neighbour_discovery(SOLICITATION).with(Field::NdTarget, 0u8);
                    flows
                        .push(Table::SpoofGuard.flow(priority::spoof_guard::DROP_MALFORMED_DISCOVERY).when(unreadable));
                    // The rest must not pass as ordinary IPv6 packets.
                    let messages = [SOLICITATION, ADVERTISEMENT].map(discovery_of_any_code);
                    flows.extend(messages.map(|message| {
                        Table::SpoofGuard.flow(priority::spoof_guard::DROP_OTHER_DISCOVERY).when(message)
                    }));
                }
            }
        }
        flows
    }

    pub(crate) fn spoof_pod(&self, pod: &Pod) -> Vec<Flow> {
        let from = Match::any().with(Field::InPort, pod.port.0);
        let mut flows = vec![
            Table::Classifier
                .flow(priority::classifier::POD_PORT)
                .when(from)
                .then(FROM_POD.load())
                .then(Table::SpoofGuard.resubmit()),
        ];
        for address in &pod.addresses {
            let family = Family::of(*address);
            let itself = family.ip().with(Field::InPort, pod.port.0).with(Field::EthSrc, pod.mac).from(*address);
            flows.push(
                Table::SpoofGuard.flow(priority::spoof_guard::SOURCE).when(itself).then(self.after_spoof_guard()),
            );
            match family {
                Family::V4 => flows.push(arp_guard(pod.port, pod.mac, *address)),
                Family::V6 => flows.extend(nd_guard(pod.port, pod.mac, *address)),
            }
        }
        flows
    }

    /// Drops packets from the gateway whose source is in the Pod subnet of a tunnel peer: those arrive through the tunnel.
    pub(crate) fn spoof_peer(&self, peer: &Peer) -> Option<Flow> {
        match peer.path {
            PeerPath::Tunnel(_) => Some(self.not_from_gateway(peer.pod_cidr)),
            PeerPath::Route => None,
        }
    }

    /// Drops packets from the gateway whose source is in this Node's Pod subnet, except for the gateway's own address.
    ///
    /// Not where a proxy on the host balances Services (kube-proxy, or Services left to another proxy), nor in policy-only
    /// mode: there the packets of Pods return through the gateway with the Pod's source.
    fn gateway_sources(&self, family: Family, address: &Address) -> Vec<Flow> {
        if !self.has_proxy_all() || self.is_policy_only() || self.node.host_balances {
            return Vec::new();
        }
        let itself = family.ip().with(Field::InPort, self.node.gateway.port.0).from(address.gateway);
        let accept =
            Table::SpoofGuard.flow(priority::spoof_guard::GATEWAY_ADDRESS).when(itself).then(self.after_spoof_guard());
        vec![accept, self.not_from_gateway(address.pod_cidr)]
    }

    fn not_from_gateway(&self, pods: IpNet) -> Flow {
        let family = Family::of(pods.addr());
        let spoofed = family.ip().with(Field::InPort, self.node.gateway.port.0).within(family.src(), pods);
        Table::SpoofGuard.flow(priority::spoof_guard::DROP_PODS_FROM_GATEWAY).when(spoofed)
    }

    fn after_spoof_guard(&self) -> openflow::action::Action {
        self.layout.to([Table::ServiceHairpin, Table::ServiceConntrack, Table::Conntrack])
    }
}

/// Only the owner of an address may announce it, and only with its own Ethernet source, from which NORMAL learns.
fn arp_guard(port: Port, mac: Mac, address: IpAddr) -> Flow {
    let frame = Match::arp().with(Field::InPort, port.0).with(Field::EthSrc, mac);
    let announced = frame.with(Field::ArpSpa, bits(address)).with(Field::ArpSha, mac);
    Table::SpoofGuard.flow(priority::spoof_guard::SOURCE).when(announced).then(Table::ArpResponder.resubmit())
}

/// A port may send solicitations from its address or from `::`, and may advertise its address. A link-layer address option must
/// hold the sender's MAC.
fn nd_guard(port: Port, mac: Mac, address: IpAddr) -> Vec<Flow> {
    let message = |kind: u8| neighbour_discovery(kind).with(Field::InPort, port.0).with(Field::EthSrc, mac);
    let link_local = (u128::from(0xfe80u16) << 112, u128::from(0xffc0u16) << 112);
    let to_responder = |matches: Match| {
        Table::SpoofGuard
            .flow(priority::spoof_guard::NEIGHBOUR_DISCOVERY)
            .when(matches)
            .then(Table::NdResponder.resubmit())
    };
    // RFC 4861, 4.3: no source link-layer address option with the unspecified source.
    let mut flows = vec![to_responder(message(SOLICITATION).with(Field::Ipv6Src, 0u8).with(Field::NdSll, NO_MAC))];
    for named in [mac, NO_MAC] {
        let solicitation = || message(SOLICITATION).with(Field::NdSll, named);
        let advertisement = || message(ADVERTISEMENT).with(Field::NdTll, named);
        flows.extend([
            to_responder(solicitation().from(address)),
            to_responder(solicitation().with_masked(Field::Ipv6Src, link_local.0, link_local.1)),
            to_responder(advertisement().with(Field::NdTarget, bits(address))),
            to_responder(advertisement().with_masked(Field::NdTarget, link_local.0, link_local.1)),
        ]);
    }
    flows
}
