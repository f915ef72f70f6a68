//! The connectivity of a lab, tested with real packets.
//!
//! Sources are the Pods, a Node, and the client outside. Targets are Pods at their ports, Services, and the server outside.
//! Each source probes all targets at once, from its own network namespace.

pub(crate) mod matrix;
pub(crate) mod svg;
pub(crate) mod table;
pub(crate) mod targets;
pub(crate) mod trial;
