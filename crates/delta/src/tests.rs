//! The promises of the crate, each against a switch in memory.

mod properties;
mod scenarios;
