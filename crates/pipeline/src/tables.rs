//! The tables, in the order in which a packet passes them.

use openflow::action::Action;
use openflow::flow::Flow;

use crate::model::{Features, Mode};

macro_rules! tables {
    ($($(#[doc = $doc:literal])+ $name:ident = $id:literal;)*) => {
        /// A table of the pipeline. Its number is the one on the wire.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Table {
            $($(#[doc = $doc])+ $name = $id,)*
        }

        impl Table {
            /// Every table, in packet order.
            pub const ALL: &[Table] = &[$(Table::$name,)*];

            /// The name that commands print.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Table::$name => stringify!($name),)*
                }
            }
        }
    };
}

tables! {
    /// Marks the packet with its source: Pod, gateway, tunnel or uplink.
    Classifier = 0;
    /// Drops packets with a forged source.
    SpoofGuard = 10;
    /// Answers ARP requests for addresses that are not on this bridge.
    ArpResponder = 20;
    /// Answers neighbour solicitations for addresses that are not on this bridge.
    NdResponder = 21;
    /// Completes the answer to a neighbour solicitation.
    NdAnswer = 22;
    /// Restores the destination of a Pod's replies to itself.
    ServiceHairpin = 23;
    /// Reverts SNAT of replies in connections to Services.
    ServiceConntrack = 24;
    /// Looks up the connection, and applies its NAT.
    Conntrack = 30;
    /// Drops invalid packets; packets of known connections skip the selection of an endpoint.
    ConntrackState = 31;
    /// Drops ICMP errors of a Pod about connections of others.
    RelatedGuard = 32;
    /// Marks packets to addresses on which NodePorts listen.
    ServiceClassifier = 35;
    /// Session affinity: learned endpoints of clients. With kube-proxy: sends packets for Services to the host.
    SessionAffinity = 40;
    /// Selects an endpoint for a new connection.
    ServiceLb = 41;
    /// DNAT to the endpoint.
    EndpointDnat = 42;
    /// Egress rules of Antrea policies.
    AntreaEgress = 45;
    /// Egress rules of Kubernetes policies.
    EgressRule = 50;
    /// Drops packets of isolated Pods that no egress rule allowed, then the baseline tier.
    EgressDefault = 60;
    /// Counts packets of egress rules, and drops those that a rule denied.
    EgressMetric = 61;
    /// Drops tunnel packets to Node addresses.
    TunnelGuard = 65;
    /// Routes by IP address.
    L3Forwarding = 70;
    /// Decrements the TTL of routed packets.
    L3DecTtl = 72;
    /// Looks up the output port by MAC.
    L2ForwardingCalc = 80;
    /// Ingress rules of Antrea policies.
    AntreaIngress = 85;
    /// Ingress rules of Kubernetes policies.
    IngressRule = 90;
    /// Drops packets to isolated Pods that no ingress rule allowed, then the baseline tier.
    IngressDefault = 100;
    /// Counts packets of ingress rules, and drops those that a rule denied.
    IngressMetric = 101;
    /// Commits accepted connections to the tracker.
    ConntrackCommit = 105;
    /// SNAT of connections to Services.
    ServiceConntrackCommit = 106;
    /// Replaces the source of a Pod's packets to itself.
    HairpinSnat = 108;
    /// Outputs to the port in [`OUT_PORT`](crate::regs::OUT_PORT).
    L2ForwardingOut = 110;
}

impl Table {
    /// The table number on the wire.
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The table with this number.
    pub fn by_id(id: u8) -> Option<Table> {
        Table::ALL.iter().copied().find(|table| table.id() == id)
    }

    /// A flow in this table.
    pub fn flow(self, priority: u16) -> Flow {
        Flow::at(self.id(), priority)
    }

    /// `resubmit(,table)`: continues in this table.
    pub fn resubmit(self) -> Action {
        Action::resubmit(self.id())
    }
}

/// The tables that a Node uses, and their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    features: Features,
    policy_only: bool,
    ipv6: bool,
    tunnels: bool,
}

impl Layout {
    /// The layout for a Node.
    pub fn new(mode: Mode, features: Features, ipv6: bool, tunnels: bool) -> Self {
        Self { features, policy_only: mode == Mode::NetworkPolicyOnly, ipv6, tunnels }
    }

    /// Whether the table is in use.
    pub fn has(&self, table: Table) -> bool {
        let Features { antrea_proxy: proxy, proxy_all, antrea_policy: policy, .. } = self.features;
        match table {
            Table::ServiceHairpin | Table::ServiceLb | Table::EndpointDnat | Table::HairpinSnat => proxy,
            Table::ServiceConntrack | Table::ServiceClassifier | Table::ServiceConntrackCommit => proxy && proxy_all,
            Table::AntreaEgress | Table::AntreaIngress | Table::EgressMetric | Table::IngressMetric => policy,
            Table::NdResponder | Table::NdAnswer => self.ipv6,
            Table::TunnelGuard => self.tunnels,
            Table::L3DecTtl => !self.policy_only,
            _ => true,
        }
    }

    /// The tables in use, in packet order.
    pub fn tables(&self) -> impl Iterator<Item = Table> + '_ {
        Table::ALL.iter().copied().filter(|table| self.has(*table))
    }

    /// The first of the tables that is in use; the last one if none is.
    pub fn first_of<const N: usize>(&self, candidates: [Table; N]) -> Table {
        candidates.into_iter().find(|table| self.has(*table)).unwrap_or(Table::L2ForwardingOut)
    }

    /// The first of the tables that is in use, as an action.
    pub fn to<const N: usize>(&self, candidates: [Table; N]) -> Action {
        self.first_of(candidates).resubmit()
    }
}
