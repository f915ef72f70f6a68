//! The controller's end of the stream.

mod activity;
mod grpc;
mod listener;
mod service;
mod visits;

pub use listener::{BindError, Listener, Rest, prepare};

use std::future::Future;
use std::time::Duration;

use types::control::{Batch, Report};

/// Why an agent is not let in.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Its token is nobody's, or says nothing of a Node.
    #[error("{0}")]
    Token(String),
    /// Whoever it is may not do this.
    #[error("{0}")]
    Forbidden(String),
    /// It cannot be said now; it may try again.
    #[error("{0}")]
    Unavailable(String),
}

/// Decides who is let in, and has what they are told.
pub trait Controller: Send + Sync + 'static {
    /// What one agent is told.
    type Feed: Feed;

    /// Lets the agent of a Node in, if the token is its.
    fn admit(&self, token: &str, node: &str) -> impl Future<Output = Result<Self::Feed, Refusal>> + Send;

    /// Takes what the agent of a Node reports.
    fn report(&self, node: &str, reports: Vec<Report>) -> impl Future<Output = ()> + Send;
}

/// What one agent is told.
pub trait Feed: Send + 'static {
    /// The next batch, once there is one. It is asked for when the one before is on its way, so what piles up meanwhile is the
    /// feed's to bound. Nothing: the stream ends, since the Node has another one.
    fn next(&mut self) -> impl Future<Output = Option<Batch>> + Send;
}

/// How patient the server is.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// With a client that does not end its handshake, and then with one that asks nothing.
    pub handshake: Duration,
    /// With a client of HTTP/2 that has asked something and asks nothing more; agents ask for their stream as long as they have it.
    /// One of HTTP/1.1 has as long as for its handshake.
    pub idle: Duration,
    /// With an agent that was connected and has not said which Node it is of.
    pub hello: Duration,
    /// With an agent that takes nothing of what there is for it.
    pub slow: Duration,
    /// With an agent that was let in: after this, and at most twice this, it has to come again and show that it still may. Each Node
    /// has a moment of its own.
    pub admitted: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            // The API server's proxy gives up connections by itself after 90.
            idle: Duration::from_secs(120),
            hello: Duration::from_secs(10),
            slow: Duration::from_secs(60),
            admitted: Duration::from_secs(30 * 60),
        }
    }
}
