//! A bridge with the Node's uplink as a port and the Node's address on the local port, as on Windows: the host's own traffic
//! passes through it. Services, policies and forwarding are the same as on other Nodes.

use openflow::action::Action;
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::matching::Match;
use openflow::port::Port;

use crate::Pipeline;
use crate::family::Addressed;
use crate::model::{Mac, Mode, Uplink};
use crate::priority;
use crate::regs::{FROM_UPLINK, REWRITE};
use crate::tables::Table;

impl Pipeline {
    pub(crate) fn uplink_base(&self, uplink: Uplink) -> Vec<Flow> {
        let from = |port: Port| Match::any().with(Field::InPort, port.0);
        let between = |this: Port, other: Port| {
            Table::Classifier.flow(priority::classifier::HOST_PORT).when(from(this)).then(Action::Output(other))
        };
        let mut flows = vec![between(uplink.port, Port::LOCAL), between(Port::LOCAL, uplink.port)];
        // In encap mode, packets for Pods arrive through tunnels; others go to the host.
        if matches!(self.node.mode, Mode::NoEncap | Mode::Hybrid) {
            flows.extend(self.node.addresses.iter().map(|(family, address)| {
                let to_pods = family.ip().with(Field::InPort, uplink.port.0).within(family.dst(), address.pod_cidr);
                // As from a tunnel: the MACs are not yet those of a Pod and its gateway.
                let rewrite =
                    if self.has_proxy() { REWRITE.load() } else { Action::set(Field::EthDst, Mac::GLOBAL_VIRTUAL) };
                let flow = Table::Classifier
                    .flow(priority::classifier::UPLINK_TO_PODS)
                    .when(to_pods)
                    .then(FROM_UPLINK.load())
                    .then(rewrite);
                flow.then(self.layout.to([Table::ServiceConntrack, Table::Conntrack]))
            }));
        }
        flows
    }
}
