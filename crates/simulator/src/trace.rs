//! The way a packet took: what a person reads, and what a test compares.

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

/// The way a packet took, and its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// The packet as it came in.
    pub arrival: Arrival,
    /// The tables it met, in order.
    pub steps: Vec<Step>,
    /// What became of it.
    pub verdict: Verdict,
    /// The buckets that select groups took, in order.
    pub picks: Vec<Pick>,
}

/// What became of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It left, once or more often.
    Sent(Vec<Sent>),
    /// It did not.
    Dropped(Reason),
}

/// A packet that left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Out of a port.
    Output {
        /// The port; `NORMAL` if the simulator was not told what ports there are.
        port: Port,
        /// The packet.
        packet: Packet,
        /// What a tunnel port puts on.
        tunnel: Tunnel,
    },
    /// To the controller.
    Controller {
        /// How, with reason and user data.
        how: Controller,
        /// The packet.
        packet: Packet,
        /// The table of the flow that sent it.
        table: u8,
        /// The cookie of that flow.
        cookie: u64,
    },
}

/// Why a packet did not leave.
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
    /// It would leave by the port it came in by, which only IN_PORT does.
    #[error("output to port {0}, by which it came in")]
    OutputToInPort(Port),
    /// It would leave by a port that is not there.
    #[error("there is no port {0}")]
    NoPort(Port),
    /// A flow names a group that is not there.
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
    /// Its time to live is over.
    #[error("time to live is over")]
    TtlExpired,
    /// A flow does what this simulator does not know.
    #[error("table {0} has an action that is not simulated")]
    NotSimulated(u8),
}

/// How a packet came to a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// From a port.
    Start,
    /// From another table.
    Resubmit,
    /// Out of the connection tracker.
    Tracked(CtFields),
}

/// One table that the packet met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// How many tables are waiting for this one.
    pub depth: usize,
    /// How the packet came here.
    pub entry: Entry,
    /// The table.
    pub table: u8,
    /// The flow that matched.
    pub flow: Option<Arc<Flow>>,
    /// The conjunction that made it match.
    pub conjunction: Option<u32>,
    /// The switch might have taken another flow of the same priority.
    pub tie: bool,
    /// What it did.
    pub did: Vec<Did>,
}

/// Something a flow did.
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
        /// The zone.
        zone: u16,
        /// Whether it is remembered.
        commit: bool,
        /// Whether it is translated.
        nat: bool,
        /// Where it goes on.
        table: Option<u8>,
    },
    /// Learned a flow.
    Learned(Arc<Flow>),
    /// Failed.
    Failed(Reason),
}

impl Trace {
    /// The packets that left by ports, in order.
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

    /// Whether some table had two flows that the switch might have taken.
    pub fn is_ambiguous(&self) -> bool {
        self.steps.iter().any(|step| step.tie)
    }
}
