//! Table `Bridge` of the database.

use std::collections::{BTreeMap, BTreeSet};

use super::{Element, table};
use crate::schema::AtomType;
use crate::value::{Atom, Uuid};

table! {
    /// A row of table `Bridge`: an OpenFlow switch.
    Bridge, BridgeColumns, "Bridge";
    config {
        /// Name, unique among bridges; cannot be changed.
        name: String = "name",
        /// Ids of its ports.
        ports: BTreeSet<Uuid> = "ports",
        /// `system` (also when empty) for the kernel, `netdev` for user space.
        datapath_type: String = "datapath_type",
        /// Its behaviour without a controller.
        fail_mode: Option<FailMode> = "fail_mode",
        /// Enabled OpenFlow versions, such as `OpenFlow15`; the defaults of OVS if empty.
        protocols: BTreeSet<String> = "protocols",
        /// Key-value pairs of other programs.
        external_ids: BTreeMap<String, String> = "external_ids",
        /// Settings without a column of their own.
        other_config: BTreeMap<String, String> = "other_config",
        /// Limits of OpenFlow tables, by their number.
        flow_tables: BTreeMap<u16, Uuid> = "flow_tables",
        /// Ids of its OpenFlow controllers.
        controller: BTreeSet<Uuid> = "controller",
    }
    status {
        /// Datapath id in use, 16 hex digits; none before the switch has created the bridge.
        datapath_id: Option<String> = "datapath_id",
    }
}

/// The behaviour of a bridge without a controller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FailMode {
    /// It learns MAC addresses and forwards.
    Standalone,
    /// It keeps its flows and adds none.
    Secure,
}

impl Element for FailMode {
    const ATOM: AtomType = AtomType::String;
    type Written = Self;

    fn read_atom(atom: &Atom) -> Option<Self> {
        match String::read_atom(atom)?.as_str() {
            "standalone" => Some(Self::Standalone),
            "secure" => Some(Self::Secure),
            _ => None,
        }
    }

    fn atom(written: Self) -> Atom {
        match written {
            Self::Standalone => "standalone".into(),
            Self::Secure => "secure".into(),
        }
    }
}
