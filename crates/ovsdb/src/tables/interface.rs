//! Table `Interface` of the database.

use std::collections::BTreeMap;

use super::column::unexpected;
use super::{ColumnValue, table};
use crate::schema::{AtomType, ColumnType};
use crate::value::{Datum, Decoded};

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
        /// The requested OpenFlow port number.
        ofport_request: Option<u16> = "ofport_request",
        /// The requested MTU in bytes.
        mtu_request: Option<u32> = "mtu_request",
    }
    status {
        /// The OpenFlow port number in use.
        ofport: OfPort = "ofport",
        /// The MAC address in use.
        mac_in_use: Option<String> = "mac_in_use",
        /// Why the switch could not create it.
        error: Option<String> = "error",
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
