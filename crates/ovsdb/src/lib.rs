//! The Open vSwitch database protocol (RFC 7047 and OVS's `monitor_cond_since`) as plain values.
//!
//! *Role.* Bytes from an OVSDB (or unixctl) socket become JSON values ([`frame`]), JSON-RPC messages ([`rpc`]), and from
//! there transaction results ([`transaction`]) and monitor updates ([`monitor`]). A [`replica::Replica`] folds the updates
//! into a copy of the monitored tables and returns the changes; [`tables`] reads and writes rows as typed structs.
//!
//! *Invariants.* Nothing here does I/O, reads a clock or depends on hash order: the same inputs give the same outputs.
//! Decoding is total: any bytes give a value or an error that names the place, nothing panics. A replica that
//! applied updates, over any number of reconnects, equals one made by a new monitor. A failed update changes nothing.
//!
//! *Not here.* Sockets, timers, reconnects and request ids (crate `ovs`); which bridges and ports to configure (the agent,
//! `bridge.rs` and `ports.rs`).

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
