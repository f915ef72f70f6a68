//! Flow monitors: notifications of flows that other controllers add, change or remove.

use std::fmt;

use bitflags::bitflags;

use crate::flow::{ALL_TABLES, ANY_GROUP, Flow};
use crate::matching::Match;
use crate::port::Port;
use crate::property::end;
use crate::stats::Oxs;
use crate::wire::{DecodeError, Decoded, Put, Reader};

bitflags! {
    /// What a flow monitor reports (OFPFMF_*).
    ///
    /// Open vSwitch 3.1 wants at least one of `ADD`, `REMOVED` and `MODIFY` and refuses `NO_ABBREV`, which does not mean
    /// that the request fails cleanly: see [`MonitorRequest`].
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct MonitorFlags: u16 {
        /// Flows that are there already.
        const INITIAL = 1 << 0;
        /// Flows that are added.
        const ADD = 1 << 1;
        /// OFPFMF_REMOVED: reports removed flows.
        const REMOVED = 1 << 2;
        /// Flows whose actions change.
        const MODIFY = 1 << 3;
        /// OFPFMF_INSTRUCTIONS: updates include the actions.
        const INSTRUCTIONS = 1 << 4;
        /// Own changes in full.
        const NO_ABBREV = 1 << 5;
        /// By the specification: own changes only. Open vSwitch takes it for `NO_ABBREV`.
        const ONLY_OWN = 1 << 6;
        /// Any other bit is kept.
        const _ = !0;
    }
}

/// Command of a flow monitor request (OFPFMC_*).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MonitorCommand {
    /// OFPFMC_ADD: creates the monitor.
    Add,
    /// OFPFMC_MODIFY: changes what the monitor reports.
    Modify,
    /// OFPFMC_DELETE: removes the monitor.
    Delete,
}

impl MonitorCommand {
    const ALL: [MonitorCommand; 3] = [MonitorCommand::Add, MonitorCommand::Modify, MonitorCommand::Delete];
}

/// An entry of a flow monitor request: asks for updates of matching flows.
///
/// Do not send one that may be refused. Open vSwitch (3.1 to 3.5 at least) answers with an error that it builds from
/// memory beyond the request: another version, another xid, and as data up to 64 kilobytes of whatever was there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MonitorRequest {
    /// Id of the monitor, chosen by the controller.
    pub id: u32,
    /// Whether to add, modify or delete the monitor.
    pub command: MonitorCommand,
    /// What the monitor reports.
    pub flags: MonitorFlags,
    /// Flows in this table, or in [`ALL_TABLES`].
    pub table: u8,
    /// That output to this port.
    pub out_port: Port,
    /// That use this group.
    pub out_group: u32,
    /// That this match covers.
    pub matches: Match,
}

impl MonitorRequest {
    /// Adds a monitor of all present and future flows, with actions.
    pub fn all(id: u32) -> Self {
        let when = MonitorFlags::INITIAL | MonitorFlags::ADD | MonitorFlags::REMOVED | MonitorFlags::MODIFY;
        MonitorRequest {
            id,
            command: MonitorCommand::Add,
            flags: when | MonitorFlags::INSTRUCTIONS,
            table: ALL_TABLES,
            out_port: Port::ANY,
            out_group: ANY_GROUP,
            matches: Match::any(),
        }
    }

    /// Writes an entry of the request.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.id);
        out.put_u32(self.out_port.0);
        out.put_u32(self.out_group);
        out.put_u16(self.flags.bits());
        out.put_u8(self.table);
        out.put_u8(self.command as u8);
        self.matches.encode(out);
    }

    /// Reads an entry of the request.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let id = reader.u32("monitor id")?;
        let out_port = Port(reader.u32("out port")?);
        let out_group = reader.u32("out group")?;
        let flags = MonitorFlags::from_bits_retain(reader.u16("monitor flags")?);
        let table = reader.u8("table id")?;
        let code = reader.u8("monitor command")?;
        let Some(command) = MonitorCommand::ALL.get(usize::from(code)).copied() else {
            return Err(DecodeError::BadValue { what: "monitor command", value: u64::from(code) });
        };
        let matches = Match::decode(reader)?;
        Ok(MonitorRequest { id, command, flags, table, out_port, out_group, matches })
    }
}

/// What happened to a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FlowEvent {
    /// It was there when the monitor began.
    Initial,
    /// OFPFME_ADDED: the flow was added.
    Added,
    /// OFPFME_REMOVED: the flow was removed.
    Removed,
    /// OFPFME_MODIFIED: the actions of the flow changed.
    Modified,
}

impl FlowEvent {
    const ALL: [FlowEvent; 4] = [FlowEvent::Initial, FlowEvent::Added, FlowEvent::Removed, FlowEvent::Modified];
}

/// An update of a monitor: an entry of a flow monitor reply. Only the first replies have the xid of the request; later ones
/// have xid 0.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum MonitorUpdate {
    /// Something happened to a flow.
    Flow {
        /// What happened to the flow.
        event: FlowEvent,
        /// Why it is gone (OFPRR_*), else 0.
        reason: u8,
        /// The flow, without flags; without actions too if the monitor does not tell them.
        flow: Flow,
    },
    /// The controller's own change with this xid was applied.
    Abbreviated {
        /// The xid of the request.
        xid: u32,
    },
    /// The controller reads too slowly: no updates of flows until `Resumed`.
    Paused,
    /// All missed updates have been sent.
    Resumed,
    /// An event that this crate does not know.
    Unknown {
        /// OFPFME_* number of the event.
        event: u16,
        /// The bytes after length and number.
        body: Vec<u8>,
    },
}

impl MonitorUpdate {
    /// Writes an entry of the reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(0);
        match self {
            MonitorUpdate::Flow { event, reason, flow } => {
                out.put_u16(*event as u16);
                out.put_u8(flow.table);
                out.put_u8(*reason);
                out.put_u16(flow.idle_timeout);
                out.put_u16(flow.hard_timeout);
                out.put_u16(flow.priority);
                out.put_zeros(4);
                out.put_u64(flow.cookie);
                flow.matches.encode(out);
                flow.put_instructions(out);
            }
            MonitorUpdate::Abbreviated { xid } => {
                out.put_u16(4);
                out.put_u32(*xid);
            }
            MonitorUpdate::Paused => {
                out.put_u16(5);
                out.put_zeros(4);
            }
            MonitorUpdate::Resumed => {
                out.put_u16(6);
                out.put_zeros(4);
            }
            MonitorUpdate::Unknown { event, body } => {
                out.put_u16(*event);
                out.put(body);
            }
        }
        out.patch_len(start, start);
    }

    /// Reads an entry of the reply.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let length = usize::from(reader.u16("flow update length")?);
        let Some(body) = length.checked_sub(2) else {
            return Err(DecodeError::BadLength { what: "flow update", length });
        };
        let mut body = reader.sub(body, "flow update")?;
        let event = body.u16("flow update event")?;
        if let Some(known) = FlowEvent::ALL.get(usize::from(event)) {
            return Self::decode_flow(*known, &mut body);
        }
        let update = match event {
            4 => MonitorUpdate::Abbreviated { xid: body.u32("flow update xid")? },
            5 | 6 => {
                body.skip(4, "flow update padding")?;
                if event == 5 { MonitorUpdate::Paused } else { MonitorUpdate::Resumed }
            }
            _ => MonitorUpdate::Unknown { event, body: body.rest().to_vec() },
        };
        end(&body, "flow update")?;
        Ok(update)
    }

    fn decode_flow(event: FlowEvent, body: &mut Reader<'_>) -> Decoded<Self> {
        let table = body.u8("table id")?;
        let reason = body.u8("removal reason")?;
        let idle_timeout = body.u16("idle timeout")?;
        let hard_timeout = body.u16("hard timeout")?;
        let priority = body.u16("priority")?;
        body.skip(4, "flow update padding")?;
        let cookie = body.u64("cookie")?;
        let matches = Match::decode(body)?;
        let mut flow = Flow { cookie, idle_timeout, hard_timeout, matches, ..Flow::at(table, priority) };
        flow.read_instructions(body)?;
        Ok(MonitorUpdate::Flow { event, reason, flow })
    }
}

impl fmt::Display for MonitorUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MonitorUpdate::Flow { event, flow, .. } => {
                let event = match event {
                    FlowEvent::Initial => "INITIAL",
                    FlowEvent::Added => "ADDED",
                    FlowEvent::Removed => "REMOVED",
                    FlowEvent::Modified => "MODIFIED",
                };
                write!(f, "event={event} {flow}")
            }
            MonitorUpdate::Abbreviated { xid } => write!(f, "event=ABBREV xid={xid:#x}"),
            MonitorUpdate::Paused => f.write_str("event=PAUSED"),
            MonitorUpdate::Resumed => f.write_str("event=RESUMED"),
            MonitorUpdate::Unknown { event, .. } => write!(f, "event={event}"),
        }
    }
}

/// OFPT_FLOW_REMOVED: a flow with `SEND_FLOW_REM` is gone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowRemoved {
    /// Why (OFPRR_*): 0 idle, 1 expired, 2 deleted, 3 its group, 4 its meter, 5 evicted.
    pub reason: u8,
    /// The flow, without actions.
    pub flow: Flow,
    /// Counters of the removed flow.
    pub stats: Oxs,
}

impl FlowRemoved {
    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.flow.table);
        out.put_u8(self.reason);
        out.put_u16(self.flow.priority);
        out.put_u16(self.flow.idle_timeout);
        out.put_u16(self.flow.hard_timeout);
        out.put_u64(self.flow.cookie);
        self.flow.matches.encode(out);
        self.stats.encode(out);
    }

    /// Decodes the message body.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let table = reader.u8("table id")?;
        let reason = reader.u8("removal reason")?;
        let priority = reader.u16("priority")?;
        let idle_timeout = reader.u16("idle timeout")?;
        let hard_timeout = reader.u16("hard timeout")?;
        let cookie = reader.u64("cookie")?;
        let matches = Match::decode(reader)?;
        let stats = Oxs::decode(reader)?;
        end(reader, "flow removed")?;
        let flow = Flow { cookie, idle_timeout, hard_timeout, matches, ..Flow::at(table, priority) };
        Ok(FlowRemoved { reason, flow, stats })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::text::hex;

    #[test]
    fn the_updates_of_open_vswitch_are_read() {
        // From ovs-vswitchd 3.1.0: a flow that was there, one that was removed, and an own change.
        let bytes = hex(concat!(
            "004800000000003c0000000500000000000000000000009900010012800000040000000180000a02",
            "08000000000000000004001800000000000000100000000200000000000000000020000207020000",
            "000000640000000000000000000000010001000400000000000800040000006f",
        ));
        let mut reader = Reader::new(&bytes);
        let mut updates = Vec::new();
        while !reader.is_empty() {
            updates.push(MonitorUpdate::decode(&mut reader).unwrap());
        }
        let text: Vec<_> = updates.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            [
                "event=INITIAL cookie=0x99, table=0, idle_timeout=60, priority=5,ip,in_port=1 actions=output:2",
                "event=REMOVED cookie=0x1, table=7, priority=100 actions=drop",
                "event=ABBREV xid=0x6f",
            ]
        );
        assert!(matches!(updates[1], MonitorUpdate::Flow { reason: 2, .. }));
        for update in updates {
            let mut out = Vec::new();
            update.encode(&mut out);
            assert_eq!(MonitorUpdate::decode(&mut Reader::new(&out)), Ok(update));
        }
    }

    #[test]
    fn the_flow_removed_of_open_vswitch_is_read() {
        // From ovs-vswitchd 3.1.0, after the header.
        let bytes = hex(concat!(
            "0702006400000000000000000000000100010004000000000000002880020008000000001f78a400",
            "80020808000000000000000080020a080000000000000000",
        ));
        let removed = FlowRemoved::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!((removed.reason, removed.flow.table, removed.flow.priority), (2, 7, 100));
        assert_eq!(removed.stats.duration, Some(Duration::from_millis(528)));
        let mut out = Vec::new();
        removed.encode(&mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn values_survive_encoding_and_decoding() {
        let updates = [
            MonitorUpdate::Paused,
            MonitorUpdate::Resumed,
            MonitorUpdate::Unknown { event: 9, body: vec![1, 2, 3, 4] },
        ];
        for update in updates {
            let mut out = Vec::new();
            update.encode(&mut out);
            assert_eq!(MonitorUpdate::decode(&mut Reader::new(&out)), Ok(update));
        }
        let request =
            MonitorRequest { command: MonitorCommand::Modify, matches: Match::ip(), ..MonitorRequest::all(7) };
        let mut out = Vec::new();
        request.encode(&mut out);
        assert_eq!(MonitorRequest::decode(&mut Reader::new(&out)), Ok(request));
    }
}
