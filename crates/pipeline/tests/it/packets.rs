//! Packets through a real switch with real connection tracking.
//!
//! A test has a [`world::World`]: one Node's bridge on the dummy datapath. It sends frames as a Pod, the host, another
//! Node or an external client, and asserts the output port and the addresses. All output of a frame has arrived when the
//! output of a second frame from the same port has: no test waits for the absence of a packet.

mod accepted;
mod foreign_tunnels;
mod fragments;
mod frame;
mod hostile;
mod ipv6;
mod kernel;
mod large_datagrams;
mod neighbours;
mod objects;
mod pods;
mod policies;
mod sctp;
mod services;
mod spoofed;
mod switch;
mod tiers;
mod trips;
mod tunnels;
mod two_nodes;
mod variants;
mod world;
