//! Table `Port` of the database.

use std::collections::{BTreeMap, BTreeSet};

use super::table;
use crate::value::Uuid;

table! {
    /// A row of table `Port`: where interfaces are attached to a bridge.
    Port, PortColumns, "Port";
    config {
        /// Name, unique among ports; cannot be changed.
        name: String = "name",
        /// Ids of its interfaces: one, or more for a bond.
        interfaces: BTreeSet<Uuid> = "interfaces",
        /// VLAN of an access port.
        tag: Option<u16> = "tag",
        /// Keys and values of the program that created it.
        external_ids: BTreeMap<String, String> = "external_ids",
    }
    status {}
}
