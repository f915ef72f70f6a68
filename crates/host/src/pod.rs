//! The cable between a Pod and the switch: plugged whole or not at all, and unplugged.
//!
//! All functions work from the namespace of the calling thread, which is the host's; several may work at the same time.
//!
//! The receive buffer of a port in the userspace datapath is ovs-vswitchd's: it takes what `net/core/rmem_default` says when
//! the port is added, for all sockets of the machine. Nothing that is done to a device changes it.

mod announce;
mod check;
mod plug;

pub use announce::announce;
pub use check::{Difference, check};
pub use plug::{attach, collect, detach};
