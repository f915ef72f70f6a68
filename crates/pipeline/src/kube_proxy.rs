//! Where kube-proxy balances Services: their packets go through the host, and policies see them when they come back.

use openflow::action::Action;
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::port::Port;

use crate::Pipeline;
use crate::conntrack::{Tracked, state};
use crate::family::{Addressed, Family};
use crate::model::{Mac, Mode};
use crate::regs::{CT_GATEWAY, FOUND, FROM_GATEWAY, FROM_POD, Marked, OUT_PORT};
use crate::tables::Table;

impl Pipeline {
    pub(crate) fn kube_proxy_base(&self) -> Vec<Flow> {
        // In this variant the table says which packets are for Services.
        let dnat = Table::SessionAffinity;
        let gateway = self.node.gateway;
        let mut flows = vec![
            Table::ConntrackState.flow(0).then(dnat.resubmit()),
            dnat.flow(0).then(self.layout.to([Table::AntreaEgress, Table::EgressRule])),
        ];
        for (family, _) in self.node.addresses.iter() {
            let at = |priority| Table::ConntrackState.flow(priority);
            let of_gateway = || family.ip().ct(state::TRK, state::NEW).mark(CT_GATEWAY);
            flows.push(at(220).when(family.ip().ct(state::INV | state::TRK, 0)));
            flows.push(at(210).when(of_gateway().mark(FROM_GATEWAY)).then(dnat.resubmit()));
            // Replies to what came through the host go back through it: it has to undo its translation.
            flows.push(at(200).when(of_gateway()).then(Action::set(Field::EthDst, gateway.mac)).then(dnat.resubmit()));
        }
        if self.node.mode != Mode::Encap {
            flows.extend(self.node.addresses.iter().flat_map(|(family, _)| self.re_entrance(family)));
        }
        for cidr in &self.node.service_cidrs {
            let family = Family::of(cidr.addr());
            // What comes from the host must not be sent back to it.
            let services = family.ip().within(family.dst(), *cidr).mark(FROM_POD);
            flows.push(
                dnat.flow(200)
                    .when(services)
                    .then(Action::set(Field::EthDst, gateway.mac))
                    .then(OUT_PORT.holds(u128::from(gateway.port.0)).load())
                    .then(FOUND.load())
                    .then(Table::ConntrackCommit.resubmit()),
            );
        }
        flows
    }

    /// A packet that the host has resolved and sent back here for policies goes to the host a second time, which knows the
    /// way to the endpoint. The host must not track it again, and knows it by its source MAC.
    fn re_entrance(&self, family: Family) -> [Flow; 2] {
        let gateway = self.node.gateway.port.0;
        let again = || {
            let known = family.ip().with(Field::InPort, gateway).mark(FOUND);
            known.mark(OUT_PORT.holds(u128::from(gateway)))
        };
        [
            Table::ConntrackCommit.flow(210).when(again()).then(Table::L2ForwardingOut.resubmit()),
            Table::L2ForwardingOut
                .flow(210)
                .when(again())
                .then(Action::set(Field::EthSrc, Mac::REENTRANCE))
                .then(Action::Output(Port::IN_PORT)),
        ]
    }
}
