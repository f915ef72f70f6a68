//! The veth pair between a Pod and the switch: attached completely or not at all, checked, and detached.
//!
//! All functions run in the namespace of the calling thread, which is the host's; several may run at the same time.
//!
//! The size of a port's receive buffer in the userspace datapath cannot be set for a device: ovs-vswitchd uses
//! `net/core/rmem_default`, which applies to all sockets of the machine, at the time when the port is added.

mod announce;
mod attach;
mod check;

pub use announce::announce;
pub use attach::{adopt, attach, collect, detach, is_plugged};
pub use check::{Difference, check};
