//! Packet-in and packet-out messages.

use std::fmt;

use crate::action::{Action, Reason, decode_actions, put_actions, write_actions};
use crate::field::Field;
use crate::matching::Match;
use crate::port::Port;
use crate::property::{UnknownProperty, end, put_property, read_property};
use crate::wire::{Decoded, Put, Reader};

/// Stands for no buffer: the packet is in the message itself.
pub const NO_BUFFER: u32 = 0xffff_ffff;

/// How the switch sends packets to the controller (NXT_SET_PACKET_IN_FORMAT).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PacketInFormat {
    /// OFPT_PACKET_IN, [`PacketIn`]: has no userdata.
    Standard,
    /// The older extension, which this crate does not read.
    Nxm,
    /// NXT_PACKET_IN2, [`PacketIn2`]: has userdata.
    Nxt2,
}

impl PacketInFormat {
    const ALL: [PacketInFormat; 3] = [PacketInFormat::Standard, PacketInFormat::Nxm, PacketInFormat::Nxt2];

    /// The format with this number.
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|format| *format as u32 == code)
    }
}

/// The properties of a [`PacketIn2`].
mod tag {
    pub(super) const PACKET: u16 = 0;
    pub(super) const FULL_LEN: u16 = 1;
    pub(super) const BUFFER_ID: u16 = 2;
    pub(super) const TABLE_ID: u16 = 3;
    pub(super) const COOKIE: u16 = 4;
    pub(super) const REASON: u16 = 5;
    pub(super) const METADATA: u16 = 6;
    pub(super) const USERDATA: u16 = 7;
    pub(super) const CONTINUATION: u16 = 8;
}

/// NXT_PACKET_IN2: a packet for the controller with its metadata. NXT_RESUME has the same format.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct PacketIn2 {
    /// The packet, or its beginning.
    pub packet: Vec<u8>,
    /// How long it was, if this is only its beginning.
    pub full_len: Option<u32>,
    /// Where the switch keeps it.
    pub buffer_id: Option<u32>,
    /// The table of the flow that sent it.
    pub table: Option<u8>,
    /// The cookie of the flow that sent it.
    pub cookie: Option<u64>,
    /// Why the switch sent it.
    pub reason: Option<Reason>,
    /// Fields that are not in the packet itself: the port it came in by, registers, tunnel, connection.
    pub metadata: Match,
    /// The bytes of the flow's `controller(userdata=...)`.
    pub userdata: Vec<u8>,
    /// Of a paused packet: opaque state that a resume must return unchanged.
    pub continuation: Option<Vec<u8>>,
    /// Properties that this crate does not know.
    pub unknown: Vec<UnknownProperty>,
}

impl PacketIn2 {
    /// The port the packet came in by.
    pub fn in_port(&self) -> Option<Port> {
        in_port(&self.metadata)
    }

    /// What resumes the packet's way through the tables where it was paused: all that this says, changes to `packet` and
    /// `metadata` included.
    #[must_use]
    pub fn into_resume(self) -> PacketIn2 {
        PacketIn2 { userdata: Vec::new(), cookie: None, table: None, full_len: None, buffer_id: None, ..self }
    }

    /// Encodes the body after the vendor header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_property(out, tag::PACKET, |out| out.put(&self.packet));
        for (kind, value) in [(tag::FULL_LEN, self.full_len), (tag::BUFFER_ID, self.buffer_id)] {
            if let Some(value) = value {
                put_property(out, kind, |out| out.put_u32(value));
            }
        }
        if let Some(table) = self.table {
            put_property(out, tag::TABLE_ID, |out| out.put_u8(table));
        }
        if let Some(cookie) = self.cookie {
            put_property(out, tag::COOKIE, |out| {
                out.put_zeros(4);
                out.put_u64(cookie);
            });
        }
        if let Some(reason) = self.reason {
            put_property(out, tag::REASON, |out| out.put_u8(reason.code()));
        }
        put_property(out, tag::METADATA, |out| out.put(self.metadata.as_tlvs()));
        if let Some(continuation) = &self.continuation {
            put_property(out, tag::CONTINUATION, |out| out.put(continuation));
        }
        if !self.userdata.is_empty() {
            put_property(out, tag::USERDATA, |out| out.put(&self.userdata));
        }
        for property in &self.unknown {
            property.encode(out);
        }
    }

    /// Decodes the body after the vendor header.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let mut packet_in = PacketIn2::default();
        while !reader.is_empty() {
            let (kind, mut value) = read_property(reader)?;
            match kind {
                tag::PACKET => packet_in.packet = value.rest().to_vec(),
                tag::FULL_LEN => packet_in.full_len = Some(value.u32("packet length")?),
                tag::BUFFER_ID => packet_in.buffer_id = Some(value.u32("buffer id")?),
                tag::TABLE_ID => packet_in.table = Some(value.u8("table id")?),
                tag::COOKIE => {
                    value.skip(4, "cookie padding")?;
                    packet_in.cookie = Some(value.u64("cookie")?);
                }
                tag::REASON => packet_in.reason = Some(Reason::from_code(value.u8("reason")?)),
                tag::METADATA => {
                    let length = value.left();
                    packet_in.metadata = Match::from_tlvs(value.sub(length, "metadata")?)?;
                }
                tag::USERDATA => packet_in.userdata = value.rest().to_vec(),
                tag::CONTINUATION => packet_in.continuation = Some(value.rest().to_vec()),
                _ => {
                    packet_in.unknown.push(UnknownProperty::keep(kind, value));
                    continue;
                }
            }
            end(&value, "packet-in property")?;
        }
        Ok(packet_in)
    }
}

impl fmt::Display for PacketIn2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(table) = self.table {
            write!(f, " table_id={table}")?;
        }
        if let Some(cookie) = self.cookie {
            write!(f, " cookie={cookie:#x}")?;
        }
        let total = self.full_len.map_or(self.packet.len() as u64, u64::from);
        write!(f, " total_len={total} {}", self.metadata)?;
        if let Some(reason) = self.reason {
            write!(f, " reason={}", reason.code())?;
        }
        if !self.userdata.is_empty() {
            write!(f, " userdata={}", crate::text::dotted_hex(&self.userdata))?;
        }
        if let Some(continuation) = &self.continuation {
            write!(f, " continuation={} bytes", continuation.len())?;
        }
        write!(f, " data={} bytes", self.packet.len())
    }
}

/// OFPT_PACKET_IN: a packet for the controller, with less to it than [`PacketIn2`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PacketIn {
    /// Where the switch keeps it, or [`NO_BUFFER`].
    pub buffer_id: u32,
    /// How long it was.
    pub total_len: u16,
    /// Why the switch sent it.
    pub reason: Reason,
    /// The table of the flow that sent it.
    pub table: u8,
    /// The cookie of the flow that sent it.
    pub cookie: u64,
    /// Fields that are not in the packet itself.
    pub metadata: Match,
    /// The packet, or its beginning.
    pub packet: Vec<u8>,
}

impl PacketIn {
    /// The port the packet came in by.
    pub fn in_port(&self) -> Option<Port> {
        in_port(&self.metadata)
    }

    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.buffer_id);
        out.put_u16(self.total_len);
        out.put_u8(self.reason.code());
        out.put_u8(self.table);
        out.put_u64(self.cookie);
        self.metadata.encode(out);
        out.put_zeros(2);
        out.put(&self.packet);
    }

    /// Decodes the message body.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let buffer_id = reader.u32("buffer id")?;
        let total_len = reader.u16("packet length")?;
        let reason = Reason::from_code(reader.u8("reason")?);
        let table = reader.u8("table id")?;
        let cookie = reader.u64("cookie")?;
        let metadata = Match::decode(reader)?;
        reader.skip(2, "packet-in padding")?;
        Ok(PacketIn { buffer_id, total_len, reason, table, cookie, metadata, packet: reader.rest().to_vec() })
    }
}

impl fmt::Display for PacketIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PacketIn { table, cookie, total_len, metadata, reason, packet, .. } = self;
        write!(f, " table_id={table} cookie={cookie:#x} total_len={total_len} {metadata} reason={}", reason.code())?;
        write!(f, " data={} bytes", packet.len())
    }
}

/// OFPT_PACKET_OUT: a packet from the controller with its actions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PacketOut {
    /// Where the switch keeps it, or [`NO_BUFFER`].
    pub buffer_id: u32,
    /// The port to pretend it came in by, which must be there, and other fields that are not in the packet itself.
    pub metadata: Match,
    /// Actions for the packet; an output to [`Port::TABLE`] sends it through the tables.
    pub actions: Vec<Action>,
    /// The Ethernet frame to send.
    pub packet: Vec<u8>,
}

impl PacketOut {
    /// Applies `actions` to `packet`, with this input port.
    pub fn new(in_port: Port, actions: Vec<Action>, packet: Vec<u8>) -> Self {
        PacketOut { buffer_id: NO_BUFFER, metadata: Match::any().with(Field::InPort, in_port.0), actions, packet }
    }

    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.buffer_id);
        let length = out.len();
        out.put_zeros(4);
        self.metadata.encode(out);
        let start = out.len();
        put_actions(out, &self.actions);
        out.patch_len(length, start);
        out.put(&self.packet);
    }

    /// Decodes the message body.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let buffer_id = reader.u32("buffer id")?;
        let length = usize::from(reader.u16("actions length")?);
        reader.skip(2, "packet-out padding")?;
        let metadata = Match::decode(reader)?;
        let actions = decode_actions(&mut reader.sub(length, "actions")?)?;
        Ok(PacketOut { buffer_id, metadata, actions, packet: reader.rest().to_vec() })
    }
}

impl fmt::Display for PacketOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} actions=", self.metadata)?;
        write_actions(f, &self.actions)?;
        write!(f, " data={} bytes", self.packet.len())
    }
}

fn in_port(metadata: &Match) -> Option<Port> {
    metadata.exact(Field::InPort).and_then(|port| u32::try_from(port).ok()).map(Port)
}

#[cfg(test)]
mod tests;
