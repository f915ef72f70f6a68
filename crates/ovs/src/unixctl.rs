//! One-shot calls to the control socket of a daemon: what `ovs-appctl` does, without starting a process.

mod conntrack;
mod coverage;
mod fields;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ovsdb::frame::{FrameError, Framer};
use ovsdb::rpc::{Message, Request};
use ovsdb::value::DecodeError;
use serde_json::Value;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

pub use self::conntrack::{ConntrackEntry, ConntrackMatch, ConntrackProtocol, ConntrackTuple, Layer4};
pub use self::coverage::{Counter, Coverage};

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// Why a call has no result.
#[derive(Debug, Error)]
pub enum UnixctlError {
    /// The daemon has no pidfile: it does not run, or elsewhere.
    #[error("{daemon} does not run in {}", run_dir.display())]
    NotRunning {
        /// The daemon.
        daemon: String,
        /// Where its pidfile should be.
        run_dir: PathBuf,
        /// What is wrong with the pidfile.
        source: io::Error,
    },
    /// The socket failed.
    #[error("{command} at {}: {source}", socket.display())]
    Io {
        /// The command.
        command: String,
        /// The daemon's socket.
        socket: PathBuf,
        /// What failed.
        source: io::Error,
    },
    /// The daemon did not answer in time.
    #[error("{command} at {}: no answer within {timeout:?}", socket.display())]
    TimedOut {
        /// The command.
        command: String,
        /// The daemon's socket.
        socket: PathBuf,
        /// How long it had.
        timeout: Duration,
    },
    /// The daemon does not know the command, or could not carry it out.
    #[error("{command}: {message}")]
    Refused {
        /// The command.
        command: String,
        /// What the daemon said.
        message: String,
    },
    /// The answer is not JSON.
    #[error("{command}: {source}")]
    Frame {
        /// The command.
        command: String,
        /// What is wrong with it.
        source: FrameError,
    },
    /// The answer is not a JSON-RPC response.
    #[error("{command}: {source}")]
    Decode {
        /// The command.
        command: String,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// The text of the answer is not of the form that is known.
    #[error("{command}: cannot read {line:?}")]
    Unreadable {
        /// The command.
        command: String,
        /// The line that is not understood.
        line: String,
    },
}

/// A daemon's control socket and the patience to use it with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Control {
    socket: PathBuf,
    timeout: Duration,
}

impl UnixctlError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NotRunning { .. } | Self::Io { .. } | Self::TimedOut { .. } => true,
            Self::Refused { .. } | Self::Frame { .. } | Self::Decode { .. } | Self::Unreadable { .. } => false,
        }
    }
}

/// Calls a command of the daemon behind `socket` and returns the text that it answers.
pub async fn call(socket: &Path, command: &str, args: &[&str], timeout: Duration) -> Result<String, UnixctlError> {
    match tokio::time::timeout(timeout, exchange(socket, command, args)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(UnixctlError::TimedOut { command: command.to_owned(), socket: socket.to_owned(), timeout }),
    }
}

/// The control socket of a daemon, from the pidfile in its run directory.
///
/// Look it up again after an error: a daemon that was restarted has another one.
pub fn find_socket(run_dir: &Path, daemon: &str) -> Result<PathBuf, UnixctlError> {
    let not_running = |source| {
        let (daemon, run_dir) = (daemon.to_owned(), run_dir.to_owned());
        UnixctlError::NotRunning { daemon, run_dir, source }
    };
    let pidfile = run_dir.join(format!("{daemon}.pid"));
    let pid = std::fs::read_to_string(pidfile).map_err(not_running)?;
    let pid: u32 =
        pid.trim().parse().map_err(|error| not_running(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    Ok(run_dir.join(format!("{daemon}.{pid}.ctl")))
}

impl Control {
    /// The daemon behind `socket`; each call may take up to `timeout`.
    pub fn new(socket: impl Into<PathBuf>, timeout: Duration) -> Self {
        Self { socket: socket.into(), timeout }
    }

    /// The ovs-vswitchd of a run directory.
    pub fn vswitchd(run_dir: &Path, timeout: Duration) -> Result<Self, UnixctlError> {
        Ok(Self::new(find_socket(run_dir, "ovs-vswitchd")?, timeout))
    }

    /// Calls any command.
    pub async fn call(&self, command: &str, args: &[&str]) -> Result<String, UnixctlError> {
        call(&self.socket, command, args, self.timeout).await
    }

    /// What would happen to a packet: `ofproto/trace`.
    pub async fn trace(&self, bridge: &str, flow: &str) -> Result<String, UnixctlError> {
        self.call("ofproto/trace", &[bridge, flow]).await
    }

    /// The connections that are tracked, of one zone or of all; a datapath is named only if there are several.
    pub async fn conntrack_dump(
        &self,
        datapath: Option<&str>,
        zone: Option<u16>,
    ) -> Result<Vec<ConntrackEntry>, UnixctlError> {
        const COMMAND: &str = "dpctl/dump-conntrack";
        let zone = zone.map(|zone| format!("zone={zone}"));
        let args: Vec<_> = datapath.into_iter().chain(zone.as_deref()).collect();
        let text = self.call(COMMAND, &args).await?;
        let entry = |line: &str| ConntrackEntry::parse(line).ok_or_else(|| unreadable(COMMAND, line));
        text.lines().filter(|line| !line.is_empty()).map(entry).collect()
    }

    /// Forgets the connections of a zone that match both tuples; a tuple that says nothing matches every connection.
    pub async fn conntrack_flush(
        &self,
        datapath: Option<&str>,
        zone: Option<u16>,
        original: &ConntrackMatch,
        reply: &ConntrackMatch,
    ) -> Result<(), UnixctlError> {
        let zone = zone.map(|zone| format!("zone={zone}"));
        let (original, reply) = (original.to_string(), reply.to_string());
        let mut args: Vec<_> = datapath.into_iter().chain(zone.as_deref()).collect();
        match (original.as_str(), reply.as_str()) {
            ("", "") => {}
            (original, "") => args.push(original),
            (original, reply) => args.extend([original, reply]),
        }
        self.call("dpctl/flush-conntrack", &args).await.map(drop)
    }

    /// How often things have happened in the daemon; what happened in the last seconds may not be counted yet.
    pub async fn coverage(&self) -> Result<Coverage, UnixctlError> {
        const COMMAND: &str = "coverage/show";
        Coverage::parse(&self.call(COMMAND, &[]).await?).map_err(|line| unreadable(COMMAND, line))
    }
}

async fn exchange(socket: &Path, command: &str, args: &[&str]) -> Result<String, UnixctlError> {
    let io = |source| UnixctlError::Io { command: command.to_owned(), socket: socket.to_owned(), source };
    let decode = |source| UnixctlError::Decode { command: command.to_owned(), source };
    let mut stream = UnixStream::connect(socket).await.map_err(io)?;
    let request = Request::new(0, command, args.iter().map(|&arg| arg.into()).collect());
    stream.write_all(&Message::from(request).to_bytes()).await.map_err(io)?;
    let mut framer = Framer::default();
    let mut chunk = vec![0; CHUNK];
    let answer = loop {
        let next = framer.next_value();
        if let Some(answer) = next.map_err(|source| UnixctlError::Frame { command: command.to_owned(), source })? {
            break answer;
        }
        match stream.read(&mut chunk).await.map_err(io)? {
            0 => return Err(io(io::ErrorKind::UnexpectedEof.into())),
            n => framer.push(chunk.get(..n).unwrap_or_default()),
        }
    };
    match Message::decode(answer).map_err(decode)? {
        Message::Response(response) => match response.outcome {
            Ok(Value::String(text)) => Ok(text),
            Ok(Value::Null) => Ok(String::new()),
            Ok(other) => Err(decode(DecodeError::unexpected("text", &other))),
            Err(error) => {
                let message = error.as_str().map_or_else(|| error.to_string(), |text| text.trim_end().to_owned());
                Err(UnixctlError::Refused { command: command.to_owned(), message })
            }
        },
        other => Err(decode(DecodeError::unexpected("a response", &other.encode()))),
    }
}

fn unreadable(command: &str, line: &str) -> UnixctlError {
    UnixctlError::Unreadable { command: command.to_owned(), line: line.to_owned() }
}
