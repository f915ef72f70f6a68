//! The messages that set up and keep a connection: hello, features, configuration, roles, asynchronous messages.

use std::collections::BTreeMap;
use std::fmt;

use bitflags::bitflags;

use crate::header::OF15;
use crate::property::{UnknownProperty, end, put_property, read_property};
use crate::wire::{DecodeError, Decoded, Put, Reader};

/// The hello element that lists versions.
const VERSION_BITMAP: u16 = 1;

/// OFPT_HELLO: the versions one side speaks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hello {
    /// The version in the message's header: the highest, for a side that sends no list.
    pub version: u8,
    /// Bit `1 << version` for each version spoken; only versions below 32 can be told.
    pub versions: Option<u32>,
    /// Elements that are not known here.
    pub unknown: Vec<UnknownProperty>,
}

impl Hello {
    /// The hello of a side that speaks OpenFlow 1.5 and nothing else.
    pub fn of15() -> Self {
        Hello { version: OF15, versions: Some(1 << OF15), unknown: Vec::new() }
    }

    /// Whether the side that sent it speaks `version`; without a list, it is taken to speak all up to its own.
    pub fn supports(&self, version: u8) -> bool {
        match self.versions {
            Some(bits) => 1u32.checked_shl(u32::from(version)).is_some_and(|bit| bits & bit != 0),
            None => version <= self.version,
        }
    }

    /// Writes what follows the message header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Some(versions) = self.versions {
            put_property(out, VERSION_BITMAP, |out| out.put_u32(versions));
        }
        for element in &self.unknown {
            element.encode(out);
        }
    }

    /// Reads what follows a message header of the given version. Of a longer list only its first word counts.
    pub fn decode(version: u8, reader: &mut Reader<'_>) -> Decoded<Self> {
        let mut hello = Hello { version, versions: None, unknown: Vec::new() };
        while !reader.is_empty() {
            match read_property(reader)? {
                (VERSION_BITMAP, mut value) => hello.versions = Some(value.u32("version bitmap")?),
                (kind, value) => hello.unknown.push(UnknownProperty::keep(kind, value)),
            }
        }
        Ok(hello)
    }
}

bitflags! {
    /// What a switch can do.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct Capabilities: u32 {
        /// Statistics of flows.
        const FLOW_STATS = 1 << 0;
        /// Statistics of tables.
        const TABLE_STATS = 1 << 1;
        /// Statistics of ports.
        const PORT_STATS = 1 << 2;
        /// Statistics of groups.
        const GROUP_STATS = 1 << 3;
        /// Puts IP fragments together.
        const IP_REASM = 1 << 5;
        /// Statistics of queues.
        const QUEUE_STATS = 1 << 6;
        /// Blocks ports that loop.
        const PORT_BLOCKED = 1 << 8;
        /// Bundles.
        const BUNDLES = 1 << 9;
        /// Flow monitors.
        const FLOW_MONITORING = 1 << 10;
        /// Any other bit is kept.
        const _ = !0;
    }
}

/// OFPT_FEATURES_REPLY: what the switch is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Features {
    /// Which switch it is.
    pub datapath_id: u64,
    /// How many packets it keeps for the controller; Open vSwitch keeps none.
    pub n_buffers: u32,
    /// How many flow tables it has.
    pub n_tables: u8,
    /// Which of several connections to the same switch it is.
    pub auxiliary_id: u8,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Reserved.
    pub reserved: u32,
}

impl Features {
    /// Writes what follows the message header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.datapath_id);
        out.put_u32(self.n_buffers);
        out.put_u8(self.n_tables);
        out.put_u8(self.auxiliary_id);
        out.put_zeros(2);
        out.put_u32(self.capabilities.bits());
        out.put_u32(self.reserved);
    }

    /// Reads what follows the message header.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let datapath_id = reader.u64("datapath id")?;
        let n_buffers = reader.u32("number of buffers")?;
        let n_tables = reader.u8("number of tables")?;
        let auxiliary_id = reader.u8("auxiliary id")?;
        reader.skip(2, "features padding")?;
        let capabilities = Capabilities::from_bits_retain(reader.u32("capabilities")?);
        let reserved = reader.u32("features")?;
        end(reader, "features reply")?;
        Ok(Features { datapath_id, n_buffers, n_tables, auxiliary_id, capabilities, reserved })
    }
}

/// OFPT_GET_CONFIG_REPLY and OFPT_SET_CONFIG.
///
/// A connection that comes in through the bridge's management socket gets no asynchronous message at all until it has
/// set a `miss_send_len` other than zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SwitchConfig {
    /// What is done with IP fragments.
    pub flags: u16,
    /// How many bytes of a packet without a flow go to the controller.
    pub miss_send_len: u16,
}

impl SwitchConfig {
    /// Whole packets, and fragments treated as usual.
    pub const WHOLE_PACKETS: SwitchConfig = SwitchConfig { flags: 0, miss_send_len: 0xffff };

    /// Writes what follows the message header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.flags);
        out.put_u16(self.miss_send_len);
    }

    /// Reads what follows the message header.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let flags = reader.u16("config flags")?;
        let miss_send_len = reader.u16("miss_send_len")?;
        end(reader, "switch config")?;
        Ok(SwitchConfig { flags, miss_send_len })
    }
}

/// What a controller may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// In a request: leave the role as it is.
    NoChange,
    /// All, as others may.
    Equal,
    /// All; another primary becomes secondary.
    Primary,
    /// Read.
    Secondary,
}

impl Role {
    const ALL: [Role; 4] = [Role::NoChange, Role::Equal, Role::Primary, Role::Secondary];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::NoChange => "nochange",
            Role::Equal => "equal",
            Role::Primary => "primary",
            Role::Secondary => "secondary",
        })
    }
}

/// OFPT_ROLE_REQUEST and OFPT_ROLE_REPLY.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RoleMessage {
    /// The role that is asked for, or had.
    pub role: Role,
    /// Orders the elections of primaries: a request with an older one is refused. Counts for primary and secondary only.
    pub generation: u64,
}

impl RoleMessage {
    /// What a reply carries while no election was ever told to the switch.
    pub const NO_GENERATION: u64 = u64::MAX;

    /// Writes what follows the message header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.role as u32);
        out.put_zeros(4);
        out.put_u64(self.generation);
    }

    /// Reads what follows the message header.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let code = reader.u32("role")?;
        let Some(role) = Role::ALL.into_iter().find(|role| *role as u32 == code) else {
            return Err(DecodeError::BadValue { what: "role", value: u64::from(code) });
        };
        reader.skip(4, "role padding")?;
        let generation = reader.u64("role generation")?;
        end(reader, "role message")?;
        Ok(RoleMessage { role, generation })
    }
}

/// A kind of message that the switch sends unasked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AsyncKind {
    /// A packet for the controller; bits are packet-in reasons.
    PacketIn,
    /// A port changed; bits are port reasons.
    PortStatus,
    /// A flow is gone; bits are removal reasons.
    FlowRemoved,
    /// The controller's role changed.
    RoleStatus,
    /// A table is nearly full.
    TableStatus,
    /// Another controller changed a group or meter.
    RequestForward,
}

impl AsyncKind {
    const ALL: [AsyncKind; 6] = [
        AsyncKind::PacketIn,
        AsyncKind::PortStatus,
        AsyncKind::FlowRemoved,
        AsyncKind::RoleStatus,
        AsyncKind::TableStatus,
        AsyncKind::RequestForward,
    ];
}

/// OFPT_SET_ASYNC and OFPT_GET_ASYNC_REPLY: which messages the switch sends unasked.
///
/// Setting changes only what is named; the rest stays as it was.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct AsyncConfig {
    /// For each kind a bit `1 << reason` per reason, while the controller is primary or equal.
    pub masks: BTreeMap<AsyncKind, u32>,
    /// The same, while it is secondary.
    pub secondary: BTreeMap<AsyncKind, u32>,
    /// Properties that are not known here.
    pub unknown: Vec<UnknownProperty>,
}

impl AsyncConfig {
    /// Sets the reasons for which a primary or equal controller is sent `kind`.
    #[must_use]
    pub fn with(mut self, kind: AsyncKind, mask: u32) -> Self {
        self.masks.insert(kind, mask);
        self
    }

    /// Writes what follows the message header.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for (masks, primary) in [(&self.secondary, 0), (&self.masks, 1)] {
            for (kind, mask) in masks {
                put_property(out, (*kind as u16) << 1 | primary, |out| out.put_u32(*mask));
            }
        }
        for property in &self.unknown {
            property.encode(out);
        }
    }

    /// Reads what follows the message header.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let mut config = AsyncConfig::default();
        while !reader.is_empty() {
            let (number, mut value) = read_property(reader)?;
            match AsyncKind::ALL.get(usize::from(number >> 1)) {
                Some(kind) => {
                    let masks = if number & 1 == 1 { &mut config.masks } else { &mut config.secondary };
                    masks.insert(*kind, value.u32("async mask")?);
                    end(&value, "async mask")?;
                }
                None => config.unknown.push(UnknownProperty::keep(number, value)),
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests;
