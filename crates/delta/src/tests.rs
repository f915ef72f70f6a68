//! The invariants of the crate, checked against a switch in memory.

mod properties;
mod scenarios;
