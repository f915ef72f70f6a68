//! A switch without a switch: runs a packet through flows and groups, and tells the way it took.
//!
//! *Role.* [`Simulator`] holds flow tables, groups, connections and what the flows have learned. A packet
//! ([`Arrival`]: from text, from bytes, from parts) goes in, a [`Trace`] comes out: every table, the flow that matched, what
//! changed, and the verdict with the packets that left, byte for byte. State is kept, so a conversation can be run. It is
//! the engine of `antctl pipeline trace`, of previews of policies, and of tests that compare the pipeline with an oracle.
//!
//! *Invariants.* What Open vSwitch 3.1 does on its userspace datapath is right: the tests run both on the same flows and
//! packets and compare every frame. Equal inputs give equal outputs: no clock (time is an argument), no chance (a select
//! group takes the bucket it is told to, or all of them in turn), no order of a hash table. Nothing panics, whatever the
//! bytes of a packet or the flows are.
//!
//! *Not here.* Sockets and files; what flows are for (crate `pipeline`); reassembly of fragments, application level
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
