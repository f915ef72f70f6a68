//! Connects the Pods of a Node.

mod bridge;
mod cni;
mod engine;
mod ports;
mod run;
mod settings;
mod sources;
mod upkeep;

fn main() {}
