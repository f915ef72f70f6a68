//! Table `Open_vSwitch` of the database: the root of the configuration.

use std::collections::{BTreeMap, BTreeSet};

use super::table;
use crate::value::Uuid;

table! {
    /// The one row of table `Open_vSwitch`.
    OpenVSwitch, OpenVSwitchColumns, "Open_vSwitch";
    config {
        /// Ids of all bridges.
        bridges: BTreeSet<Uuid> = "bridges",
        /// Key-value pairs of other programs, such as the system id.
        external_ids: BTreeMap<String, String> = "external_ids",
        /// Settings without a column of their own.
        other_config: BTreeMap<String, String> = "other_config",
        /// Number of the latest configuration; a client adds one to request that it is applied.
        next_cfg: i64 = "next_cfg",
        /// Version of Open vSwitch.
        ovs_version: Option<String> = "ovs_version",
        /// Version of the database schema.
        db_version: Option<String> = "db_version",
        /// Name of the operating system.
        system_type: Option<String> = "system_type",
        /// Version of the operating system.
        system_version: Option<String> = "system_version",
    }
    status {
        /// Number of the latest configuration that the switch has applied.
        cur_cfg: i64 = "cur_cfg",
        /// Types of datapaths that the switch supports.
        datapath_types: BTreeSet<String> = "datapath_types",
        /// Types of interfaces that the switch supports.
        iface_types: BTreeSet<String> = "iface_types",
    }
}
