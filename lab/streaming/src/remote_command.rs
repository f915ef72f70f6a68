//! Connects a command to the client of `kubectl exec` or `kubectl attach`.

mod channels;
mod outcome;
mod streams;

use std::io;

use bytes::Bytes;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::{Transport, Upgrade};
pub use outcome::Outcome;

/// The protocols, for [`Upgrade::negotiate`].
pub const PROTOCOLS: &[(Transport, &str)] = &[
    (Transport::Channels, V5),
    (Transport::Channels, "v4.channel.k8s.io"),
    (Transport::Spdy, V5),
    (Transport::Spdy, "v4.channel.k8s.io"),
];
/// The version that can close single channels.
const V5: &str = "v5.channel.k8s.io";

/// The streams that a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wants {
    /// Whether the client sends input.
    pub stdin: bool,
    /// Whether the client wants the standard output.
    pub stdout: bool,
    /// Whether the client wants the error output; with a terminal, it is part of the standard output.
    pub stderr: bool,
    /// Whether the command gets a terminal.
    pub tty: bool,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Size {
    /// Number of characters in a line.
    #[serde(rename = "Width")]
    pub width: u16,
    /// Number of lines on the screen.
    #[serde(rename = "Height")]
    pub height: u16,
}

/// What a client sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// Data for the standard input.
    Stdin(Bytes),
    /// The end of the standard input.
    StdinEnd,
    /// The terminal of the client has a new size.
    Resize(Size),
}

/// The stream of a command that output comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Descriptor 1; with a terminal, all output.
    Stdout,
    /// Descriptor 2; unused with a terminal.
    Stderr,
}

/// A client that waits for the output of a command.
pub struct Session {
    /// What the client sends. It ends when the client disconnects.
    pub input: mpsc::Receiver<Input>,
    /// What the client receives. Sending waits while the client is slow, and fails when it has disconnected.
    pub output: mpsc::Sender<(Output, Bytes)>,
}

/// Runs a command for a client, and sends its outcome. `run` must return soon after the end of its input channel.
pub async fn serve<S, R>(upgrade: &Upgrade, stream: S, wants: Wants, run: impl FnOnce(Session) -> R)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
    R: Future<Output = Outcome>,
{
    let served = match upgrade.transport {
        Transport::Channels => channels::serve(&upgrade.protocol, stream, run).await,
        Transport::Spdy => streams::serve(stream, wants, run).await,
        Transport::Tunnel => Err(io::ErrorKind::Unsupported.into()),
    };
    if let Err(error) = served {
        tracing::debug!("the connection to the client has ended: {error}");
    }
}

/// Reads the size of a terminal; invalid ones are ignored.
fn resize(text: &[u8]) -> Option<Input> {
    serde_json::from_slice(text).ok().map(Input::Resize)
}
