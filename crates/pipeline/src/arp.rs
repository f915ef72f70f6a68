//! Answers to ARP and neighbour discovery for addresses behind a tunnel and for virtual addresses.

use std::net::IpAddr;

use openflow::action::{Action, Subfield};
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::{Match, ip_proto};
use openflow::port::Port;

use crate::Pipeline;
use crate::family::{Family, bits};
use crate::model::{Mac, Peer, PeerPath};
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

/// A message of neighbour discovery.
pub(crate) fn neighbour_discovery(kind: u8) -> Match {
    Match::ipv6().with(Field::IpProto, ip_proto::ICMPV6).with(Field::Icmpv6Type, kind)
}

/// Turns a solicitation into an advertisement of the virtual MAC; `announce` writes its source address.
pub(crate) fn nd_reply(announce: Action) -> Vec<Action> {
    vec![
        copy(Field::EthSrc, Field::EthDst),
        Action::set(Field::EthSrc, Mac::GLOBAL_VIRTUAL),
        copy(Field::Ipv6Src, Field::Ipv6Dst),
        announce,
        Action::set(Field::Icmpv6Type, ADVERTISEMENT),
        Action::set(Field::NdReserved, SOLICITED_OVERRIDE),
        Action::set(Field::NdOptionsType, TARGET_ADDRESS_OPTION),
        Table::NdAnswer.resubmit(),
    ]
}

impl Pipeline {
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
            flows.push(Table::NdResponder.flow(priority::MISS));
            // `nd_tll` can only be written in a flow that matches advertisements.
            flows.push(
                Table::NdAnswer
                    .flow(priority::DISJOINT)
                    .when(neighbour_discovery(ADVERTISEMENT))
                    .then(Action::set(Field::NdTll, Mac::GLOBAL_VIRTUAL))
                    .then(Action::Output(Port::IN_PORT)),
            );
            flows.push(Table::NdAnswer.flow(priority::MISS));
        }
        // Policy-only mode answers for all addresses.
        if self.has_proxy_all() && !self.is_policy_only() {
            for (_, address) in self.node.addresses.iter() {
                flows.extend([address.virtual_service, address.snat].map(answer));
            }
        }
        flows
    }

    /// Only the host resolves a peer's gateway, as the next hop to the peer's Pods.
    pub(crate) fn arp_peer(&self, peer: &Peer) -> Vec<Flow> {
        match peer.path {
            PeerPath::Tunnel(_) => vec![answer(peer.gateway)],
            PeerPath::Route => Vec::new(),
        }
    }
}

/// Answers requests for the address with the virtual MAC.
fn answer(address: IpAddr) -> Flow {
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
            nd_reply(Action::set(Field::Ipv6Src, bits(address))).into_iter().fold(flow, Flow::then)
        }
    }
}
