//! Bridges.

use std::collections::{BTreeMap, BTreeSet};

use super::{Element, table};
use crate::schema::AtomType;
use crate::value::{Atom, Uuid};

table! {
    /// A row of table `Bridge`: a switch that speaks OpenFlow.
    Bridge, BridgeColumns, "Bridge";
    config {
        /// Name, unique among bridges; cannot be changed.
        name: String = "name",
        /// The ports.
        ports: BTreeSet<Uuid> = "ports",
        /// `system` (also when empty) for the kernel, `netdev` for user space.
        datapath_type: String = "datapath_type",
        /// What it does without a controller.
        fail_mode: Option<FailMode> = "fail_mode",
        /// OpenFlow versions it speaks, such as `OpenFlow15`; those that OVS likes when empty.
        protocols: BTreeSet<String> = "protocols",
        /// What others note here.
        external_ids: BTreeMap<String, String> = "external_ids",
        /// Settings without a column of their own.
        other_config: BTreeMap<String, String> = "other_config",
        /// The OpenFlow controllers.
        controller: BTreeSet<Uuid> = "controller",
    }
    status {
        /// Datapath id in use, 16 hex digits; none until the switch made the bridge.
        datapath_id: Option<String> = "datapath_id",
    }
}

/// What a bridge does without a controller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FailMode {
    /// It learns addresses and forwards.
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
