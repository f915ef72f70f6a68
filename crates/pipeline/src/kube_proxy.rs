//! With kube-proxy: packets for Services go through the host, and policies are evaluated when they return.

use openflow::action::Action;
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::port::Port;

use crate::Pipeline;
use crate::conntrack::{Tracked, state};
use crate::family::{Addressed, Family};
use crate::model::{Mac, Mode};
use crate::priority;
use crate::regs::{CT_GATEWAY, FOUND, FROM_GATEWAY, FROM_POD, Marked, OUT_PORT};
use crate::tables::Table;

impl Pipeline {
    pub(crate) fn kube_proxy_base(&self) -> Vec<Flow> {
        // In this variant the table matches packets for Services.
        let dnat = Table::SessionAffinity;
        let gateway = self.node.gateway;
        let mut flows = vec![
            Table::ConntrackState.flow(priority::MISS).then(dnat.resubmit()),
            dnat.flow(priority::MISS).then(self.layout.to([Table::AntreaEgress, Table::EgressRule])),
        ];
        for (family, _) in self.node.addresses.iter() {
            let at = |priority| Table::ConntrackState.flow(priority);
            let of_gateway = || family.ip().ct(state::TRK, state::NEW).mark(CT_GATEWAY);
            flows.push(
                at(priority::conntrack_state_kube_proxy::DROP_INVALID).when(family.ip().ct(state::INV | state::TRK, 0)),
            );
            flows.push(
                at(priority::conntrack_state_kube_proxy::FROM_GATEWAY)
                    .when(of_gateway().mark(FROM_GATEWAY))
                    .then(dnat.resubmit()),
            );
            // Replies to connections from the host return through it, since it must revert its NAT.
            flows.push(
                at(priority::conntrack_state_kube_proxy::TO_GATEWAY)
                    .when(of_gateway())
                    .then(Action::set(Field::EthDst, gateway.mac))
                    .then(dnat.resubmit()),
            );
        }
        if self.node.mode != Mode::Encap {
            flows.extend(self.node.addresses.iter().flat_map(|(family, _)| self.re_entrance(family)));
        }
        for cidr in &self.node.service_cidrs {
            let family = Family::of(cidr.addr());
            // Packets from the host must not be sent back to it.
            let services = family.ip().within(family.dst(), *cidr).mark(FROM_POD);
            flows.push(
                dnat.flow(priority::DISJOINT)
                    .when(services)
                    .then(Action::set(Field::EthDst, gateway.mac))
                    .then(OUT_PORT.holds(u128::from(gateway.port.0)).load())
                    .then(FOUND.load())
                    .then(Table::ConntrackCommit.resubmit()),
            );
        }
        flows
    }

    /// A packet that the host has DNATed and sent back for policies enters the host a second time, which routes it to the
    /// endpoint. The host must not track it again, and recognises it by its source MAC.
    fn re_entrance(&self, family: Family) -> [Flow; 2] {
        let gateway = self.node.gateway.port.0;
        let again = || {
            let known = family.ip().with(Field::InPort, gateway).mark(FOUND);
            known.mark(OUT_PORT.holds(u128::from(gateway)))
        };
        [
            Table::ConntrackCommit
                .flow(priority::conntrack_commit::SKIP_RE_ENTRANT)
                .when(again())
                .then(Table::L2ForwardingOut.resubmit()),
            Table::L2ForwardingOut
                .flow(priority::l2_forwarding_out::HAIRPIN)
                .when(again())
                .then(Action::set(Field::EthSrc, Mac::REENTRANCE))
                .then(Action::Output(Port::IN_PORT)),
        ]
    }
}
