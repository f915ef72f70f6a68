//! The protocols between our programs, and between container runtimes and our programs.
//!
//! *Role.* [`cni`] connects a container runtime with the agent: it parses a CNI call, has client and server of a gRPC service on a
//! unix socket, and writes the result in the runtime's version of the specification. [`control`] is the stream between the controller
//! and the agents: client, server, and the encoding of batches.
//!
//! *Invariants.* External input becomes a valid value or an error that names the variable or key, its value and what is allowed; so
//! does input from the socket. Calls for one container run one after the other, in the order of arrival. The number of concurrent
//! calls is bounded. An agent that does not read its stream delays no other agent.
//!
//! *Not here.* The network of a Pod (crate `host`, and the agent, which implements [`cni::Handler`]); the content of batches (crate
//! `policy`) and the authentication of agents (the controller, which implements [`control::server::Controller`]).

mod channel;
pub mod cni;
pub mod control;

#[cfg(test)]
mod recorded;
