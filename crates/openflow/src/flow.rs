//! Flows: match and actions, and the messages that add, remove and list them.

mod encoded;
mod text;

pub use encoded::EncodedFlow;

use std::time::Duration;

use bitflags::bitflags;

use crate::action::{Action, decode_actions, put_actions};
use crate::matching::Match;
use crate::port::Port;
use crate::stats::Oxs;
use crate::wire::{DecodeError, Decoded, Put, Reader};

/// The priority of a flow that gives none.
pub const DEFAULT_PRIORITY: u16 = 0x8000;
/// Stands for every table where a request may ask for all.
pub const ALL_TABLES: u8 = 0xff;
/// Stands for no group, or any.
pub const ANY_GROUP: u32 = 0xffff_ffff;

const GOTO_TABLE: u16 = 1;
const APPLY_ACTIONS: u16 = 4;

bitflags! {
    /// Flags of a flow (OFPFF_*).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct FlowFlags: u16 {
        /// The switch sends a flow-removed message when the flow is removed.
        const SEND_FLOW_REM = 1;
        /// The flow is refused if it overlaps another of the same priority.
        const CHECK_OVERLAP = 2;
        /// The counters start from zero if the flow was there.
        const RESET_COUNTS = 4;
        /// Packets need not be counted.
        const NO_PACKET_COUNTS = 8;
        /// Bytes need not be counted.
        const NO_BYTE_COUNTS = 16;
        const _ = !0;
    }
}

impl FlowFlags {
    /// Flags that the switch keeps; the others only affect the flow-mod.
    pub const KEPT: FlowFlags =
        FlowFlags::SEND_FLOW_REM.union(FlowFlags::NO_PACKET_COUNTS).union(FlowFlags::NO_BYTE_COUNTS);
}

/// A flow: a packet that meets the match in the table meets its actions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Flow {
    /// The table it is in.
    pub table: u8,
    /// The flow with the highest priority wins.
    pub priority: u16,
    /// Opaque value of the controller.
    pub cookie: u64,
    /// Idle timeout in seconds; 0: none.
    pub idle_timeout: u16,
    /// Hard timeout in seconds; 0: none.
    pub hard_timeout: u16,
    /// The less important go first when a table is full.
    pub importance: u16,
    /// How it is added.
    pub flags: FlowFlags,
    /// Conditions that a packet must satisfy.
    pub matches: Match,
    /// Actions in order; an empty list drops the packet.
    pub actions: Vec<Action>,
    /// The table that is searched next.
    pub goto_table: Option<u8>,
    /// Instructions that this crate does not know, header included.
    pub unknown: Vec<Vec<u8>>,
}

impl Default for Flow {
    fn default() -> Self {
        Self::at(0, DEFAULT_PRIORITY)
    }
}

impl Flow {
    /// A flow in a table, with a priority, that matches everything and drops it.
    pub const fn at(table: u8, priority: u16) -> Self {
        Self {
            table,
            priority,
            cookie: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            importance: 0,
            flags: FlowFlags::empty(),
            matches: Match::any(),
            actions: Vec::new(),
            goto_table: None,
            unknown: Vec::new(),
        }
    }

    /// Sets the match, which is empty by default.
    #[must_use]
    pub fn when(mut self, matches: Match) -> Self {
        self.matches = matches;
        self
    }

    /// And then this action.
    #[must_use]
    pub fn then(mut self, action: Action) -> Self {
        self.actions.push(action);
        self
    }

    /// Sets the cookie, which is 0 by default.
    #[must_use]
    pub fn cookie(mut self, cookie: u64) -> Self {
        self.cookie = cookie;
        self
    }

    /// Whether it has parts that this crate does not know; such a flow can be reported, but not compared.
    pub fn is_foreign(&self) -> bool {
        !self.unknown.is_empty()
            || self.matches.unknown().next().is_some()
            || self.actions.iter().any(Action::is_foreign)
    }

    pub(crate) fn put_instructions(&self, out: &mut Vec<u8>) {
        for bytes in &self.unknown {
            out.put(bytes);
        }
        if !self.actions.is_empty() {
            let start = out.len();
            out.put_u16(APPLY_ACTIONS);
            out.put_u16(0);
            out.put_zeros(4);
            put_actions(out, &self.actions);
            out.patch_len(start + 2, start);
        }
        if let Some(table) = self.goto_table {
            out.put_u16(GOTO_TABLE);
            out.put_u16(8);
            out.put_u8(table);
            out.put_zeros(3);
        }
    }

    /// Reads instructions until the reader is empty; as the switch does, refuses one that is there twice.
    pub(crate) fn read_instructions(&mut self, reader: &mut Reader<'_>) -> Decoded<()> {
        let (mut applied, mut went) = (false, false);
        while !reader.is_empty() {
            let mut whole = *reader;
            let kind = reader.u16("instruction type")?;
            let length = usize::from(reader.u16("instruction length")?);
            if length < 8 || !length.is_multiple_of(8) {
                return Err(DecodeError::BadLength { what: "instruction", length });
            }
            let mut body = reader.sub(length - 4, "instruction")?;
            match kind {
                APPLY_ACTIONS if !std::mem::replace(&mut applied, true) => {
                    body.skip(4, "instruction padding")?;
                    self.actions = decode_actions(&mut body)?;
                }
                GOTO_TABLE if !std::mem::replace(&mut went, true) => self.goto_table = Some(body.u8("table")?),
                APPLY_ACTIONS | GOTO_TABLE => {
                    return Err(DecodeError::BadValue { what: "instruction given twice", value: u64::from(kind) });
                }
                _ => self.unknown.push(whole.take(length, "instruction")?.to_vec()),
            }
        }
        Ok(())
    }
}

/// Command of a flow-mod (OFPFC_*).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FlowCommand {
    /// Adds the flow, in place of one with the same table, priority and match.
    Add,
    /// Changes the actions of all flows the match covers.
    Modify,
    /// Changes the actions of the flow with this table, priority and match.
    ModifyStrict,
    /// Removes all flows the match covers.
    Delete,
    /// Removes the flow with this table, priority and match.
    DeleteStrict,
}

impl FlowCommand {
    const ALL: &[FlowCommand] = &[
        FlowCommand::Add,
        FlowCommand::Modify,
        FlowCommand::ModifyStrict,
        FlowCommand::Delete,
        FlowCommand::DeleteStrict,
    ];
}

/// A message that adds, changes or removes flows.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowMod {
    /// Whether flows are added, modified or deleted (OFPFC_*).
    pub command: FlowCommand,
    /// The flow; to remove flows, table, priority and match of it count.
    pub flow: Flow,
    /// Which bits of the flow's cookie a flow must have to be changed or removed.
    pub cookie_mask: u64,
    /// Only flows that output to this port are removed.
    pub out_port: Port,
    /// Only flows that use this group are removed.
    pub out_group: u32,
}

impl FlowMod {
    /// A flow-mod with this command, for flows with any cookie.
    pub fn new(command: FlowCommand, flow: Flow) -> Self {
        Self { command, flow, cookie_mask: 0, out_port: Port::ANY, out_group: ANY_GROUP }
    }

    /// OFPFC_ADD: adds the flow, or replaces the one with its match and priority.
    pub fn add(flow: Flow) -> Self {
        Self::new(FlowCommand::Add, flow)
    }

    /// Removes the flow with the same table, priority and match.
    pub fn delete_strict(flow: &Flow) -> Self {
        Self::new(FlowCommand::DeleteStrict, Flow::at(flow.table, flow.priority).when(flow.matches.clone()))
    }

    /// Deletes every flow of every table.
    pub fn delete_all() -> Self {
        Self::new(FlowCommand::Delete, Flow::at(ALL_TABLES, 0))
    }

    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_with(&self.flow, self.flow.flags, out);
    }

    /// Encodes like [`FlowMod::add`], with other flags, from a borrowed flow.
    fn encode_parts(flow: &Flow, flags: FlowFlags, out: &mut Vec<u8>) {
        Self::add(Flow::default()).encode_with(flow, flags, out);
    }

    fn encode_with(&self, flow: &Flow, flags: FlowFlags, out: &mut Vec<u8>) {
        out.put_u64(flow.cookie);
        out.put_u64(self.cookie_mask);
        out.put_u8(flow.table);
        out.put_u8(self.command as u8);
        out.put_u16(flow.idle_timeout);
        out.put_u16(flow.hard_timeout);
        out.put_u16(flow.priority);
        out.put_u32(u32::MAX);
        out.put_u32(self.out_port.0);
        out.put_u32(self.out_group);
        out.put_u16(flags.bits());
        out.put_u16(flow.importance);
        flow.matches.encode(out);
        flow.put_instructions(out);
    }

    /// Decodes the message body.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let cookie = reader.u64("cookie")?;
        let cookie_mask = reader.u64("cookie mask")?;
        let table = reader.u8("table")?;
        let command = reader.u8("flow mod command")?;
        let Some(command) = FlowCommand::ALL.get(usize::from(command)).copied() else {
            return Err(DecodeError::BadValue { what: "flow mod command", value: u64::from(command) });
        };
        let idle_timeout = reader.u16("idle timeout")?;
        let hard_timeout = reader.u16("hard timeout")?;
        let priority = reader.u16("priority")?;
        reader.skip(4, "buffer")?;
        let out_port = Port(reader.u32("out port")?);
        let out_group = reader.u32("out group")?;
        let flags = FlowFlags::from_bits_retain(reader.u16("flow flags")?);
        let importance = reader.u16("importance")?;
        let matches = Match::decode(reader)?;
        let mut flow =
            Flow { cookie, idle_timeout, hard_timeout, importance, flags, matches, ..Flow::at(table, priority) };
        flow.read_instructions(reader)?;
        Ok(Self { command, flow, cookie_mask, out_port, out_group })
    }
}

/// Filter of a flow stats request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowRequest {
    /// In this table, or in [`ALL_TABLES`].
    pub table: u8,
    /// That output to this port.
    pub out_port: Port,
    /// That use this group.
    pub out_group: u32,
    /// Whose cookie has these bits.
    pub cookie: u64,
    /// Which bits of the cookie count.
    pub cookie_mask: u64,
    /// That this match covers.
    pub matches: Match,
}

impl Default for FlowRequest {
    fn default() -> Self {
        Self {
            table: ALL_TABLES,
            out_port: Port::ANY,
            out_group: ANY_GROUP,
            cookie: 0,
            cookie_mask: 0,
            matches: Match::any(),
        }
    }
}

impl FlowRequest {
    /// Appends the body of the request.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.table);
        out.put_zeros(3);
        out.put_u32(self.out_port.0);
        out.put_u32(self.out_group);
        out.put_zeros(4);
        out.put_u64(self.cookie);
        out.put_u64(self.cookie_mask);
        self.matches.encode(out);
    }

    /// Reads the body of the request.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let table = reader.u8("table")?;
        reader.skip(3, "padding")?;
        let out_port = Port(reader.u32("out port")?);
        let out_group = reader.u32("out group")?;
        reader.skip(4, "padding")?;
        let cookie = reader.u64("cookie")?;
        let cookie_mask = reader.u64("cookie mask")?;
        Ok(Self { table, out_port, out_group, cookie, cookie_mask, matches: Match::decode(reader)? })
    }
}

/// A flow as the switch lists it, with its counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowStats {
    /// The flow without its statistics.
    pub flow: Flow,
    /// How long it has been there.
    pub duration: Duration,
    /// Number of matched packets.
    pub packets: u64,
    /// Number of matched bytes.
    pub bytes: u64,
}

impl FlowStats {
    /// Appends one entry of the reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let flow = &self.flow;
        out.put_u16(0);
        out.put_zeros(2);
        out.put_u8(flow.table);
        out.put_zeros(1);
        out.put_u16(flow.priority);
        out.put_u16(flow.idle_timeout);
        out.put_u16(flow.hard_timeout);
        out.put_u16(flow.flags.bits());
        out.put_u16(flow.importance);
        out.put_u64(flow.cookie);
        flow.matches.encode(out);
        Oxs {
            duration: Some(self.duration),
            packet_count: Some(self.packets),
            byte_count: Some(self.bytes),
            ..Oxs::default()
        }
        .encode(out);
        flow.put_instructions(out);
        out.patch_len(start, start);
    }

    /// Reads one entry of the reply.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let length = usize::from(reader.u16("flow entry length")?);
        let Some(rest) = length.checked_sub(2) else {
            return Err(DecodeError::BadLength { what: "flow entry", length });
        };
        let mut reader = reader.sub(rest, "flow entry")?;
        reader.skip(2, "padding")?;
        let table = reader.u8("table")?;
        reader.skip(1, "padding")?;
        let priority = reader.u16("priority")?;
        let idle_timeout = reader.u16("idle timeout")?;
        let hard_timeout = reader.u16("hard timeout")?;
        let flags = FlowFlags::from_bits_retain(reader.u16("flow flags")?);
        let importance = reader.u16("importance")?;
        let cookie = reader.u64("cookie")?;
        let matches = Match::decode(&mut reader)?;
        let stats = Oxs::decode(&mut reader)?;
        let mut flow =
            Flow { cookie, idle_timeout, hard_timeout, importance, flags, matches, ..Flow::at(table, priority) };
        flow.read_instructions(&mut reader)?;
        Ok(Self {
            flow,
            duration: stats.duration.unwrap_or_default(),
            packets: stats.packet_count.unwrap_or_default(),
            bytes: stats.byte_count.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::hex;

    #[test]
    fn an_instruction_that_is_there_twice_is_refused() {
        let read = |bytes: &str| Flow::default().read_instructions(&mut Reader::new(&hex(bytes)));
        assert_eq!(read("0001000803000000"), Ok(()));
        let twice = DecodeError::BadValue { what: "instruction given twice", value: 1 };
        assert_eq!(read("00010008030000000001000804000000"), Err(twice));
    }
}
