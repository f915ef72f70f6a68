//! Atomic bundles of changes.

use openflow::bundle::{BundleControl, BundleFlags, BundleId, BundleStep, Bundled, put_bundle_add};
use openflow::message::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;

use super::Config;
use super::connection::{Receiver, connect, echo_reply};
use super::error::{BundleError, ConnectionError};

/// Encoded bytes that are written at once.
const CHUNK: usize = 64 * 1024;

const BUNDLE: BundleId = BundleId(1);
const FLAGS: BundleFlags = BundleFlags::ATOMIC.union(BundleFlags::ORDERED);

/// Xids of the bundle's own messages; those of its content count from `FIRST`.
const OPEN: u32 = 1;
const BARRIER: u32 = 2;
const COMMIT: u32 = 3;
const FIRST: u32 = 4;

/// Opens a bundle, fills it, and commits it once the switch has accepted every message.
pub(super) async fn commit<I>(config: &Config, messages: I) -> Result<(), BundleError>
where
    I: IntoIterator<Item: Bundled>,
{
    let (mut receiver, mut sender) =
        connect(&config.socket, config.timeout).await.map_err(BundleError::Disconnected)?;
    let mut failure = None;
    {
        // Errors are read while messages are still written, so that neither side blocks the other.
        let fill = fill(&mut sender, messages);
        let accept = answer(&mut receiver, config, BARRIER);
        tokio::pin!(fill, accept);
        let mut filled = false;
        loop {
            tokio::select! {
                result = &mut fill, if !filled => {
                    filled = true;
                    result?;
                }
                result = &mut accept => {
                    match result {
                        Ok(()) => {}
                        Err(Outcome::Connection(error)) => return Err(BundleError::Disconnected(error)),
                        Err(Outcome::Refused(error)) => failure = Some(error),
                    }
                    break;
                }
            }
        }
    }
    if let Some(error) = failure {
        // The switch discards the bundle together with the connection.
        return Err(error);
    }
    let mut out = Vec::new();
    put(&mut out, COMMIT, BundleStep::CommitRequest);
    sender.write_all(&out).await.map_err(|e| BundleError::OutcomeUnknown(e.into()))?;
    match answer(&mut receiver, config, COMMIT).await {
        Ok(()) => Ok(()),
        Err(Outcome::Refused(error)) => Err(error),
        Err(Outcome::Connection(error)) => Err(BundleError::OutcomeUnknown(error)),
    }
}

fn put(out: &mut Vec<u8>, xid: u32, step: BundleStep) {
    // A message of eight bytes is never too long.
    let _ = Message::BundleControl(BundleControl { id: BUNDLE, step, flags: FLAGS }).encode(xid, out);
}

async fn fill<I>(sender: &mut OwnedWriteHalf, messages: I) -> Result<(), BundleError>
where
    I: IntoIterator<Item: Bundled>,
{
    let lost = |e: std::io::Error| BundleError::Disconnected(e.into());
    let mut out = Vec::with_capacity(2 * CHUNK);
    put(&mut out, OPEN, BundleStep::OpenRequest);
    for (index, message) in messages.into_iter().enumerate() {
        let xid = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(FIRST);
        put_bundle_add(&mut out, xid, BUNDLE, FLAGS, message.kind(), |out| message.put_body(out))
            .map_err(|error| BundleError::TooLong { index, error })?;
        if out.len() >= CHUNK {
            sender.write_all(&out).await.map_err(lost)?;
            out.clear();
        }
    }
    let _ = Message::BarrierRequest.encode(BARRIER, &mut out);
    sender.write_all(&out).await.map_err(lost)
}

enum Outcome {
    Connection(ConnectionError),
    Refused(BundleError),
}

/// Reads until the reply to the message with xid `last`, or the first error.
async fn answer(receiver: &mut Receiver, config: &Config, last: u32) -> Result<(), Outcome> {
    loop {
        let message = receiver.next_within(config.timeout).await.map_err(Outcome::Connection)?;
        if echo_reply(message).is_some() {
            // The switch's probe timeout is longer than a bundle takes; and a reply here would cut into a message.
            continue;
        }
        let (xid, message) = Message::decode(message).map_err(|e| Outcome::Connection(e.into()))?;
        match message {
            // The error of a message comes before that of the commit, so the message is reported.
            Message::Error(error) if xid >= FIRST => {
                let index = usize::try_from(xid - FIRST).unwrap_or(usize::MAX);
                return Err(Outcome::Refused(BundleError::Rejected { index, error }));
            }
            Message::Error(error) => return Err(Outcome::Refused(BundleError::Refused(error))),
            Message::BarrierReply | Message::BundleControl(_) if xid == last => return Ok(()),
            _ => {}
        }
    }
}
