//! The server side of the stream, for the controller.

mod activity;
mod grpc;
mod limits;
mod listener;
mod service;

pub use listener::{BindError, Listener, Rest, prepare};

use std::future::Future;
use std::time::Duration;

use types::control::{Batch, Report};

/// Why an agent is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The token is invalid, or names no Node.
    #[error("{0}")]
    Token(String),
    /// The token is valid, but does not allow this.
    #[error("{0}")]
    Forbidden(String),
    /// The token cannot be checked now; the agent can retry.
    #[error("{0}")]
    Unavailable(String),
}

/// Authenticates agents, and provides their batches.
pub trait Controller: Send + Sync + 'static {
    /// The batches for one agent.
    type Feed: Feed;

    /// Accepts the agent of a Node, if the token belongs to it.
    fn admit(&self, token: &str, node: &str) -> impl Future<Output = Result<Self::Feed, Refusal>> + Send;

    /// Processes reports of the agent of a Node.
    fn report(&self, node: &str, reports: Vec<Report>) -> impl Future<Output = ()> + Send;
}

/// The batches for one agent.
pub trait Feed: Send + 'static {
    /// Waits for the next batch. It is called after the previous batch was sent, so the feed has to bound what accumulates
    /// meanwhile. `None` ends the stream: the Node has a newer one.
    fn next(&mut self) -> impl Future<Output = Option<Batch>> + Send;
}

/// Timeouts of the server.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the TLS handshake, and then for the first request.
    pub handshake: Duration,
    /// For the next request of an HTTP/2 connection; an open stream counts as a request. HTTP/1.1 connections have `handshake`.
    pub idle: Duration,
    /// For the first message of an agent, with its Node name.
    pub hello: Duration,
    /// For an agent to read a part of a batch.
    pub slow: Duration,
    /// An agent has to reconnect and authenticate again after this time to twice this time, different for each Node.
    pub admitted: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            // Longer than the 90 s after which the API server's proxy closes idle connections itself.
            idle: Duration::from_secs(120),
            hello: Duration::from_secs(10),
            slow: Duration::from_secs(60),
            admitted: Duration::from_secs(30 * 60),
        }
    }
}
