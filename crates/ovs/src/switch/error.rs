//! What can go wrong with a request, and whether to try again.

use std::io;
use std::time::Duration;

use openflow::error::ErrorMessage;
use openflow::framer::FrameError;
use openflow::header::TooLong;
use openflow::wire::DecodeError;
use thiserror::Error;

/// Why a connection could not be made, or ended.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// The socket says so.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The switch closed the connection.
    #[error("closed by the switch")]
    Closed,
    /// The switch does not speak OpenFlow 1.5.
    #[error("the bridge does not allow OpenFlow 1.5; set its column `protocols` to OpenFlow15: {0}")]
    Version(String),
    /// What the switch sends is not OpenFlow.
    #[error("not OpenFlow: {0}")]
    Frame(#[from] FrameError),
    /// What the switch sends is not what its type says.
    #[error("not understood: {0}")]
    Decode(#[from] DecodeError),
    /// Nothing came in time.
    #[error("no sign of life for {0:?}")]
    Silent(Duration),
    /// A message of ours is too long.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The switch refused what every connection begins with.
    #[error("refused: {0}")]
    Refused(ErrorMessage),
}

/// Why a request was not answered.
#[derive(Debug, Error)]
pub enum RequestError {
    /// It was never sent.
    #[error("not connected to ovs-vswitchd: {0}")]
    NotConnected(String),
    /// It was sent, but whether it was carried out is not known.
    #[error("connection to ovs-vswitchd lost before the answer: {0}")]
    Lost(String),
    /// It was sent, and nothing came back; whether it was carried out is not known.
    #[error("no answer from ovs-vswitchd within {0:?}")]
    TimedOut(Duration),
    /// The switch refused it. Of several messages, `index` is the first that was refused.
    #[error("ovs-vswitchd refused message {index}: {error}")]
    Refused {
        /// Which of the messages, from 0.
        index: usize,
        /// What the switch said.
        error: ErrorMessage,
    },
    /// The answer could not be understood.
    #[error("answer of ovs-vswitchd not understood: {0}")]
    NotUnderstood(#[from] DecodeError),
    /// The answer was of another kind than the question.
    #[error("ovs-vswitchd answered something else than it was asked")]
    Unexpected,
    /// It is too long for OpenFlow; it was never sent.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The client has ended.
    #[error("the OpenFlow client has been stopped")]
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
    /// Whether the bundle was carried out is not known: the connection failed after the commit was sent.
    #[error("connection to ovs-vswitchd lost during the commit, its outcome is not known: {0}")]
    OutcomeUnknown(#[source] ConnectionError),
    /// Nothing was changed: one message was refused.
    #[error("ovs-vswitchd refused message {index} of the bundle: {error}")]
    Rejected {
        /// Which message, from 0.
        index: usize,
        /// What the switch said.
        error: ErrorMessage,
    },
    /// Nothing was changed: the bundle itself was refused.
    #[error("ovs-vswitchd refused the bundle: {0}")]
    Refused(ErrorMessage),
    /// Nothing was changed: one message is too long for OpenFlow.
    #[error("message {index} of the bundle: {error}")]
    TooLong {
        /// Which message, from 0.
        index: usize,
        /// How long it is.
        error: TooLong,
    },
}

impl BundleError {
    /// Whether the same bundle may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Disconnected(_) | Self::OutcomeUnknown(_))
    }
}
