//! The protocols of `kubectl exec`, `kubectl attach` and `kubectl port-forward`, as a kubelet speaks them.
//!
//! *Role.* A request asks for an [`Upgrade`]: to WebSocket, or to SPDY/3.1, which older clients use. [`remote_command`] then
//! connects a command to the client, and [`port_forward`] connects TCP ports. Both work over any byte stream; the caller
//! has the HTTP server, runs the command, and opens the connections.
//!
//! *Invariants.* No input causes a panic, or memory beyond the limits of a frame and of the queues: a slow reader slows the
//! sender down. When the client disconnects, its input ends, so the caller can end the command.
//!
//! *Not here.* Flow control and server push of SPDY, which no client of Kubernetes uses; the versions of the protocols before
//! `v4.channel.k8s.io`, which had no exit codes.

pub mod port_forward;
pub mod remote_command;
mod spdy;
mod tunnel;
mod upgrade;
mod websocket;

pub use upgrade::{Refusal, Transport, Upgrade};

/// Maximum number of messages in a queue between a connection and its user.
const QUEUE: usize = 16;
/// Size of the pieces in which output is read and sent.
pub const CHUNK: usize = 32 * 1024;
/// How long to wait, after the end, for the client to close the connection: closing first could discard what it has not
/// read yet.
const LINGER: std::time::Duration = std::time::Duration::from_secs(3);
