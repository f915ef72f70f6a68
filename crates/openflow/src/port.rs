//! Port numbers, and the names of the reserved ones.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::{ParseError, number, wrong};
use crate::wire::{low_u16, low_u32};

/// A port of the switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
pub struct Port(pub u32);

impl Port {
    /// Highest number a real port can have in Open vSwitch.
    pub const MAX: Port = Port(0xfeff);
    /// The port the packet came in by.
    pub const IN_PORT: Port = Port(0xffff_fff8);
    /// From a packet-out: through the flow tables.
    pub const TABLE: Port = Port(0xffff_fff9);
    /// OFPP_NORMAL: forwards like an ordinary learning switch.
    pub const NORMAL: Port = Port(0xffff_fffa);
    /// All ports but the incoming one and those that do not flood.
    pub const FLOOD: Port = Port(0xffff_fffb);
    /// All ports but the incoming one.
    pub const ALL: Port = Port(0xffff_fffc);
    /// OFPP_CONTROLLER: sends to the controller.
    pub const CONTROLLER: Port = Port(0xffff_fffd);
    /// The bridge's own interface.
    pub const LOCAL: Port = Port(0xffff_fffe);
    /// No port, or any.
    pub const ANY: Port = Port(0xffff_ffff);

    const NAMES: &[(Port, &str)] = &[
        (Port::IN_PORT, "IN_PORT"),
        (Port::TABLE, "TABLE"),
        (Port::NORMAL, "NORMAL"),
        (Port::FLOOD, "FLOOD"),
        (Port::ALL, "ALL"),
        (Port::CONTROLLER, "CONTROLLER"),
        (Port::LOCAL, "LOCAL"),
        (Port::ANY, "ANY"),
        (Port::ANY, "NONE"),
        (Port(0xffff_fff7), "UNSET"),
    ];

    /// The reserved name, if it has one.
    pub fn name(self) -> Option<&'static str> {
        Self::NAMES.iter().find(|(port, _)| *port == self).map(|(_, name)| *name)
    }

    /// The number OpenFlow 1.0 gives the port; some actions still use it.
    pub(crate) fn to_of10(self) -> u16 {
        low_u16(u128::from(self.0))
    }

    /// From the number OpenFlow 1.0 gives it.
    pub(crate) fn from_of10(port: u16) -> Port {
        if port >= 0xff00 { Port(0xffff_0000 | u32::from(port)) } else { Port(u32::from(port)) }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Port {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some((port, _)) = Self::NAMES.iter().find(|(_, name)| name.eq_ignore_ascii_case(text)) {
            return Ok(*port);
        }
        match number(text) {
            Some(n) if n <= u128::from(Port::MAX.0) => Ok(Port(low_u32(n))),
            Some(n) if (0xffff_ff00..=0xffff_ffff).contains(&n) => Ok(Port(low_u32(n))),
            _ => wrong(text, "is neither a port number up to 65279 nor the name of a reserved port"),
        }
    }
}
