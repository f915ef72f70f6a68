//! What our programs say to each other, and what container runtimes say to them.
//!
//! *Role.* [`cni`] is the way from a container runtime to the agent: reading a CNI call, a gRPC service on a unix socket with
//! both its ends, and the answer in the runtime's version of the specification. [`control`] is the stream between the controller
//! and the agents, both its ends, and what goes through it as bytes.
//!
//! *Invariants.* What comes from outside becomes a valid value or an error that names the variable or key, its value and what
//! is allowed; so does what comes through the socket. Calls for one container run one after the other, in the order in which
//! they came. The number of calls in hand is bounded. An agent that does not take what it is told holds up nobody.
//!
//! *Not here.* What is done for a Pod (crate `host`, and the agent that implements [`cni::Handler`]); what a Node has to know
//! (crate `policy`) and whose token it is (the controller that implements [`control::server::Controller`]).

mod channel;
pub mod cni;
pub mod control;
