//! The flows of a Node: what every packet meets between the port it comes in by and the one it leaves by.
//!
//! *Role.* Registers, tables and connection marks as types, and one compiler a feature: a free-standing description of the
//! Node, a Pod, a peer, a Service or a rule becomes flows and groups.
//!
//! *Invariants.* A compiler looks at its arguments only, so whatever changes is compiled alone. No two compilers write the same
//! flow with different actions, but for clauses of rules, which are joined. A connection passes policies unasked only when
//! all of them have accepted it.
//!
//! *Not here.* What to send to the switch (crate `delta`), and where the descriptions come from (crates `proxy`, `policy`, `node`).

pub mod model;
pub mod regs;
pub mod tables;

mod arp;
mod cidr;
mod conntrack;
mod family;
mod forwarding;
mod kube_proxy;
mod policy;
mod policy_only;
mod ports;
mod service;
mod spoof;
mod windows;

pub use family::DNAT_ZONES;
pub use service::USERDATA_NO_ENDPOINT;

use openflow::flow::Flow;
use openflow::group::Group;

use crate::model::{
    Applied, Direction, Endpoint, EndpointSet, Frontend, Mode, Node, Peer, Pod, Protocol, Rule, ServiceGroup,
};
use crate::tables::Layout;

/// The compilers for one Node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pipeline {
    node: Node,
    layout: Layout,
}

impl Pipeline {
    /// The pipeline of a Node.
    pub fn new(node: Node) -> Self {
        let layout = Layout::new(node.mode, node.features, node.addresses.v6.is_some());
        Self { node, layout }
    }

    /// Which tables are in use.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What depends on the Node alone.
    pub fn base(&self) -> Vec<Flow> {
        let mut flows = self.spoof_base();
        flows.extend(self.arp_base());
        flows.extend(self.conntrack_base());
        flows.extend(self.policy_base());
        flows.extend(self.forwarding_base());
        if self.node.features.antrea_proxy {
            flows.extend(self.service_base());
        } else {
            flows.extend(self.kube_proxy_base());
        }
        if self.is_policy_only() {
            flows.extend(self.policy_only_base());
        }
        if let Some(uplink) = self.node.uplink {
            flows.extend(self.uplink_base(uplink));
        }
        flows
    }

    /// What connects a Pod.
    pub fn pod(&self, pod: &Pod) -> Vec<Flow> {
        let mut flows = self.spoof_pod(pod);
        flows.extend(self.forwarding_pod(pod));
        flows.extend(self.policy_pod(pod));
        if self.is_policy_only() {
            flows.extend(self.policy_only_pod(pod));
        }
        flows
    }

    /// What leads to another Node.
    pub fn peer(&self, peer: &Peer) -> Vec<Flow> {
        let mut flows = self.arp_peer(peer);
        flows.extend(self.forwarding_peer(peer));
        flows
    }

    /// One way into a Service; `cookie` must be no other frontend's, as it is what the switch tells learned flows apart by.
    pub fn frontend(&self, frontend: &Frontend, cookie: u64) -> Vec<Flow> {
        self.service_frontend(frontend, cookie)
    }

    /// What a client whose choice is remembered finds: that endpoint if the frontend still leads to it, and otherwise the choice of
    /// another. Without it such a client keeps an endpoint that any other Service has.
    pub fn remembered(&self, frontend: &Frontend, endpoints: &EndpointSet, cookie: u64) -> Vec<Flow> {
        self.service_remembered(frontend, endpoints, cookie)
    }

    /// What leads to an endpoint once it has been chosen. It has to be there before a group can choose it.
    pub fn endpoint(&self, protocol: Protocol, endpoint: &Endpoint) -> Vec<Flow> {
        self.service_endpoint(protocol, endpoint)
    }

    /// The group that chooses among endpoints.
    pub fn group(&self, group: &ServiceGroup) -> Group {
        self.service_group(group)
    }

    /// A policy rule, as clauses that are shared with other rules.
    pub fn rule(&self, rule: &Rule) -> Vec<Flow> {
        self.policy_rule(rule)
    }

    /// A Pod of whose connections in one direction only those pass that a rule allows.
    pub fn isolated(&self, direction: Direction, pod: &Applied) -> Vec<Flow> {
        self.policy_isolated(direction, pod)
    }

    fn is_policy_only(&self) -> bool {
        self.node.mode == Mode::NetworkPolicyOnly
    }

    fn has_proxy(&self) -> bool {
        self.node.features.antrea_proxy
    }

    fn has_proxy_all(&self) -> bool {
        self.node.features.antrea_proxy && self.node.features.proxy_all
    }
}
