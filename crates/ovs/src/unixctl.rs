//! One-shot calls to the control socket of a daemon: what `ovs-appctl` does, without starting a process.

mod conntrack;
mod coverage;
mod features;
mod fields;
mod tunnel;

use std::io;
use std::net::IpAddr;
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
pub use self::features::DatapathFeatures;
pub use self::tunnel::TunnelRoute;

/// How much is read at once.
const CHUNK: usize = 64 << 10;
/// Calls that are sent before the first answer is read: their answers fit into a socket's buffer, so neither side waits.
const PIPELINED: usize = 64;
const FLUSH: &str = "dpctl/flush-conntrack";
/// How often connections are listed until all that should be forgotten are.
const ATTEMPTS: usize = 3;

/// Why a call has no result.
#[derive(Debug, Error)]
pub enum UnixctlError {
    /// The daemon has no pidfile: it does not run, or elsewhere.
    #[error("{daemon} does not run in {}", run_dir.display())]
    NotRunning {
        /// Name of the daemon, such as `ovs-vswitchd`.
        daemon: String,
        /// Where its pidfile should be.
        run_dir: PathBuf,
        /// What is wrong with the pidfile.
        source: io::Error,
    },
    /// Connecting, writing or reading failed.
    #[error("{command} at {}: {source}", socket.display())]
    Io {
        /// Name of the unixctl command.
        command: String,
        /// Path of the daemon's control socket.
        socket: PathBuf,
        /// The error of the socket.
        source: io::Error,
    },
    /// The daemon did not answer in time.
    #[error("{command} at {}: no answer within {timeout:?}", socket.display())]
    TimedOut {
        /// Name of the unixctl command.
        command: String,
        /// Path of the daemon's control socket.
        socket: PathBuf,
        /// The timeout of the request.
        timeout: Duration,
    },
    /// The daemon does not know the command, or could not execute it.
    #[error("{command}: {message}")]
    Refused {
        /// Name of the unixctl command.
        command: String,
        /// Error message of the daemon.
        message: String,
    },
    /// The answer is not JSON.
    #[error("{command}: {source}")]
    Frame {
        /// Name of the unixctl command.
        command: String,
        /// The error of the JSON parser.
        source: FrameError,
    },
    /// The answer is not a JSON-RPC response.
    #[error("{command}: {source}")]
    Decode {
        /// Name of the unixctl command.
        command: String,
        /// The part that is missing or has another type.
        source: DecodeError,
    },
    /// The text of the answer has an unknown format.
    #[error("{command}: cannot read {line:?}")]
    Unreadable {
        /// Name of the unixctl command.
        command: String,
        /// The line that is not understood.
        line: String,
    },
}

/// A daemon's control socket, with the timeout of a request.
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

/// How full the table of connections is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConntrackLoad {
    /// Connections that are tracked.
    pub connections: u64,
    /// How many there can be.
    pub limit: u64,
}

/// Calls a command of the daemon behind `socket` and returns the text that it answers.
pub async fn call(socket: &Path, command: &str, args: &[&str], timeout: Duration) -> Result<String, UnixctlError> {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    let mut outcomes = Control::new(socket, timeout).calls(command, &[args]).await?;
    let ended = || {
        let (command, socket) = (command.to_owned(), socket.to_owned());
        Err(UnixctlError::Io { command, socket, source: io::ErrorKind::UnexpectedEof.into() })
    };
    outcomes.pop().unwrap_or_else(ended)
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

    /// Calls any unixctl command, and returns its text.
    pub async fn call(&self, command: &str, args: &[&str]) -> Result<String, UnixctlError> {
        call(&self.socket, command, args, self.timeout).await
    }

    /// What would happen to a packet: `ofproto/trace`.
    pub async fn trace(&self, bridge: &str, flow: &str) -> Result<String, UnixctlError> {
        self.call("ofproto/trace", &[bridge, flow]).await
    }

    /// Features of the datapath of a bridge.
    pub async fn datapath_features(&self, bridge: &str) -> Result<DatapathFeatures, UnixctlError> {
        let text = self.call("dpif/show-dp-features", &[bridge]).await?;
        Ok(DatapathFeatures::parse(&text))
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

    /// Waits until the datapath does what flows say that the switch holds now: it may use what it has cached for a moment after
    /// they have changed. That takes half a second or a whole one.
    pub async fn revalidated(&self) -> Result<(), UnixctlError> {
        // The round that ends first may have begun before the flows were changed.
        for _ in 0..2 {
            self.call("revalidator/wait", &[]).await?;
        }
        Ok(())
    }

    /// Forgets the connections of a zone that match both tuples; a tuple that says nothing matches every connection. The switch
    /// must have one datapath: Open vSwitch 3.1 takes the name of one for a tuple here.
    pub async fn conntrack_flush(
        &self,
        zone: Option<u16>,
        original: &ConntrackMatch,
        reply: &ConntrackMatch,
    ) -> Result<(), UnixctlError> {
        let zone = zone.map(|zone| format!("zone={zone}"));
        let (original, reply) = (original.to_string(), reply.to_string());
        let mut args: Vec<_> = zone.as_deref().into_iter().collect();
        match (original.as_str(), reply.as_str()) {
            ("", "") => {}
            (original, "") => args.push(original),
            (original, reply) => args.extend([original, reply]),
        }
        self.call(FLUSH, &args).await.map(drop)
    }

    /// Forgets all connections of an address, in all zones: those that it began, and those in which it answers, whatever
    /// address they were sent to. Of IPv6 only those of TCP, UDP and SCTP; see [`ConntrackEntry::is_flushable`].
    pub async fn conntrack_flush_address(&self, ip: IpAddr) -> Result<(), UnixctlError> {
        let protocols: &[Option<u8>] = if ip.is_ipv4() { &[None] } else { &[Some(6), Some(17), Some(132)] };
        let matching = |protocol: &Option<u8>| {
            let of = ConntrackMatch { src: Some(ip), protocol: *protocol, ..ConntrackMatch::default() }.to_string();
            [vec![of.clone()], vec![String::new(), of]]
        };
        let calls: Vec<Vec<String>> = protocols.iter().flat_map(matching).collect();
        for outcome in self.calls(FLUSH, &calls).await? {
            match outcome {
                // The switch looks for connections and stops at the first that has expired meanwhile: others are still there.
                Err(refused @ UnixctlError::Refused { .. }) => return self.conntrack_flush_each(ip, refused).await,
                outcome => drop(outcome?),
            }
        }
        Ok(())
    }

    /// Forgets all connections of an address one by one.
    async fn conntrack_flush_each(&self, ip: IpAddr, refused: UnixctlError) -> Result<(), UnixctlError> {
        let is_its = |entry: &ConntrackEntry| entry.original.src == ip || entry.reply.src == ip;
        for _ in 0..ATTEMPTS {
            let mut its = self.conntrack_dump(None, None).await?;
            its.retain(|entry| is_its(entry) && entry.is_flushable());
            if its.is_empty() {
                return Ok(());
            }
            self.conntrack_flush_entries(&its).await?;
        }
        Err(refused)
    }

    /// Forgets those of these connections that can be; how many there still were. One that has ended by itself keeps no other one.
    pub async fn conntrack_flush_entries(&self, entries: &[ConntrackEntry]) -> Result<usize, UnixctlError> {
        let mut forgotten = 0;
        for chunk in entries.chunks(PIPELINED) {
            let args = |entry: &ConntrackEntry| vec![format!("zone={}", entry.zone), entry.exactly().to_string()];
            let calls = chunk.iter().filter(|entry| entry.is_flushable()).map(args).collect::<Vec<_>>();
            for outcome in self.calls(FLUSH, &calls).await? {
                match outcome {
                    Ok(_) => forgotten += 1,
                    Err(UnixctlError::Refused { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(forgotten)
    }

    /// How many connections are tracked, and how many there can be.
    pub async fn conntrack_load(&self, datapath: Option<&str>) -> Result<ConntrackLoad, UnixctlError> {
        let number = async |command: &str| {
            let args: Vec<_> = datapath.into_iter().collect();
            let text = self.call(command, &args).await?;
            text.trim().parse::<u64>().map_err(|_| unreadable(command, &text))
        };
        let connections = number("dpctl/ct-get-nconns").await?;
        Ok(ConntrackLoad { connections, limit: number("dpctl/ct-get-maxconns").await? })
    }

    /// Sets how many connections can be tracked.
    pub async fn conntrack_limit(&self, datapath: Option<&str>, limit: u64) -> Result<(), UnixctlError> {
        let limit = limit.to_string();
        let args: Vec<_> = datapath.into_iter().chain([limit.as_str()]).collect();
        self.call("dpctl/ct-set-maxconns", &args).await.map(drop)
    }

    /// Calls a command many times over one connection, without waiting for one answer before the next call; an outcome for each.
    async fn calls(
        &self,
        command: &str,
        args: &[Vec<String>],
    ) -> Result<Vec<Result<String, UnixctlError>>, UnixctlError> {
        let calls: Vec<(&str, &[String])> = args.iter().map(|args| (command, args.as_slice())).collect();
        self.sequence(&calls).await
    }

    /// Calls commands over one connection, without waiting for one answer before the next call; an outcome for each.
    async fn sequence(&self, calls: &[(&str, &[String])]) -> Result<Vec<Result<String, UnixctlError>>, UnixctlError> {
        let (socket, timeout) = (&self.socket, self.timeout);
        match tokio::time::timeout(timeout, exchange(socket, calls)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let command = calls.first().map_or_else(String::new, |(command, _)| (*command).to_owned());
                Err(UnixctlError::TimedOut { command, socket: socket.clone(), timeout })
            }
        }
    }

    /// How often things have happened in the daemon; what happened in the last seconds may not be counted yet.
    pub async fn coverage(&self) -> Result<Coverage, UnixctlError> {
        const COMMAND: &str = "coverage/show";
        Coverage::parse(&self.call(COMMAND, &[]).await?).map_err(|line| unreadable(COMMAND, line))
    }
}

async fn exchange(
    socket: &Path,
    calls: &[(&str, &[String])],
) -> Result<Vec<Result<String, UnixctlError>>, UnixctlError> {
    let Some((first, _)) = calls.first() else { return Ok(Vec::new()) };
    let failed = |command: &str, source| {
        let (command, socket) = (command.to_owned(), socket.to_owned());
        UnixctlError::Io { command, socket, source }
    };
    let mut stream = UnixStream::connect(socket).await.map_err(|source| failed(first, source))?;
    let mut requests = Vec::new();
    for (command, args) in calls {
        let request = Request::new(0, command, args.iter().map(|arg| arg.as_str().into()).collect());
        requests.extend(Message::from(request).to_bytes());
    }
    stream.write_all(&requests).await.map_err(|source| failed(first, source))?;
    let mut framer = Framer::default();
    let mut chunk = vec![0; CHUNK];
    let mut outcomes = Vec::with_capacity(calls.len());
    for (command, _) in calls {
        let answer = loop {
            let next = framer.next_value();
            let next = next.map_err(|source| UnixctlError::Frame { command: (*command).to_owned(), source })?;
            if let Some(answer) = next {
                break answer;
            }
            match stream.read(&mut chunk).await.map_err(|source| failed(command, source))? {
                0 => return Err(failed(command, io::ErrorKind::UnexpectedEof.into())),
                n => framer.push(chunk.get(..n).unwrap_or_default()),
            }
        };
        let decode = |source| UnixctlError::Decode { command: (*command).to_owned(), source };
        outcomes.push(match Message::decode(answer).map_err(decode)? {
            Message::Response(response) => match response.outcome {
                Ok(Value::String(text)) => Ok(text),
                Ok(Value::Null) => Ok(String::new()),
                Ok(other) => Err(decode(DecodeError::unexpected("text", &other))),
                Err(error) => {
                    let message = error.as_str().map_or_else(|| error.to_string(), |text| text.trim_end().to_owned());
                    Err(UnixctlError::Refused { command: (*command).to_owned(), message })
                }
            },
            other => Err(decode(DecodeError::unexpected("a response", &other.encode()))),
        });
    }
    Ok(outcomes)
}

fn unreadable(command: &str, line: &str) -> UnixctlError {
    UnixctlError::Unreadable { command: command.to_owned(), line: line.to_owned() }
}
