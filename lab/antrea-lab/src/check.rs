//! The connectivity of a lab: who reaches whom, tried with real packets.
//!
//! Everything that can ask is a source: the Pods, a Node, and the client outside. Everything that can be asked is a target:
//! Pods at their ports, Services, and the server outside. Each source gets all targets at once and tries them in its own
//! network.

pub(crate) mod matrix;
pub(crate) mod svg;
pub(crate) mod table;
pub(crate) mod targets;
pub(crate) mod trial;
