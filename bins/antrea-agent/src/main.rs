//! Connects the Pods of a Node.

mod bridge;
mod engine;
mod ports;
mod sources;

fn main() {}
