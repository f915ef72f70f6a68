//! The messages to send to the switch, and their outcome.

use std::borrow::Cow;

use openflow::bundle::Bundled;
use openflow::flow::EncodedFlow;
use openflow::group::GroupMod;
use openflow::header::kind;

use crate::status::Op;

/// The longest message body in a bundle: 65535 bytes, less the headers of the message and of its bundle-add.
pub(crate) const MAX_BODY: usize = 65_535 - 8 - 16;

pub(crate) fn too_long(length: usize) -> String {
    format!("its message has {length} bytes; OpenFlow allows {MAX_BODY}")
}

/// Flows and groups to change, as one atomic and ordered bundle.
///
/// It has a slot for each message. [`crate::State::messages`] encodes the messages as they were when the patch was made. It
/// ends with [`crate::State::committed`] or [`crate::State::failed`]; if it is dropped, nothing more is sent before the
/// next resync.
#[derive(Debug)]
#[must_use = "nothing else is sent before the patch is committed or failed"]
pub struct Patch {
    pub(crate) serial: u64,
    pub(crate) groups_put: Vec<u32>,
    pub(crate) flows_put: Vec<u32>,
    pub(crate) flows_delete: Vec<u32>,
    pub(crate) groups_delete: Vec<u32>,
}

/// Meters to change, one message each: OpenFlow has no bundles of meters.
///
/// [`crate::State::meter_mods`] makes the messages. It ends with [`crate::State::meters_applied`] or
/// [`crate::State::meters_failed`].
#[derive(Debug)]
#[must_use = "nothing else is sent before the patch is applied or failed"]
pub struct MeterPatch {
    pub(crate) serial: u64,
    pub(crate) put: Vec<u32>,
    pub(crate) delete: Vec<u32>,
}

/// What a state with meters sends next. Meters come before the flows and groups that point at them, and go after them.
#[derive(Debug)]
#[must_use = "nothing else is sent before the stage is done"]
pub enum Stage {
    /// Meters, one by one.
    Meters(MeterPatch),
    /// Flows and groups, in a bundle.
    Bundle(Patch),
}

/// The object and the operation of one message of a patch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The meter in this slot.
    Meter(u32, Op),
    /// The group in this slot.
    Group(u32, Op),
    /// The flow in this slot.
    Flow(u32, Op),
}

impl Patch {
    /// The number of messages.
    pub fn len(&self) -> usize {
        [&self.groups_put, &self.flows_put, &self.flows_delete, &self.groups_delete].map(Vec::len).iter().sum()
    }

    /// Always false: [`crate::State::patch`] returns no empty patch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        let group = |op| move |slot: &u32| Step::Group(*slot, op);
        let flow = |op| move |slot: &u32| Step::Flow(*slot, op);
        let puts = self.groups_put.iter().map(group(Op::Put)).chain(self.flows_put.iter().map(flow(Op::Put)));
        let deletes = self.flows_delete.iter().map(flow(Op::Delete));
        puts.chain(deletes).chain(self.groups_delete.iter().map(group(Op::Delete)))
    }
}

impl MeterPatch {
    /// The number of messages.
    pub fn len(&self) -> usize {
        self.put.len() + self.delete.len()
    }

    /// Always false: [`crate::State::patch`] returns no empty patch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        let meter = |op| move |slot: &u32| Step::Meter(*slot, op);
        self.put.iter().map(meter(Op::Put)).chain(self.delete.iter().map(meter(Op::Delete)))
    }
}

/// One message of a bundle.
#[derive(Debug)]
pub enum Message<'a> {
    /// Adds a flow or replaces the one with its key.
    FlowAdd(Cow<'a, EncodedFlow>),
    /// Deletes the flow with this flow's key.
    FlowDelete(&'a EncodedFlow),
    /// Adds or replaces a group: the body of the message.
    GroupPut(Cow<'a, [u8]>),
    /// Deletes the group with this id.
    GroupDelete(u32),
}

impl Bundled for Message<'_> {
    fn kind(&self) -> u8 {
        match self {
            Message::FlowAdd(_) | Message::FlowDelete(_) => kind::FLOW_MOD,
            Message::GroupPut(_) | Message::GroupDelete(_) => kind::GROUP_MOD,
        }
    }

    fn put_body(&self, out: &mut Vec<u8>) {
        match self {
            Message::FlowAdd(flow) => flow.put_add(out),
            Message::FlowDelete(flow) => flow.put_delete(out),
            Message::GroupPut(body) => out.extend_from_slice(body),
            Message::GroupDelete(id) => GroupMod::Delete(*id).encode(out),
        }
    }
}

/// A message of a patch that the switch rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// The position of the message in its patch, from 0.
    pub index: usize,
    /// The error of the switch.
    pub reason: String,
}

/// Why a patch failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The connection was lost, or the reply did not come: only a resync can show what the switch has.
    Unknown,
    /// No message of the patch was applied, and none of them is the cause.
    NotCommitted,
    /// The switch rejected messages. Of a bundle no message was applied; of a patch of meters, all others were.
    Rejected(Vec<Rejected>),
}
