//! Policy-only mode: another CNI plugin connects the Pods, and the bridge is transparent between them and the host.

use std::net::{IpAddr, Ipv4Addr};

use openflow::action::{Action, Subfield};
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::Match;
use openflow::port::Port;

use crate::Pipeline;
use crate::arp::{arp_reply, copy, solicitation};
use crate::conntrack::{Tracked, state};
use crate::model::Pod;
use crate::priority;
use crate::regs::{CT_GATEWAY, Marked, SWAP};
use crate::tables::Table;

impl Pipeline {
    pub(crate) fn policy_only_base(&self) -> Vec<Flow> {
        // All other addresses are behind the bridge.
        let mut flows = vec![answer_any()];
        if self.node.addresses.v6.is_some() {
            flows.push(self.answer_any6());
        }
        for (family, _) in self.node.addresses.iter() {
            let replies = family.ip().ct(state::RPL | state::TRK, 0).mark(CT_GATEWAY);
            flows.push(self.through_gateway(
                priority::l3_forwarding::REPLY_TO_GATEWAY,
                replies,
                Table::L2ForwardingCalc,
            ));
            flows.push(self.through_gateway(
                priority::l3_forwarding::POLICY_ONLY_DEFAULT,
                family.ip(),
                Table::L2ForwardingCalc,
            ));
        }
        flows
    }

    /// No answer to a Pod's announcement of its own address, or the Pod would detect a duplicate address. (A probe from
    /// 0.0.0.0 does not reach this table: no Pod has that address.)
    #[expect(clippy::unused_self, reason = "all compilers have the same signature")]
    pub(crate) fn policy_only_pod(&self, pod: &Pod) -> Vec<Flow> {
        let itself = |address: &Ipv4Addr| {
            let address = u32::from(*address);
            Match::arp().with(Field::ArpOp, 1u8).with(Field::ArpSpa, address).with(Field::ArpTpa, address)
        };
        let own = pod.addresses.iter().filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        own.map(|a| {
            Table::ArpResponder
                .flow(priority::responder::DUPLICATE_ADDRESS_PROBE)
                .when(itself(a))
                .then(Action::Output(Port::NORMAL))
        })
        .collect()
    }

    /// Answers neighbour solicitations for any address.
    fn answer_any6(&self) -> Flow {
        let flow = Table::NdResponder.flow(priority::responder::ANSWER).when(solicitation());
        self.nd_reply(copy(Field::NdTarget, Field::Ipv6Src)).into_iter().fold(flow, Flow::then)
    }
}

/// Answers requests for any address: swaps the sender's and the target's address.
fn answer_any() -> Flow {
    let swap = SWAP.subfield();
    let announce = [
        Action::Move { src: Subfield::whole(Field::ArpTpa), dst: swap },
        copy(Field::ArpSpa, Field::ArpTpa),
        Action::Move { src: swap, dst: Subfield::whole(Field::ArpSpa) },
    ];
    let flow = Table::ArpResponder.flow(priority::responder::ANSWER).when(Match::arp().with(Field::ArpOp, 1u8));
    arp_reply(announce).into_iter().fold(flow, Flow::then)
}
