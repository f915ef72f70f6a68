//! Tests with running labs: Nodes, Pods, packets, and cleanup.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod accounts;
#[cfg(test)]
mod agent;
#[cfg(test)]
mod containers;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod documentation;
#[cfg(test)]
mod endurance;
#[cfg(test)]
mod failed;
#[cfg(test)]
mod kubelet_server;
#[cfg(test)]
mod kubernetes;
#[cfg(test)]
mod lab;
#[cfg(test)]
mod lifetime;
#[cfg(test)]
mod membership;
#[cfg(test)]
mod mtu;
#[cfg(test)]
mod network;
#[cfg(test)]
mod pods;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod recording;
#[cfg(test)]
mod red_team;
#[cfg(test)]
mod sctp;
#[cfg(test)]
mod services;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod traces;
#[cfg(test)]
mod tunnels;
#[cfg(test)]
mod upgrade;
