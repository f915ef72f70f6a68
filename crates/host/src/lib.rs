//! The kernel of a Node, the only crate that touches it.
//!
//! *Role.* [`Kernel`] looks at what the kernel holds of ours and carries out changes; [`diff`] says which ones are needed;
//! [`watch`] tells when somebody changed something. [`pod`] plugs the cable of a Pod, [`ipam`] gives it an address, [`nft`]
//! renders our rules, [`conntrack`] forgets connections, [`uplink`] finds the device that a Node is reached by, [`netns`] works in other namespaces.
//!
//! *Invariants.* What is not ours (see [`types::host`]) is never changed: who is in the way is named instead. Every change
//! can be repeated. A Pod's cable is plugged whole or not at all. No thread that others use ever leaves its namespace. An
//! error names the object and what to do about it.
//!
//! *Not here.* What should be there (crate `node`), and the switch (crate `ovs`).

pub mod conntrack;
pub mod diff;
pub mod ipam;
pub mod netns;
pub mod nft;
pub mod pod;
pub mod uplink;
pub mod watch;

mod device;
mod error;
mod ethtool;
mod kernel;
mod netlink;
mod packet;
mod sink;
mod sysctl;

pub use diff::diff;
pub use error::Error;
pub use kernel::{Failure, Kernel};
pub use netns::Netns;
