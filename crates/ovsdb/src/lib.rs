//! The Open vSwitch database protocol (RFC 7047 and OVS's `monitor_cond_since`) as plain values.
//!
//! *Role.* Bytes from an OVSDB (or unixctl) socket become JSON values ([`frame`]), JSON-RPC messages ([`rpc`]), and from
//! there transaction results ([`transaction`]) and monitor updates ([`monitor`]). A [`replica::Replica`] folds the updates
//! into a copy of the monitored tables and says what changed; [`tables`] reads its rows as typed structs and writes them.
//!
//! *Invariants.* Nothing here does I/O, reads a clock or depends on hash order: the same inputs give the same outputs.
//! Decoding is total: any bytes give a value or an error that names where it went wrong, nothing panics. A replica that
//! followed updates, over any number of reconnects, equals one made by a fresh monitor. A failed update changes nothing.
//!
//! *Not here.* Sockets, timers, reconnects and request ids (crate `ovs`); what the rows are for (crates `node` and up).

pub mod condition;
pub mod frame;
pub mod monitor;
pub mod operation;
pub mod replica;
pub mod rpc;
pub mod schema;
pub mod tables;
pub mod transaction;
pub mod value;

/// Name of the database that `ovs-vswitchd` is configured from.
pub const OPEN_VSWITCH: &str = "Open_vSwitch";
