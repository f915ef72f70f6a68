//! Traces of packets, for display and for comparison in tests.

mod text;

pub use text::side_by_side;

use std::sync::Arc;

use openflow::action::Controller;
use openflow::field::Field;
use openflow::flow::Flow;
use openflow::port::Port;
use thiserror::Error;

use crate::fields::{CtFields, Tunnel};
use crate::groups::Pick;
use crate::packet::{Arrival, Packet};

/// The path of a packet, and its verdict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// The packet on arrival.
    pub arrival: Arrival,
    /// The table lookups, in order.
    pub steps: Vec<Step>,
    /// Whether the packet was sent or dropped.
    pub verdict: Verdict,
    /// The buckets of select groups, in order.
    pub picks: Vec<Pick>,
}

/// Whether a packet was sent or dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Output one or more times.
    Sent(Vec<Sent>),
    /// No output, for this reason.
    Dropped(Reason),
}

/// A packet that the switch sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Sent out of a port.
    Output {
        /// The port; `NORMAL` if the simulator has no list of ports.
        port: Port,
        /// The packet on output.
        packet: Packet,
        /// Metadata with which a tunnel port encapsulates.
        tunnel: Tunnel,
    },
    /// To the controller (packet-in).
    Controller {
        /// The controller action, with reason and userdata.
        how: Controller,
        /// The packet on output.
        packet: Packet,
        /// The table of the flow that sent it.
        table: u8,
        /// The cookie of that flow.
        cookie: u64,
    },
}

/// Why a packet was dropped.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Reason {
    /// A table has no flow for it.
    #[error("no flow of table {0} matches")]
    NoFlow(u8),
    /// A flow without actions.
    #[error("a flow of table {0} drops it")]
    FlowDrops(u8),
    /// The actions of its flows came to an end.
    #[error("no action sends it out")]
    NoOutput,
    /// Output to the input port, which only IN_PORT does.
    #[error("output to port {0}, by which it came in")]
    OutputToInPort(Port),
    /// Output to a port that does not exist.
    #[error("there is no port {0}")]
    NoPort(Port),
    /// A flow uses a group that does not exist.
    #[error("there is no group {0}")]
    NoGroup(u32),
    /// No bucket of a group is alive and has a weight.
    #[error("group {0} has no bucket to take")]
    NoBucket(u32),
    /// Tables were searched more often than the switch allows.
    #[error("more than {} resubmits", crate::run::MAX_RESUBMITS)]
    TooManyResubmits,
    /// Tables called tables that are not behind them more often than the switch allows.
    #[error("resubmits back more than {} deep", crate::run::MAX_DEPTH)]
    TooDeep,
    /// The packet went through connection tracking or a hash more often than the datapath allows.
    #[error("more than {} recirculations", crate::run::MAX_RECIRCULATIONS)]
    TooManyRecirculations,
    /// The TTL of the packet expired.
    #[error("time to live is over")]
    TtlExpired,
    /// A flow has an action that is not simulated.
    #[error("table {0} has an action that is not simulated")]
    NotSimulated(u8),
}

/// How a packet got to a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// From its input port.
    Start,
    /// By a resubmit of another flow.
    Resubmit,
    /// Recirculated by the connection tracker.
    Tracked(CtFields),
}

/// One table lookup of the packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// Depth of nested resubmits.
    pub depth: usize,
    /// How the packet got to this table.
    pub entry: Entry,
    /// Number of the table.
    pub table: u8,
    /// The flow that matched.
    pub flow: Option<Arc<Flow>>,
    /// The conjunction that made it match.
    pub conjunction: Option<u32>,
    /// The switch might have taken another flow of the same priority.
    pub tie: bool,
    /// Effects of the flow, in order.
    pub did: Vec<Did>,
}

/// An effect of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Did {
    /// Changed a field to this value.
    Set(Field, u128),
    /// Sent the packet to these ports.
    Output(Vec<Port>),
    /// Sent the packet to the controller.
    Controller,
    /// Took a bucket of a group.
    Bucket(Pick),
    /// Sent the packet through the connection tracker.
    Ct {
        /// Conntrack zone of the action.
        zone: u16,
        /// Whether the connection is committed.
        commit: bool,
        /// Whether the action has a `nat` argument.
        nat: bool,
        /// The table where the packet continues.
        table: Option<u8>,
    },
    /// Learned or refreshed this flow.
    Learned(Arc<Flow>),
    /// An action failed for this reason.
    Failed(Reason),
}

impl Trace {
    /// The packets sent to ports, in order.
    pub fn outputs(&self) -> impl Iterator<Item = (Port, &Packet)> {
        let sent: &[Sent] = match &self.verdict {
            Verdict::Sent(sent) => sent,
            Verdict::Dropped(_) => &[],
        };
        sent.iter().filter_map(|sent| match sent {
            Sent::Output { port, packet, .. } => Some((*port, packet)),
            Sent::Controller { .. } => None,
        })
    }

    /// Whether a table had two matching flows of equal priority.
    pub fn is_ambiguous(&self) -> bool {
        self.steps.iter().any(|step| step.tie)
    }
}
