//! Interfaces.

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
        /// What others note here.
        external_ids: BTreeMap<String, String> = "external_ids",
        /// Settings without a column of their own.
        other_config: BTreeMap<String, String> = "other_config",
        /// The OpenFlow port number that is asked for.
        ofport_request: Option<u16> = "ofport_request",
        /// The MAC address that is asked for.
        mac: Option<String> = "mac",
        /// The MTU that is asked for.
        mtu_request: Option<u32> = "mtu_request",
    }
    status {
        /// The OpenFlow port number that it has.
        ofport: OfPort = "ofport",
        /// The MAC address that it has.
        mac_in_use: Option<String> = "mac_in_use",
        /// Whether it is switched on.
        admin_state: Option<LinkState> = "admin_state",
        /// Whether it has carrier.
        link_state: Option<LinkState> = "link_state",
        /// The MTU that it has.
        mtu: Option<u32> = "mtu",
        /// Its index in the host's kernel; 0 without one.
        ifindex: Option<u32> = "ifindex",
        /// Why the switch could not make it.
        error: Option<String> = "error",
        /// What its driver says.
        status: BTreeMap<String, String> = "status",
    }
}

/// The OpenFlow port number of an interface, as far as the switch got.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OfPort {
    /// The switch has not looked at the interface yet.
    Unassigned,
    /// The switch could not make the interface; its `error` says why.
    Failed,
    /// The number.
    Assigned(u16),
}

/// Up or down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LinkState {
    /// Up.
    Up,
    /// Down.
    Down,
}

impl OfPort {
    /// The number, if there is one.
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
