//! Connections to ovsdb-server and ovs-vswitchd: the only crate with a socket to either.
//!
//! *Role.* Carries values of the codec crates over unix sockets: [`switch`] speaks OpenFlow with a bridge, [`database`]
//! follows a database and runs transactions, [`unixctl`] asks a daemon what `ovs-appctl` would.
//!
//! *Invariants.* A connection that is lost comes back by itself, for ever, and says what it waits for. Each call ends: in an
//! answer, or in an error that tells whether the outcome is unknown. Every queue is bounded, and says so when it is full.
//! A dropped handle ends its task.
//!
//! *Not here.* What is on the wire (crates `ovsdb` and `openflow`), and what to ask for (crate `node`).

pub mod backoff;
pub mod database;
pub mod switch;
pub mod unixctl;
