//! Limits of OpenFlow tables.

use std::collections::BTreeSet;

use super::table;

table! {
    /// A row of table `Flow_Table`: how many flows an OpenFlow table of a bridge takes, and what happens beyond.
    FlowTable, FlowTableColumns, "Flow_Table";
    config {
        /// The most flows; without it there is no limit.
        flow_limit: Option<u32> = "flow_limit",
        /// What happens beyond the limit: `refuse`, or `evict` a flow that has a timeout.
        overflow_policy: Option<String> = "overflow_policy",
        /// Fields, or bits of them, by whose values flows are grouped: the largest group loses a flow first.
        groups: BTreeSet<String> = "groups",
    }
    status {}
}
