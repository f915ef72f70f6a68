//! The messages that set up and keep a connection: hello, features, configuration, roles, asynchronous messages.

use std::collections::BTreeMap;
use std::fmt;

use bitflags::bitflags;

use crate::header::OF15;
use crate::property::{UnknownProperty, end, put_property, read_property};
use crate::wire::{DecodeError, Decoded, Put, Reader};

/// The hello element that lists versions.
const VERSION_BITMAP: u16 = 1;

/// OFPT_HELLO: the supported versions of one side.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hello {
    /// The version in the message's header: the highest, for a side that sends no list.
    pub version: u8,
    /// Bit `1 << version` for each supported version; versions above 31 cannot be expressed.
    pub versions: Option<u32>,
    /// Elements that this crate does not know.
    pub unknown: Vec<UnknownProperty>,
}

impl Hello {
    /// A hello that supports OpenFlow 1.5 only.
    pub fn of15() -> Self {
        Hello { version: OF15, versions: Some(1 << OF15), unknown: Vec::new() }
    }

    /// Whether the sender supports `version`; without a list, all versions up to its own.
    pub fn supports(&self, version: u8) -> bool {
        match self.versions {
            Some(bits) => 1u32.checked_shl(u32::from(version)).is_some_and(|bit| bits & bit != 0),
            None => version <= self.version,
        }
    }

    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Some(versions) = self.versions {
            put_property(out, VERSION_BITMAP, |out| out.put_u32(versions));
        }
        for element in &self.unknown {
            element.encode(out);
        }
    }

    /// Decodes the body of a message with this version. Of a longer list only the first word counts.
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
    /// Capabilities of a switch (OFPC_*).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct Capabilities: u32 {
        /// OFPC_FLOW_STATS: flow statistics are supported.
        const FLOW_STATS = 1 << 0;
        /// OFPC_TABLE_STATS: table statistics are supported.
        const TABLE_STATS = 1 << 1;
        /// OFPC_PORT_STATS: port statistics are supported.
        const PORT_STATS = 1 << 2;
        /// OFPC_GROUP_STATS: group statistics are supported.
        const GROUP_STATS = 1 << 3;
        /// OFPC_IP_REASM: the switch can reassemble IP fragments.
        const IP_REASM = 1 << 5;
        /// OFPC_QUEUE_STATS: queue statistics are supported.
        const QUEUE_STATS = 1 << 6;
        /// OFPC_PORT_BLOCKED: the switch blocks looping ports.
        const PORT_BLOCKED = 1 << 8;
        /// OFPC_BUNDLES: bundles are supported.
        const BUNDLES = 1 << 9;
        /// OFPC_FLOW_MONITORING: flow monitors are supported.
        const FLOW_MONITORING = 1 << 10;
        /// Any other bit is kept.
        const _ = !0;
    }
}

/// OFPT_FEATURES_REPLY (`struct ofp_switch_features`): identity and capabilities of a switch.
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
    /// Capabilities of the switch.
    pub capabilities: Capabilities,
    /// Reserved by the specification, kept as received.
    pub reserved: u32,
}

impl Features {
    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.datapath_id);
        out.put_u32(self.n_buffers);
        out.put_u8(self.n_tables);
        out.put_u8(self.auxiliary_id);
        out.put_zeros(2);
        out.put_u32(self.capabilities.bits());
        out.put_u32(self.reserved);
    }

    /// Decodes the message body.
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
    /// Handling of IP fragments (OFPC_FRAG_*).
    pub flags: u16,
    /// How many bytes of a packet without a flow go to the controller.
    pub miss_send_len: u16,
}

impl SwitchConfig {
    /// Whole packets, and fragments treated as usual.
    pub const WHOLE_PACKETS: SwitchConfig = SwitchConfig { flags: 0, miss_send_len: 0xffff };

    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.flags);
        out.put_u16(self.miss_send_len);
    }

    /// Decodes the message body.
    pub fn decode(reader: &mut Reader<'_>) -> Decoded<Self> {
        let flags = reader.u16("config flags")?;
        let miss_send_len = reader.u16("miss_send_len")?;
        end(reader, "switch config")?;
        Ok(SwitchConfig { flags, miss_send_len })
    }
}

/// Role of a controller (OFPCR_ROLE_*).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// In a request: leave the role as it is.
    NoChange,
    /// All, as others may.
    Equal,
    /// All; another primary becomes secondary.
    Primary,
    /// May read, but not change the switch.
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

/// OFPT_ROLE_REQUEST and OFPT_ROLE_REPLY (`struct ofp_role_request`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RoleMessage {
    /// The requested or current role.
    pub role: Role,
    /// Orders the elections of primaries: a request with an older one is refused. Counts for primary and secondary only.
    pub generation: u64,
}

impl RoleMessage {
    /// Value in a reply before any controller has sent a generation id.
    pub const NO_GENERATION: u64 = u64::MAX;

    /// Encodes the message body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.role as u32);
        out.put_zeros(4);
        out.put_u64(self.generation);
    }

    /// Decodes the message body.
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
/// Setting changes only the listed masks.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct AsyncConfig {
    /// For each kind a bit `1 << reason` per reason, while the controller is primary or equal.
    pub masks: BTreeMap<AsyncKind, u32>,
    /// The same, while it is secondary.
    pub secondary: BTreeMap<AsyncKind, u32>,
    /// Properties that this crate does not know.
    pub unknown: Vec<UnknownProperty>,
}

impl AsyncConfig {
    /// Sets the reasons for which a primary or equal controller is sent `kind`.
    #[must_use]
    pub fn with(mut self, kind: AsyncKind, mask: u32) -> Self {
        self.masks.insert(kind, mask);
        self
    }

    /// Encodes the message body.
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

    /// Decodes the message body.
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
