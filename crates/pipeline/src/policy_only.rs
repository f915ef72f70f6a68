//! Policy-only mode: another CNI plugin connects the Pods, and the bridge sits between them and the host unseen.

use std::net::{IpAddr, Ipv4Addr};

use openflow::action::{Action, Subfield};
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::Match;
use openflow::port::Port;

use crate::Pipeline;
use crate::arp::{arp_reply, copy, nd_reply, solicitation};
use crate::conntrack::{Tracked, state};
use crate::model::Pod;
use crate::regs::{CT_GATEWAY, Marked, SWAP};
use crate::tables::Table;

impl Pipeline {
    pub(crate) fn policy_only_base(&self) -> Vec<Flow> {
        // Whatever a Pod looks for is behind us.
        let mut flows = vec![answer_any()];
        if self.node.addresses.v6.is_some() {
            flows.push(answer_any6());
        }
        for (family, _) in self.node.addresses.iter() {
            let replies = family.ip().ct(state::RPL | state::TRK, 0).mark(CT_GATEWAY);
            flows.push(self.through_gateway(210, replies, Table::L2ForwardingCalc));
            flows.push(self.through_gateway(190, family.ip(), Table::L2ForwardingCalc));
        }
        flows
    }

    /// A Pod that announces its address is not told that we have it, or the Pod would find its own address taken. (A probe from
    /// 0.0.0.0 does not get this far: no Pod has that address.)
    #[expect(clippy::unused_self, reason = "all compilers are asked the same way")]
    pub(crate) fn policy_only_pod(&self, pod: &Pod) -> Vec<Flow> {
        let itself = |address: &Ipv4Addr| {
            let address = u32::from(*address);
            Match::arp().with(Field::ArpOp, 1u8).with(Field::ArpSpa, address).with(Field::ArpTpa, address)
        };
        let own = pod.addresses.iter().filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        own.map(|a| Table::ArpResponder.flow(210).when(itself(a)).then(Action::Output(Port::NORMAL))).collect()
    }
}

/// Answers for any address: it is exchanged with the asker's.
fn answer_any() -> Flow {
    let swap = SWAP.subfield();
    let announce = [
        Action::Move { src: Subfield::whole(Field::ArpTpa), dst: swap },
        copy(Field::ArpSpa, Field::ArpTpa),
        Action::Move { src: swap, dst: Subfield::whole(Field::ArpSpa) },
    ];
    let flow = Table::ArpResponder.flow(200).when(Match::arp().with(Field::ArpOp, 1u8));
    arp_reply(announce).into_iter().fold(flow, Flow::then)
}

/// The same for IPv6.
fn answer_any6() -> Flow {
    let flow = Table::NdResponder.flow(200).when(solicitation());
    nd_reply(copy(Field::NdTarget, Field::Ipv6Src)).into_iter().fold(flow, Flow::then)
}
