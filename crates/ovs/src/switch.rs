//! A client of a bridge's OpenFlow socket that stays connected.
//!
//! One task owns the connection for small requests and for asynchronous messages of the switch ([`Events`]). Large
//! transfers have a connection of their own: a bundle ([`Switch::commit`]), as the switch discards an abandoned one
//! together with its connection; and a dump ([`Switch::dump_flows`]), so that a slow reader delays no other request and the reply is never in
//! memory as a whole.

mod bundle;
mod connection;
mod dump;
mod error;
mod events;
mod pending;
mod task;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use openflow::bundle::Bundled;
use openflow::control::{Features, SwitchConfig};
use openflow::flow::{FlowRequest, FlowStats};
use openflow::group::{ALL_GROUPS, Group};
use openflow::message::Message;
use openflow::multipart::{MultipartRequest, ReplyBody};
use openflow::packet::{PacketIn2, PacketInFormat};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

pub use self::bundle::Bundle;
pub use self::dump::Dump;
pub use self::error::{BundleError, RequestError};
pub use self::events::{Event, Events};
use self::pending::{Answer, Call};
use self::task::Task;

/// Calls that wait for the task; further callers block.
const QUEUE: usize = 64;

/// The bridge, and timeouts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of the bridge's management socket, `NAME.mgmt`.
    pub socket: PathBuf,
    /// Sent first on every connection: selects the asynchronous messages of the switch, and their format.
    pub setup: Vec<Message>,
    /// After this long without data a probe is sent; after as long again without data the connection is closed.
    pub probe_interval: Duration,
    /// Timeout of a request; of a bundle or a dump, the longest time without data.
    pub timeout: Duration,
    /// Minimum and maximum of the reconnect backoff.
    pub reconnect: (Duration, Duration),
    /// Events that may wait to be read; further ones are dropped, and [`Event::Missed`] takes their place.
    pub event_backlog: usize,
    /// Where packets of the switch go. They are no events then: as many as there may be, no event is lost for them.
    pub packets: Option<PacketSink>,
}

/// What takes packets of the switch. It must not wait.
#[derive(Clone)]
pub struct PacketSink(Arc<dyn Fn(Box<PacketIn2>) + Send + Sync>);

impl PacketSink {
    /// Calls `take` for every packet.
    pub fn new(take: impl Fn(Box<PacketIn2>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }
}

impl std::fmt::Debug for PacketSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PacketSink")
    }
}

impl Config {
    /// The bridge behind `socket`, and timeouts for a local switch.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            setup: vec![
                // Open vSwitch sends asynchronous messages only to connections that set the length of packets.
                Message::SetConfig(SwitchConfig::WHOLE_PACKETS),
                Message::SetPacketInFormat(PacketInFormat::Nxt2),
            ],
            probe_interval: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            reconnect: (Duration::from_millis(50), Duration::from_secs(2)),
            event_backlog: 4096,
            packets: None,
        }
    }
}

/// State of the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// Connecting, or in the handshake.
    Connecting,
    /// Connected, and the handshake is complete.
    Up {
        /// Number of the connection, from 1.
        epoch: u64,
        /// The switch's features reply.
        features: Features,
    },
    /// Not connected; the next attempt is scheduled.
    Waiting {
        /// Why the last attempt or connection ended.
        reason: String,
        /// Delay of the next attempt, counted from this status.
        retry_in: Duration,
    },
}

/// A handle to the client; the connection ends with the last clone of it.
#[derive(Clone, Debug)]
pub struct Switch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: Arc<Config>,
    calls: mpsc::Sender<Call>,
    status: watch::Receiver<Status>,
    task: JoinHandle<()>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Switch {
    /// Starts a client, which connects in the background, with the stream of its events.
    pub fn start(config: Config) -> (Switch, Events) {
        let config = Arc::new(config);
        let (calls, queue) = mpsc::channel(QUEUE);
        let (status, status_reader) = watch::channel(Status::Connecting);
        let (sender, events) = events::channel(config.event_backlog);
        let task = tokio::spawn(Task::new(Arc::clone(&config), queue, status, sender).run());
        (Switch { shared: Arc::new(Shared { config, calls, status: status_reader, task }) }, events)
    }

    /// The state of the connection, to read or to wait for.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.shared.status.clone()
    }

    /// Waits for a connection; returns its number and the switch's features.
    pub async fn up(&self) -> Result<(u64, Features), RequestError> {
        let mut status = self.status();
        let up = status.wait_for(|s| matches!(s, Status::Up { .. })).await.map_err(|_| RequestError::Stopped)?;
        match &*up {
            Status::Up { epoch, features } => Ok((*epoch, *features)),
            Status::Connecting | Status::Waiting { .. } => Err(RequestError::Stopped),
        }
    }

    /// Sends a request and returns its reply, a single message.
    pub async fn request(&self, message: Message) -> Result<Message, RequestError> {
        match self.call(|reply| Call::Request { message, reply }).await? {
            Answer::Message(message) => Ok(message),
            Answer::Done | Answer::Parts(_) => Err(RequestError::Unexpected),
        }
    }

    /// Sends messages without replies, and waits until the switch has processed all of them; fails if it rejected one.
    pub async fn apply(&self, messages: Vec<Message>) -> Result<(), RequestError> {
        match self.call(|reply| Call::Apply { messages, reply }).await? {
            Answer::Done => Ok(()),
            Answer::Message(_) | Answer::Parts(_) => Err(RequestError::Unexpected),
        }
    }

    /// Sends a multipart request and returns all parts of the reply. For flows and groups, which may be many, see
    /// [`Switch::dump_flows`] and [`Switch::dump_groups`].
    pub async fn multipart(&self, request: MultipartRequest) -> Result<Vec<ReplyBody>, RequestError> {
        match self.call(|reply| Call::Multipart { request, reply }).await? {
            Answer::Parts(parts) => Ok(parts),
            Answer::Message(_) | Answer::Done => Err(RequestError::Unexpected),
        }
    }

    /// Applies all messages atomically, or none of them.
    pub async fn commit<I>(&self, messages: I) -> Result<(), BundleError>
    where
        I: IntoIterator<Item: Bundled>,
    {
        self.bundle(messages).await?.commit().await
    }

    /// Encodes messages that are to be applied atomically. Many are sent meanwhile, but the switch has not accepted them yet.
    pub async fn bundle<I>(&self, messages: I) -> Result<Bundle, BundleError>
    where
        I: IntoIterator<Item: Bundled>,
    {
        Bundle::new(&self.shared.config, messages).await
    }

    /// Lists flows as a stream.
    pub async fn dump_flows(&self, request: FlowRequest) -> Result<Dump<FlowStats>, RequestError> {
        Dump::start(&self.shared.config, MultipartRequest::Flow(request), |body| match body {
            ReplyBody::Flow(flows) => Some(flows),
            _ => None,
        })
        .await
    }

    /// Lists groups as a stream.
    pub async fn dump_groups(&self) -> Result<Dump<Group>, RequestError> {
        Dump::start(&self.shared.config, MultipartRequest::GroupDesc(ALL_GROUPS), |body| match body {
            ReplyBody::GroupDesc(groups) => Some(groups),
            _ => None,
        })
        .await
    }

    async fn call(
        &self,
        call: impl FnOnce(oneshot::Sender<Result<Answer, RequestError>>) -> Call,
    ) -> Result<Answer, RequestError> {
        let (reply, answer) = oneshot::channel();
        self.shared.calls.send(call(reply)).await.map_err(|_| RequestError::Stopped)?;
        answer.await.map_err(|_| RequestError::Stopped)?
    }
}
