//! Errors of requests and bundles, and whether to retry.

use std::io;
use std::time::Duration;

use openflow::error::ErrorMessage;
use openflow::framer::FrameError;
use openflow::header::TooLong;
use openflow::wire::DecodeError;
use thiserror::Error;

/// Why connecting failed, or a connection ended.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// Error of the socket.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The switch closed the connection.
    #[error("closed by the switch")]
    Closed,
    /// The switch does not speak OpenFlow 1.5.
    #[error("the bridge does not allow OpenFlow 1.5; set its column `protocols` to OpenFlow15: {0}")]
    Version(String),
    /// The switch sent data that is not OpenFlow.
    #[error("not OpenFlow: {0}")]
    Frame(#[from] FrameError),
    /// The switch sent a malformed message.
    #[error("malformed OpenFlow message: {0}")]
    Decode(#[from] DecodeError),
    /// The switch sent no data in time.
    #[error("no data from the switch for {0:?}")]
    Silent(Duration),
    /// A message to send is too long.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The switch rejected the handshake or the setup messages.
    #[error("the switch rejected the handshake: {0}")]
    Refused(ErrorMessage),
}

/// Why a request has no reply.
#[derive(Debug, Error)]
pub enum RequestError {
    /// It was never sent.
    #[error("not connected to ovs-vswitchd: {0}")]
    NotConnected(String),
    /// It was sent; whether it was applied is unknown.
    #[error("connection to ovs-vswitchd lost before the reply: {0}")]
    Lost(String),
    /// It was sent and no reply came; whether it was applied is unknown.
    #[error("no reply from ovs-vswitchd within {0:?}")]
    TimedOut(Duration),
    /// The switch rejected it. Of several messages, `index` is the first rejected one.
    #[error("ovs-vswitchd rejected message {index}: {error}")]
    Refused {
        /// Position of the message, from 0.
        index: usize,
        /// The error message of the switch.
        error: ErrorMessage,
    },
    /// The reply is malformed.
    #[error("malformed reply from ovs-vswitchd: {0}")]
    NotUnderstood(#[from] DecodeError),
    /// The reply does not match the request.
    #[error("reply from ovs-vswitchd is of another type than the request")]
    Unexpected,
    /// It is too long for OpenFlow; it was never sent.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The client has been stopped.
    #[error("OpenFlow client stopped")]
    Stopped,
}

impl RequestError {
    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NotConnected(_) | Self::Lost(_) | Self::TimedOut(_))
    }
}

/// Why a bundle was not committed.
#[derive(Debug, Error)]
pub enum BundleError {
    /// Nothing was changed: the connection failed before the commit.
    #[error("connection to ovs-vswitchd lost before the commit: {0}")]
    Disconnected(#[source] ConnectionError),
    /// The outcome is unknown: the connection failed after the commit was sent.
    #[error("connection to ovs-vswitchd lost during the commit, outcome unknown: {0}")]
    OutcomeUnknown(#[source] ConnectionError),
    /// Nothing was changed: one message was rejected.
    #[error("ovs-vswitchd rejected message {index} of the bundle: {error}")]
    Rejected {
        /// Position of the message, from 0.
        index: usize,
        /// The error message of the switch.
        error: ErrorMessage,
    },
    /// Nothing was changed: the bundle as such was rejected.
    #[error("ovs-vswitchd rejected the bundle: {0}")]
    Refused(ErrorMessage),
    /// Nothing was changed: one message is too long for OpenFlow.
    #[error("message {index} of the bundle: {error}")]
    TooLong {
        /// Position of the message, from 0.
        index: usize,
        /// Its length, and the limit.
        error: TooLong,
    },
}

impl BundleError {
    /// Whether the same bundle may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Disconnected(_) | Self::OutcomeUnknown(_))
    }
}
