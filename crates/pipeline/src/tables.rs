//! The tables, in the order in which a packet meets them, and where it goes from one to the next.

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

            /// Its name, as commands print it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Table::$name => stringify!($name),)*
                }
            }
        }
    };
}

tables! {
    /// Where does the packet come from?
    Classifier = 0;
    /// Is it who it says it is?
    SpoofGuard = 10;
    /// Answers ARP requests for addresses that are not here.
    ArpResponder = 20;
    /// Answers neighbour solicitations for addresses that are not here.
    NdResponder = 21;
    /// The second half of an answer to a neighbour solicitation.
    NdAnswer = 22;
    /// Gives replies of a Pod to itself their destination back.
    ServiceHairpin = 23;
    /// Undoes the translation of the source.
    ServiceConntrack = 24;
    /// Finds the packet's connection, and translates as it was.
    Conntrack = 30;
    /// Drops what is invalid, and lets what is known pass the choice of an endpoint.
    ConntrackState = 31;
    /// Is the destination an address on which NodePorts listen?
    ServiceClassifier = 35;
    /// Has the client been here before? With kube-proxy: is it a Service at all?
    SessionAffinity = 40;
    /// Chooses an endpoint.
    ServiceLb = 41;
    /// Translates the destination to the endpoint.
    EndpointDnat = 42;
    /// Egress rules of Antrea policies.
    AntreaEgress = 45;
    /// Egress rules of Kubernetes policies.
    EgressRule = 50;
    /// What no egress rule has allowed, and the baseline.
    EgressDefault = 60;
    /// Counts what egress rules did.
    EgressMetric = 61;
    /// Where to, by address.
    L3Forwarding = 70;
    /// Counts the time to live down.
    L3DecTtl = 72;
    /// Where to, by MAC address.
    L2ForwardingCalc = 80;
    /// Ingress rules of Antrea policies.
    AntreaIngress = 85;
    /// Ingress rules of Kubernetes policies.
    IngressRule = 90;
    /// What no ingress rule has allowed, and the baseline.
    IngressDefault = 100;
    /// Counts what ingress rules did.
    IngressMetric = 101;
    /// Remembers the connection.
    ConntrackCommit = 105;
    /// Translates the source of connections to Services.
    ServiceConntrackCommit = 106;
    /// Gives packets of a Pod to itself another source.
    HairpinSnat = 108;
    /// Out.
    L2ForwardingOut = 110;
}

impl Table {
    /// Its number on the wire.
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

    /// Goes on here.
    pub fn resubmit(self) -> Action {
        Action::resubmit(self.id())
    }
}

/// Which tables are in use, and which follows which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    features: Features,
    policy_only: bool,
    ipv6: bool,
}

impl Layout {
    /// The layout for a Node.
    pub fn new(mode: Mode, features: Features, ipv6: bool) -> Self {
        Self { features, policy_only: mode == Mode::NetworkPolicyOnly, ipv6 }
    }

    /// Whether the table is in use.
    pub fn has(&self, table: Table) -> bool {
        let Features { antrea_proxy: proxy, proxy_all, antrea_policy: policy, .. } = self.features;
        match table {
            Table::ServiceHairpin | Table::ServiceLb | Table::EndpointDnat | Table::HairpinSnat => proxy,
            Table::ServiceConntrack | Table::ServiceClassifier | Table::ServiceConntrackCommit => proxy && proxy_all,
            Table::AntreaEgress | Table::AntreaIngress | Table::EgressMetric | Table::IngressMetric => policy,
            Table::NdResponder | Table::NdAnswer => self.ipv6,
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
