//! One connection: a socket that is read as messages.

use std::path::Path;
use std::time::Duration;

use openflow::control::Hello;
use openflow::framer::Framer;
use openflow::header::{Header, OF15, kind};
use openflow::message::Message;
use openflow::wire::Reader;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::error::ConnectionError;

/// Bytes to read at once: most connections get a few short messages, and a dump fills the buffer until it has room for some of
/// the longest.
const MIN_READ: usize = 4 * 1024;
const MAX_READ: usize = 256 * 1024;

/// The receiving half of a connection.
#[derive(Debug)]
pub(super) struct Receiver {
    half: OwnedReadHalf,
    framer: Framer,
    buffer: Vec<u8>,
}

/// Connects and exchanges hello messages, both within `limit`.
pub(super) async fn connect(socket: &Path, limit: Duration) -> Result<(Receiver, OwnedWriteHalf), ConnectionError> {
    timeout(limit, handshake(socket)).await.map_err(|_| ConnectionError::Silent(limit))?
}

async fn handshake(socket: &Path) -> Result<(Receiver, OwnedWriteHalf), ConnectionError> {
    let (half, mut sender) = UnixStream::connect(socket).await?.into_split();
    let mut receiver = Receiver { half, framer: Framer::new(), buffer: vec![0; MIN_READ] };
    let mut hello = Vec::new();
    Message::Hello(Hello::of15()).encode(0, &mut hello)?;
    sender.write_all(&hello).await?;
    let bytes = receiver.next().await?;
    match Message::decode(bytes)?.1 {
        Message::Hello(hello) if hello.supports(OF15) => Ok((receiver, sender)),
        other => Err(ConnectionError::Version(other.to_string())),
    }
}

impl Receiver {
    /// The next whole message. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<&[u8], ConnectionError> {
        // `has_message` first: a message returned inside the loop would keep the framer borrowed.
        while !self.framer.has_message()? {
            let n = self.half.read(&mut self.buffer).await?;
            if n == 0 {
                return Err(ConnectionError::Closed);
            }
            self.framer.feed(self.buffer.get(..n).unwrap_or_default());
            if n == self.buffer.len() && n < MAX_READ {
                self.buffer.resize(2 * n, 0);
            }
        }
        self.framer.next_message()?.ok_or(ConnectionError::Closed)
    }

    /// The next whole message, if it comes within `limit`.
    pub(super) async fn next_within(&mut self, limit: Duration) -> Result<&[u8], ConnectionError> {
        match timeout(limit, self.next()).await {
            Ok(message) => message,
            Err(_) => Err(ConnectionError::Silent(limit)),
        }
    }
}

/// The xid of a message, even if the rest cannot be decoded.
pub(super) fn xid(message: &[u8]) -> u32 {
    Header::decode(&mut Reader::new(message)).map_or(0, |header| header.xid)
}

/// The encoded reply, if the message is an echo request.
pub(super) fn echo_reply(message: &[u8]) -> Option<Vec<u8>> {
    let header = Header::decode(&mut Reader::new(message)).ok()?;
    if header.kind != kind::ECHO_REQUEST {
        return None;
    }
    let mut reply = Vec::new();
    Message::EchoReply(message.get(8..)?.to_vec()).encode(header.xid, &mut reply).ok()?;
    Some(reply)
}
