//! Packets through a real switch with real connection tracking.
//!
//! A test has a [`world::World`]: one Node's bridge on the dummy datapath. It sends frames as a Pod, the host, another
//! Node or a client outside would, and says what must come out, where, and with which addresses. What a frame causes is
//! known for certain when a second one, sent after it by the same port, has come out: nothing is waited for that does not
//! come.

mod accepted;
mod fragments;
mod frame;
mod ipv6;
mod kernel;
mod neighbours;
mod objects;
mod pods;
mod policies;
mod sctp;
mod services;
mod switch;
mod tiers;
mod trips;
mod tunnels;
mod two_nodes;
mod variants;
mod world;
