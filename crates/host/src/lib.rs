//! Access to a Node's kernel; no other crate touches it.
//!
//! *Role.* [`Kernel`] reads and changes the kernel's state; [`diff()`] computes the necessary changes; [`watch`] reports changes
//! by other programs; [`Leftover`] is what removing antrea-rs removes, and [`antrea_rules`] what Antrea leaves behind. [`pod`] attaches a Pod's veth, [`ipam`] allocates its addresses, [`nft`] renders our nftables rules,
//! [`conntrack`] deletes connections, [`uplink`] finds the device with a Node's address, [`next_hop`] the way to other Nodes, [`netns`]
//! runs code in other namespaces.
//!
//! *Invariants.* Foreign objects (see [`types::host`]) are never changed: an error names the object in the way. Every change is
//! idempotent. A Pod's veth is attached completely or not at all. No shared thread ever leaves its namespace. An error names
//! the object and the fix.
//!
//! *Not here.* The desired state (crate `node`), and the switch (crate `ovs`).

pub mod antrea_rules;
pub mod conntrack;
pub mod diff;
pub mod ipam;
pub mod netns;
pub mod next_hop;
pub mod nft;
pub mod pod;
pub mod sysctl;
pub mod uplink;
pub mod watch;

mod device;
mod error;
mod ethtool;
mod ingress_drop;
mod kernel;
mod leftovers;
mod netlink;
mod packet;
mod program;

pub use diff::diff;
pub use error::Error;
pub use kernel::{Failure, Kernel};
pub use leftovers::Leftover;
pub use netns::Netns;
