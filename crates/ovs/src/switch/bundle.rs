//! Atomic bundles of changes.

use std::path::PathBuf;
use std::time::Duration;

use openflow::bundle::{BundleControl, BundleFlags, BundleId, BundleStep, Bundled, put_bundle_add};
use openflow::message::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;

use super::Config;
use super::connection::{Receiver, connect, echo_reply};
use super::error::{BundleError, ConnectionError};

/// Encoded bytes that are written at once. A unix socket takes as many without waiting for the reader.
const CHUNK: usize = 64 * 1024;

const BUNDLE: BundleId = BundleId(1);
const FLAGS: BundleFlags = BundleFlags::ATOMIC.union(BundleFlags::ORDERED);

/// Xids of the bundle's own messages; those of its content count from `FIRST`.
const OPEN: u32 = 1;
const BARRIER: u32 = 2;
const COMMIT: u32 = 3;
const FIRST: u32 = 4;

/// A bundle whose messages are encoded or sent. The switch discards it if it is dropped before [`Bundle::commit`].
#[must_use]
#[derive(Debug)]
pub struct Bundle {
    messages: Messages,
    /// The longest time without data.
    timeout: Duration,
}

/// The messages of a bundle.
#[derive(Debug)]
enum Messages {
    /// So few that the switch need not be waited for.
    Encoded(Vec<u8>, PathBuf),
    Sent(Receiver, OwnedWriteHalf),
}

impl Bundle {
    /// Encodes the messages of a bundle; many are sent meanwhile, so that they are never in memory as a whole.
    pub(super) async fn new<I>(config: &Config, messages: I) -> Result<Self, BundleError>
    where
        I: IntoIterator<Item: Bundled>,
    {
        let timeout = config.timeout;
        let (mut messages, mut out) = (messages.into_iter().enumerate(), Vec::new());
        put(&mut out, OPEN, BundleStep::OpenRequest);
        if encode(&mut messages, &mut out)? {
            return Ok(Self { messages: Messages::Encoded(out, config.socket.clone()), timeout });
        }
        let (mut receiver, mut sender) = connect(&config.socket, timeout).await.map_err(BundleError::Disconnected)?;
        // Errors are read while messages are still written, so that neither side blocks the other.
        tokio::select! {
            sent = fill(&mut sender, messages, out) => sent?,
            Err(failure) = answer(&mut receiver, timeout, BARRIER) => return Err(failure.before_commit()),
        }
        Ok(Self { messages: Messages::Sent(receiver, sender), timeout })
    }

    /// Commits the bundle once the switch has accepted every message.
    pub async fn commit(self) -> Result<(), BundleError> {
        let timeout = self.timeout;
        let (mut receiver, mut sender) = match self.messages {
            Messages::Sent(receiver, sender) => (receiver, sender),
            Messages::Encoded(bytes, socket) => {
                let (receiver, mut sender) = connect(&socket, timeout).await.map_err(BundleError::Disconnected)?;
                sender.write_all(&bytes).await.map_err(lost)?;
                (receiver, sender)
            }
        };
        answer(&mut receiver, timeout, BARRIER).await.map_err(Failure::before_commit)?;
        let mut out = Vec::new();
        put(&mut out, COMMIT, BundleStep::CommitRequest);
        sender.write_all(&out).await.map_err(|e| BundleError::OutcomeUnknown(e.into()))?;
        match answer(&mut receiver, timeout, COMMIT).await {
            Ok(()) => Ok(()),
            Err(Failure::Refused(error)) => Err(error),
            Err(Failure::Connection(error)) => Err(BundleError::OutcomeUnknown(error)),
        }
    }
}

fn put(out: &mut Vec<u8>, xid: u32, step: BundleStep) {
    // A message of eight bytes is never too long.
    let _ = Message::BundleControl(BundleControl { id: BUNDLE, step, flags: FLAGS }).encode(xid, out);
}

/// Encodes messages up to the size of a chunk, and after the last one a barrier request. Returns whether that was encoded.
fn encode(messages: &mut impl Iterator<Item = (usize, impl Bundled)>, out: &mut Vec<u8>) -> Result<bool, BundleError> {
    while out.len() < CHUNK {
        let Some((index, message)) = messages.next() else {
            let _ = Message::BarrierRequest.encode(BARRIER, out);
            return Ok(true);
        };
        let xid = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(FIRST);
        put_bundle_add(out, xid, BUNDLE, FLAGS, message.kind(), |out| message.put_body(out))
            .map_err(|error| BundleError::TooLong { index, error })?;
    }
    Ok(false)
}

/// Sends what is encoded already, and the remaining messages.
async fn fill(
    sender: &mut OwnedWriteHalf,
    mut messages: impl Iterator<Item = (usize, impl Bundled)>,
    mut out: Vec<u8>,
) -> Result<(), BundleError> {
    loop {
        sender.write_all(&out).await.map_err(lost)?;
        out.clear();
        if encode(&mut messages, &mut out)? {
            return sender.write_all(&out).await.map_err(lost);
        }
    }
}

fn lost(error: std::io::Error) -> BundleError {
    BundleError::Disconnected(error.into())
}

enum Failure {
    Connection(ConnectionError),
    Refused(BundleError),
}

impl Failure {
    /// The switch discards the bundle together with the connection.
    fn before_commit(self) -> BundleError {
        match self {
            Self::Connection(error) => BundleError::Disconnected(error),
            Self::Refused(error) => error,
        }
    }
}

/// Reads until the reply to the message with xid `last`, or the first error.
async fn answer(receiver: &mut Receiver, timeout: Duration, last: u32) -> Result<(), Failure> {
    loop {
        let message = receiver.next_within(timeout).await.map_err(Failure::Connection)?;
        if echo_reply(message).is_some() {
            // The switch's probe timeout is longer than a bundle takes; and a reply here would cut into a message.
            continue;
        }
        let (xid, message) = Message::decode(message).map_err(|e| Failure::Connection(e.into()))?;
        match message {
            // The error of a message comes before that of the commit, so the message is reported.
            Message::Error(error) if xid >= FIRST => {
                let index = usize::try_from(xid - FIRST).unwrap_or(usize::MAX);
                return Err(Failure::Refused(BundleError::Rejected { index, error }));
            }
            Message::Error(error) => return Err(Failure::Refused(BundleError::Refused(error))),
            Message::BarrierReply | Message::BundleControl(_) if xid == last => return Ok(()),
            _ => {}
        }
    }
}
