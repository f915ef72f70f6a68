//! Answers to ARP and neighbour discovery for addresses behind a tunnel and for virtual addresses.

use std::net::IpAddr;

use openflow::action::{Action, Subfield};
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::{Match, ip_proto};
use openflow::port::Port;

use crate::Pipeline;
use crate::family::{Family, bits};
use crate::model::{Datapath, Mac, Peer, PeerPath};
use crate::priority;
use crate::tables::Table;

pub(crate) const REQUEST: u8 = 1;
pub(crate) const REPLY: u8 = 2;
/// ICMPv6 types of neighbour discovery.
pub(crate) const SOLICITATION: u8 = 135;
pub(crate) const ADVERTISEMENT: u8 = 136;
/// Type of the target link-layer address option (RFC 4861, 4.6.1).
const TARGET_ADDRESS_OPTION: u8 = 2;
/// Flags of an advertisement: solicited, override.
const SOLICITED_OVERRIDE: u32 = 0x6000_0000;

pub(crate) fn copy(src: Field, dst: Field) -> Action {
    Action::Move { src: Subfield::whole(src), dst: Subfield::whole(dst) }
}

/// Turns a request into a reply with the virtual MAC; `announce` writes the announced address.
pub(crate) fn arp_reply(announce: impl IntoIterator<Item = Action>) -> Vec<Action> {
    let mut actions = vec![
        copy(Field::EthSrc, Field::EthDst),
        Action::set(Field::EthSrc, Mac::GLOBAL_VIRTUAL),
        Action::set(Field::ArpOp, REPLY),
        copy(Field::ArpSha, Field::ArpTha),
        Action::set(Field::ArpSha, Mac::GLOBAL_VIRTUAL),
    ];
    actions.extend(announce);
    actions.push(Action::Output(Port::IN_PORT));
    actions
}

pub(crate) fn solicitation() -> Match {
    neighbour_discovery(SOLICITATION)
}

/// A message of neighbour discovery, with any code.
pub(crate) fn discovery_of_any_code(kind: u8) -> Match {
    Match::ipv6().with(Field::IpProto, ip_proto::ICMPV6).with(Field::Icmpv6Type, kind)
}

/// A valid message of neighbour discovery. Without the code, ovs-vswitchd (3.1) leaves the target and the link-layer address out
/// of the kernel's flows: those of a valid message would apply to forged ones too.
pub(crate) fn neighbour_discovery(kind: u8) -> Match {
    discovery_of_any_code(kind).with(Field::Icmpv6Code, 0u8)
}

impl Pipeline {
    /// Whether flows can turn a solicitation into an advertisement: only the userspace datapath writes flags and option types.
    fn advertises(&self) -> bool {
        self.node.datapath == Datapath::Netdev
    }

    /// Turns a solicitation into an answer with the virtual MAC; `announce` writes its source address.
    ///
    /// Without advertisements, the answer is a solicitation for the asker's address: it takes the source and its MAC into its
    /// cache (RFC 4861, 7.2.3), and sends the packets that wait for them. They are not confirmed, so the asker forgets
    /// them after a while, and asks again.
    pub(crate) fn nd_reply(&self, announce: Action) -> Vec<Action> {
        let mut actions = vec![
            copy(Field::EthSrc, Field::EthDst),
            Action::set(Field::EthSrc, Mac::GLOBAL_VIRTUAL),
            copy(Field::Ipv6Src, Field::Ipv6Dst),
            announce,
        ];
        actions.extend(if self.advertises() {
            [
                Action::set(Field::Icmpv6Type, ADVERTISEMENT),
                Action::set(Field::NdReserved, SOLICITED_OVERRIDE),
                Action::set(Field::NdOptionsType, TARGET_ADDRESS_OPTION),
                Table::NdAnswer.resubmit(),
            ]
            .to_vec()
        } else {
            [
                copy(Field::Ipv6Dst, Field::NdTarget),
                Action::set(Field::NdSll, Mac::GLOBAL_VIRTUAL),
                Action::Output(Port::IN_PORT),
            ]
            .to_vec()
        });
        actions
    }

    /// Handles the second half of answers: of the switch's, or of the asker's to the switch.
    fn nd_answer(&self) -> Vec<Flow> {
        let advertisement = neighbour_discovery(ADVERTISEMENT);
        if self.advertises() {
            // `nd_tll` can only be written in a flow that matches advertisements.
            let answer = Table::NdAnswer.flow(priority::DISJOINT).when(advertisement);
            let answer =
                answer.then(Action::set(Field::NdTll, Mac::GLOBAL_VIRTUAL)).then(Action::Output(Port::IN_PORT));
            return vec![answer];
        }
        // The asker answers the solicitation that it got as an answer. No port has that MAC: it would be flooded.
        let to_switch = advertisement.with(Field::EthDst, Mac::GLOBAL_VIRTUAL);
        vec![Table::NdResponder.flow(priority::responder::ANSWER).when(to_switch)]
    }

    pub(crate) fn arp_base(&self) -> Vec<Flow> {
        let mut flows = vec![
            Table::ArpResponder.flow(priority::MISS),
            Table::ArpResponder
                .flow(priority::responder::FORWARD)
                .when(Match::arp())
                .then(Action::Output(Port::NORMAL)),
        ];
        if self.node.addresses.v6.is_some() {
            for kind in [SOLICITATION, ADVERTISEMENT] {
                flows.push(
                    Table::NdResponder
                        .flow(priority::responder::FORWARD)
                        .when(neighbour_discovery(kind))
                        .then(Action::Output(Port::NORMAL)),
                );
            }
            // Duplicate address detection: the source is `::`, so no unicast answer is possible.
            let probe = solicitation().with(Field::Ipv6Src, 0u8);
            flows.push(
                Table::NdResponder
                    .flow(priority::responder::DUPLICATE_ADDRESS_PROBE)
                    .when(probe)
                    .then(Action::Output(Port::NORMAL)),
            );
            flows.extend([Table::NdResponder, Table::NdAnswer].map(|table| table.flow(priority::MISS)));
            flows.extend(self.nd_answer());
        }
        // Policy-only mode answers for all addresses.
        if self.has_proxy_all() && !self.is_policy_only() {
            for (_, address) in self.node.addresses.iter() {
                flows.extend([address.virtual_service, address.snat].map(|address| self.answer(address)));
            }
        }
        flows
    }

    /// Only the host resolves a peer's gateway, as the next hop to the peer's Pods.
    pub(crate) fn arp_peer(&self, peer: &Peer) -> Vec<Flow> {
        match peer.path {
            PeerPath::Tunnel(_) => vec![self.answer(peer.gateway)],
            PeerPath::Route => Vec::new(),
        }
    }

    /// Answers requests for the address with the virtual MAC.
    fn answer(&self, address: IpAddr) -> Flow {
        match Family::of(address) {
            Family::V4 => {
                let wanted = Match::arp().with(Field::ArpTpa, bits(address)).with(Field::ArpOp, REQUEST);
                let announce = [copy(Field::ArpSpa, Field::ArpTpa), Action::set(Field::ArpSpa, bits(address))];
                let flow = Table::ArpResponder.flow(priority::responder::ANSWER).when(wanted);
                arp_reply(announce).into_iter().fold(flow, Flow::then)
            }
            Family::V6 => {
                let wanted = solicitation().with(Field::NdTarget, bits(address));
                let flow = Table::NdResponder.flow(priority::responder::ANSWER).when(wanted);
                self.nd_reply(Action::set(Field::Ipv6Src, bits(address))).into_iter().fold(flow, Flow::then)
            }
        }
    }
}
