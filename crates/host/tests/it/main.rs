//! The crate against the real kernel, in namespaces of its own.

mod firewall;
mod ipam;
mod netns;
mod pods;
mod state;
mod watch;
