//! The agent as a Node runs it: the program itself, with a real Open vSwitch, a real kernel, and the embedded Kubernetes API.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod bad_input;
#[cfg(test)]
mod chart;
#[cfg(test)]
mod cleanup;
#[cfg(test)]
mod command_line;
#[cfg(test)]
mod configured;
#[cfg(test)]
mod controller;
#[cfg(test)]
mod crowding;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod pods;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod recording;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod repair;
#[cfg(test)]
mod restart;
#[cfg(test)]
mod reuse;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod tunnels;
#[cfg(test)]
mod underlay;
