//! The controller as a cluster runs it: the program, with the role of its manifest, and real streams to agents.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod aggregation;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod forged;
#[cfg(test)]
mod kubernetes;
#[cfg(test)]
mod node_ipam;
#[cfg(test)]
mod rotation;
#[cfg(test)]
mod streams;
