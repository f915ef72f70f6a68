//! Lists that are read as a stream.

use openflow::message::Message;
use openflow::multipart::{MultipartRequest, ReplyBody};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;

use super::Config;
use super::connection::{Receiver, connect, echo_reply};
use super::error::{ConnectionError, RequestError};

const XID: u32 = 1;

/// A list from the switch; dropping it closes its connection.
pub struct Dump<T> {
    receiver: Receiver,
    sender: OwnedWriteHalf,
    entries: std::vec::IntoIter<T>,
    more: bool,
    take: fn(ReplyBody) -> Option<Vec<T>>,
    timeout: std::time::Duration,
}

impl<T> Dump<T> {
    /// Sends the request on a connection of its own.
    pub(super) async fn start(
        config: &Config,
        request: MultipartRequest,
        take: fn(ReplyBody) -> Option<Vec<T>>,
    ) -> Result<Self, RequestError> {
        let not_connected = |e: ConnectionError| RequestError::NotConnected(e.to_string());
        let (receiver, mut sender) = connect(&config.socket, config.timeout).await.map_err(not_connected)?;
        let mut out = Vec::new();
        Message::MultipartRequest(request).encode(XID, &mut out)?;
        sender.write_all(&out).await.map_err(|e| not_connected(e.into()))?;
        let entries = Vec::new().into_iter();
        Ok(Self { receiver, sender, entries, more: true, take, timeout: config.timeout })
    }

    /// The next entry; `None` after the last. After an error there is no next one.
    pub async fn next(&mut self) -> Result<Option<T>, RequestError> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Ok(Some(entry));
            }
            if !self.more {
                return Ok(None);
            }
            self.more = false;
            self.read_part().await?;
        }
    }

    async fn read_part(&mut self) -> Result<(), RequestError> {
        loop {
            let message = match self.receiver.next_within(self.timeout).await {
                Ok(message) => message,
                Err(ConnectionError::Silent(silence)) => return Err(RequestError::TimedOut(silence)),
                Err(error) => return Err(RequestError::Lost(error.to_string())),
            };
            if let Some(reply) = echo_reply(message) {
                self.sender.write_all(&reply).await.map_err(|e| RequestError::Lost(e.to_string()))?;
                continue;
            }
            match Message::decode(message)? {
                (XID, Message::MultipartReply(part)) => {
                    self.more = part.more;
                    self.entries = (self.take)(part.body).ok_or(RequestError::Unexpected)?.into_iter();
                    return Ok(());
                }
                (XID, Message::Error(error)) => return Err(RequestError::Refused { index: 0, error }),
                // The switch sends asynchronous messages, such as port changes, on every connection.
                _ => {}
            }
        }
    }
}
