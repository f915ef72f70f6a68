//! What is sent to the switch, and what becomes of it.

use std::borrow::Cow;
use std::ops::Range;

use openflow::bundle::Bundled;
use openflow::flow::EncodedFlow;
use openflow::group::GroupMod;
use openflow::header::kind;
use openflow::meter::{Meter, MeterId, MeterMod};

use crate::flows;
use crate::life::Op;

/// The longest body of a message that can be put into a bundle: 65535 bytes hold it, its header, and a bundle-add's.
pub(crate) const MAX_BODY: usize = 65_535 - 8 - 16;

pub(crate) fn too_long(length: usize) -> String {
    format!("its message would need {length} bytes, and {MAX_BODY} are the limit")
}

/// Messages to send, in three stages: [`Patch::before`], one by one; [`Patch::bundle`], as one atomic and ordered bundle;
/// [`Patch::after`], one by one. A stage is sent when the one before has succeeded as a whole.
///
/// It holds a number for each message. [`crate::State::messages`] encodes them, whatever is wanted by then, until it is
/// given back with [`crate::State::committed`] or [`crate::State::failed`]. To drop it is to lose the connection: nothing
/// more is sent before a resync.
#[derive(Debug, Default)]
#[must_use = "nothing else is sent until it is given back"]
pub struct Patch {
    pub(crate) serial: u64,
    pub(crate) meters_put: Vec<u32>,
    pub(crate) groups_put: Vec<u32>,
    pub(crate) flows: flows::Due,
    pub(crate) groups_delete: Vec<u32>,
    pub(crate) meters_delete: Vec<u32>,
}

/// What a message of a patch is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The meter with this number.
    Meter(u32, Op),
    /// The group with this number.
    Group(u32, Op),
    /// The flow in this slot.
    Flow(u32, Op),
}

impl Patch {
    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.bundle().end + self.meters_delete.len()
    }

    /// Never: then there is no patch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The messages that go first.
    pub fn before(&self) -> Range<usize> {
        0..self.meters_put.len()
    }

    /// The messages that go last.
    pub fn after(&self) -> Range<usize> {
        self.bundle().end..self.len()
    }

    /// The messages that go into one bundle.
    pub fn bundle(&self) -> Range<usize> {
        let start = self.meters_put.len();
        let flows = self.flows.put.len() + self.flows.delete.len();
        start..start + self.groups_put.len() + flows + self.groups_delete.len()
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        let meter = |op| move |id: &u32| Step::Meter(*id, op);
        let group = |op| move |id: &u32| Step::Group(*id, op);
        let flow = |op| move |slot: &u32| Step::Flow(*slot, op);
        let puts = self.meters_put.iter().map(meter(Op::Put)).chain(self.groups_put.iter().map(group(Op::Put)));
        let flows = self.flows.put.iter().map(flow(Op::Put)).chain(self.flows.delete.iter().map(flow(Op::Delete)));
        let groups = self.groups_delete.iter().map(group(Op::Delete));
        puts.chain(flows).chain(groups).chain(self.meters_delete.iter().map(meter(Op::Delete)))
    }
}

/// One message of a patch.
#[derive(Debug)]
pub enum Message<'a> {
    /// Adds a flow, in place of the one with its key.
    FlowAdd(Cow<'a, EncodedFlow>),
    /// Removes the flow with this flow's key.
    FlowDelete(&'a EncodedFlow),
    /// Installs a group, in place of the one that may be there: the body of the message.
    GroupPut(&'a [u8]),
    /// Removes a group.
    GroupDelete(u32),
    /// Adds a meter.
    MeterAdd(&'a Meter),
    /// Changes a meter.
    MeterModify(&'a Meter),
    /// Removes a meter.
    MeterDelete(MeterId),
}

/// Meters cannot be in a bundle, but are encoded the same way.
impl Bundled for Message<'_> {
    fn kind(&self) -> u8 {
        match self {
            Message::FlowAdd(_) | Message::FlowDelete(_) => kind::FLOW_MOD,
            Message::GroupPut(_) | Message::GroupDelete(_) => kind::GROUP_MOD,
            Message::MeterAdd(_) | Message::MeterModify(_) | Message::MeterDelete(_) => kind::METER_MOD,
        }
    }

    fn put_body(&self, out: &mut Vec<u8>) {
        match self {
            Message::FlowAdd(flow) => flow.put_add(out),
            Message::FlowDelete(flow) => flow.put_delete(out),
            Message::GroupPut(body) => out.extend_from_slice(body),
            Message::GroupDelete(id) => GroupMod::Delete(*id).encode(out),
            Message::MeterAdd(meter) => MeterMod::Add((*meter).clone()).encode(out),
            Message::MeterModify(meter) => MeterMod::Modify((*meter).clone()).encode(out),
            Message::MeterDelete(id) => MeterMod::Delete(*id).encode(out),
        }
    }
}

/// A message of a patch that the switch refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// Which message of the patch, from 0.
    pub index: usize,
    /// What the switch said.
    pub reason: String,
}

/// Why a patch did not land.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The connection was lost, or the answer did not come: only a resync can tell what the switch holds.
    Unknown,
    /// The bundle was not carried out, and no message is to blame. Everything before it has landed.
    NotCommitted,
    /// The switch refused messages. Stages before the one that they are in have landed; of that stage everything else has,
    /// except in a bundle, where nothing has; later stages were not sent.
    Rejected(Vec<Rejected>),
}
