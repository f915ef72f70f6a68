//! Connections to ovsdb-server and ovs-vswitchd: the only crate with a socket to either.
//!
//! *Role.* Carries values of the codec crates over unix sockets: [`switch`] is an OpenFlow client of a bridge,
//! [`database`] replicates a database and runs transactions, [`unixctl`] sends the commands of `ovs-appctl` to a daemon.
//!
//! *Invariants.* A client reconnects until it is dropped, and its status has the reason of the last failure. Each call ends
//! in a reply, or in an error that tells whether the outcome is unknown. Every queue is bounded, and logs when it is full.
//! A dropped handle ends its task.
//!
//! *Not here.* The encoding of messages (crates `ovsdb` and `openflow`); which flows to install (crate `node`), and when to
//! send them and which rows to write (the agent, `engine.rs`, `bridge.rs` and `ports.rs`).

pub mod database;
pub mod switch;
pub mod unixctl;
