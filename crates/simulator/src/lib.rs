//! A simulated Open vSwitch: runs a packet through flows and groups, and returns a trace.
//!
//! *Role.* [`Simulator`] holds flow tables, groups, connections and learned flows. A packet
//! ([`Arrival`]: from text, from bytes, from parts) goes in, a [`Trace`] comes out: every table, the matching flow, changed
//! fields, and the verdict with the output packets, byte for byte. State is kept between packets, so a conversation can be
//! simulated. `antctl pipeline trace` uses it, and tests that compare the pipeline with an oracle.
//!
//! *Invariants.* Open vSwitch 3.1 with the userspace datapath is the reference: tests run both on the same flows and
//! packets and compare every frame. Equal inputs give equal outputs: no clock (time is an argument), no randomness (the caller
//! selects the bucket of a select group, or runs all of them in turn), no order of a hash table. No packet and no flow causes
//! a panic.
//!
//! *Not here.* Sockets and files; the meaning of flows (crate `pipeline`); reassembly of fragments, application level
//! gateways, meters (all packets pass), encapsulation (a tunnel's addresses are reported with the packet), mirrors, spanning
//! trees, action sets (no flow of this project writes to one).

pub mod conntrack;
pub mod fields;
pub mod groups;
mod learn;
mod normal;
pub mod packet;
mod run;
pub mod tables;
pub mod trace;

pub use packet::{Arrival, Packet};
pub use run::{Outcome, Simulator};
pub use tables::Time;
pub use trace::{Reason, Sent, Trace, Verdict};
