//! The flows of a Node: everything that happens to a packet between its input port and its output port.
//!
//! *Role.* Registers, tables and connection marks as types, and one compiler per feature: it turns a self-contained description
//! of the Node, a Pod, a peer, a Service or a rule into flows and groups.
//!
//! *Invariants.* A compiler depends on its arguments only, so a changed object is compiled alone. No two compilers write the
//! same flow with different actions, except for clauses of rules, which are merged. A connection bypasses policies only
//! after all of them have accepted it.
//!
//! *Not here.* The difference to send to the switch (crate `delta`), and the sources of the descriptions (crates `proxy`,
//! `policy`, `node`).

pub mod model;
pub mod regs;
pub mod tables;

mod arp;
mod cidr;
mod conntrack;
mod family;
mod forwarding;
mod fragments;
mod kube_proxy;
mod policy;
mod policy_only;
mod ports;
mod priority;
mod service;
mod spoof;
mod transport;
mod tunnel;
mod windows;

pub use family::DNAT_ZONES;
pub use policy::USERDATA_REJECT;
pub use priority::{BASELINE_PRIORITIES, TIER_PRIORITIES};
pub use service::USERDATA_NO_ENDPOINT;
pub use transport::TransportBridge;

use std::collections::BTreeSet;
use std::net::IpAddr;

use openflow::flow::Flow;
use openflow::group::Group;

use crate::model::{
    Applied, Direction, Endpoint, EndpointSet, Mode, Node, Peer, Pod, Protocol, Rule, ServiceFrontend, ServiceGroup,
};
use crate::tables::Layout;

/// The compilers for one Node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pipeline {
    node: Node,
    layout: Layout,
}

impl Pipeline {
    /// Compilers for this Node; a Node that changes needs a new pipeline.
    pub fn new(node: Node) -> Self {
        let layout = Layout::new(node.mode, node.features, node.addresses.v6.is_some(), !node.tunnels.is_empty());
        Self { node, layout }
    }

    /// The tables that this Node uses.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Flows that depend on the Node alone.
    pub fn base(&self) -> Vec<Flow> {
        let mut flows = self.spoof_base();
        flows.extend(self.tunnel_base());
        flows.extend(self.arp_base());
        flows.extend(self.conntrack_base());
        flows.extend(self.policy_base());
        flows.extend(self.forwarding_base());
        if self.node.features.antrea_proxy {
            flows.extend(self.service_base());
            flows.extend(self.fragment_base());
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

    /// Flows that connect a Pod.
    pub fn pod(&self, pod: &Pod) -> Vec<Flow> {
        let mut flows = self.spoof_pod(pod);
        flows.extend(self.related_pod(pod));
        flows.extend(self.forwarding_pod(pod));
        flows.extend(self.policy_pod(pod));
        if self.is_policy_only() {
            flows.extend(self.policy_only_pod(pod));
        }
        flows
    }

    /// Flows that forward to one Pod subnet of another Node.
    pub fn peer(&self, peer: &Peer) -> Vec<Flow> {
        let mut flows = self.arp_peer(peer);
        flows.extend(self.forwarding_peer(peer));
        flows.extend(self.spoof_peer(peer));
        flows
    }

    /// Which tunnel packets are accepted from another Node with these addresses and Pod subnets, and the guard of its tunnel ports.
    pub fn peer_node(&self, addresses: &BTreeSet<IpAddr>, subnets: &[Peer]) -> Vec<Flow> {
        let mut flows = self.tunnel_sources(addresses, subnets);
        flows.extend(self.tunnel_targets(addresses));
        flows
    }

    /// Flows of one frontend. `cookie` must be unique among frontends: it identifies the flows that the switch learns for it.
    pub fn frontend(&self, frontend: &ServiceFrontend, cookie: u64) -> Vec<Flow> {
        self.service_frontend(frontend, cookie)
    }

    /// Flows of one frontend for fragments, where [`Pipeline::serves_fragments`]. Its groups are those of
    /// [`Pipeline::fragment_group`].
    pub fn fragments(&self, frontend: &ServiceFrontend, cookie: u64) -> Vec<Flow> {
        let mut flows = self.fragments_in_order(frontend);
        flows.extend(self.service_first_fragments(frontend, cookie));
        flows
    }

    /// Session affinity: keep the learned endpoint while it still backs this frontend, otherwise select again. Without these
    /// flows a client could stay on an endpoint that now belongs only to another Service.
    pub fn remembered(&self, frontend: &ServiceFrontend, endpoints: &EndpointSet, cookie: u64) -> Vec<Flow> {
        self.service_remembered(frontend, endpoints, cookie)
    }

    /// DNAT to an endpoint after it was selected. These flows must be installed before a group can select the endpoint.
    pub fn endpoint(&self, protocol: Protocol, endpoint: &Endpoint) -> Vec<Flow> {
        self.service_endpoint(protocol, endpoint)
    }

    /// The group that selects one of the endpoints of a Service.
    pub fn group(&self, group: &ServiceGroup) -> Group {
        self.service_group(group)
    }

    /// The group that selects one of the endpoints of a Service for a fragmented packet.
    pub fn fragment_group(&self, group: &ServiceGroup) -> Group {
        self.first_fragment_group(group)
    }

    /// A policy rule as a conjunction, whose clauses are shared with other rules.
    pub fn rule(&self, rule: &Rule) -> Vec<Flow> {
        self.policy_rule(rule)
    }

    /// Isolated Pod: connections in this direction that no rule allows are dropped.
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
