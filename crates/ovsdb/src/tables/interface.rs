//! Table `Interface` of the database.

use std::collections::BTreeMap;

use super::column::unexpected;
use super::{ColumnValue, Element, table};
use crate::schema::{AtomType, ColumnType};
use crate::value::{Atom, Datum, Decoded};

table! {
    /// A row of table `Interface`: a network device, tunnel or patch.
    Interface, InterfaceColumns, "Interface";
    config {
        /// Name, unique among interfaces; cannot be changed.
        name: String = "name",
        /// `internal`, `geneve`, `patch`, ...; empty or `system` for a device of the host.
        kind: String = "type",
        /// Settings that belong to the type, such as `remote_ip`.
        options: BTreeMap<String, String> = "options",
        /// Key-value pairs of other programs.
        external_ids: BTreeMap<String, String> = "external_ids",
        /// Settings without a column of their own.
        other_config: BTreeMap<String, String> = "other_config",
        /// The requested OpenFlow port number.
        ofport_request: Option<u16> = "ofport_request",
        /// The requested MAC address.
        mac: Option<String> = "mac",
        /// The requested MTU in bytes.
        mtu_request: Option<u32> = "mtu_request",
    }
    status {
        /// The OpenFlow port number in use.
        ofport: OfPort = "ofport",
        /// The MAC address in use.
        mac_in_use: Option<String> = "mac_in_use",
        /// Whether it is administratively up.
        admin_state: Option<LinkState> = "admin_state",
        /// Whether it has carrier.
        link_state: Option<LinkState> = "link_state",
        /// The MTU in use, in bytes.
        mtu: Option<u32> = "mtu",
        /// Its interface index in the kernel; 0 without one.
        ifindex: Option<u32> = "ifindex",
        /// Why the switch could not create it.
        error: Option<String> = "error",
        /// Status reported by its driver.
        status: BTreeMap<String, String> = "status",
    }
}

/// The OpenFlow port number of an interface, once the switch has assigned it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OfPort {
    /// The switch has not processed the interface yet.
    Unassigned,
    /// The switch could not create the interface; its `error` has the reason.
    Failed,
    /// The assigned port number.
    Assigned(u16),
}

/// State of an interface or link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LinkState {
    /// The interface or link is up.
    Up,
    /// The interface or link is down.
    Down,
}

impl OfPort {
    /// The port number, if one was assigned.
    pub fn number(self) -> Option<u16> {
        match self {
            Self::Assigned(number) => Some(number),
            Self::Unassigned | Self::Failed => None,
        }
    }
}

impl ColumnValue for OfPort {
    const TYPE: ColumnType = ColumnType::optional(AtomType::Integer);

    fn read(datum: &Datum) -> Decoded<Self> {
        match Option::<i64>::read(datum)? {
            None => Ok(Self::Unassigned),
            Some(-1) => Ok(Self::Failed),
            Some(number) => {
                number.try_into().map(Self::Assigned).map_err(|_| unexpected("an OpenFlow port number", datum))
            }
        }
    }
}

impl Element for LinkState {
    const ATOM: AtomType = AtomType::String;
    type Written = Self;

    fn read_atom(atom: &Atom) -> Option<Self> {
        match String::read_atom(atom)?.as_str() {
            "up" => Some(Self::Up),
            "down" => Some(Self::Down),
            _ => None,
        }
    }

    fn atom(written: Self) -> Atom {
        match written {
            Self::Up => "up".into(),
            Self::Down => "down".into(),
        }
    }
}
