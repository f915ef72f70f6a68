//! A client of a bridge's OpenFlow socket that stays connected.
//!
//! One task owns the connection that small requests share and by which the switch speaks up unasked ([`Events`]). What is
//! large has a connection of its own: a bundle ([`Switch::commit`]), so that one which is given up half-way is forgotten by
//! the switch together with its connection, and a dump ([`Switch::dump_flows`]), so that a slow reader slows down nobody
//! else and the switch's answer is never held in memory whole.

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
use openflow::packet::PacketInFormat;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

pub use self::dump::Dump;
pub use self::error::{BundleError, RequestError};
pub use self::events::{Event, Events};
use self::pending::{Answer, Call};
use self::task::Task;

/// How many calls wait for the task; further callers wait for their turn.
const QUEUE: usize = 64;

/// Where the switch is, and how patient the client is.
#[derive(Clone, Debug)]
pub struct Config {
    /// The bridge's management socket, `NAME.mgmt`.
    pub socket: PathBuf,
    /// Sent on every new connection before anything else: which messages the switch sends unasked, and in which form.
    pub setup: Vec<Message>,
    /// After this long without a word of the switch it is probed; after as long again without an answer it is left.
    pub probe_interval: Duration,
    /// How long the switch may take to answer: a request altogether, a bundle or a dump from one sign of life to the next.
    pub timeout: Duration,
    /// The shortest and the longest delay before a new attempt to connect.
    pub reconnect: (Duration, Duration),
    /// How many events may wait to be read; further ones are lost, and a mark says so.
    pub event_backlog: usize,
}

impl Config {
    /// The usual patience for the bridge behind `socket`.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            setup: vec![
                // Open vSwitch sends nothing unasked to a connection that does not say how much of a packet it wants.
                Message::SetConfig(SwitchConfig::WHOLE_PACKETS),
                Message::SetPacketInFormat(PacketInFormat::Nxt2),
            ],
            probe_interval: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
            reconnect: (Duration::from_millis(50), Duration::from_secs(2)),
            event_backlog: 4096,
        }
    }
}

/// How the connection is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// Connecting, or shaking hands.
    Connecting,
    /// Connected.
    Up {
        /// Which connection this is, from 1; another number is another connection.
        epoch: u64,
        /// What the switch said of itself.
        features: Features,
    },
    /// Not connected.
    Waiting {
        /// Why the last attempt or connection ended.
        reason: String,
        /// When the next attempt is made, from the time of this status on.
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
    /// Starts a client, which connects by itself, and the stream of what the switch says unasked.
    pub fn start(config: Config) -> (Switch, Events) {
        let config = Arc::new(config);
        let (calls, queue) = mpsc::channel(QUEUE);
        let (status, seen) = watch::channel(Status::Connecting);
        let (sender, events) = events::channel(config.event_backlog);
        let task = tokio::spawn(Task::new(Arc::clone(&config), queue, status, sender).run());
        (Switch { shared: Arc::new(Shared { config, calls, status: seen, task }) }, events)
    }

    /// How the connection is; the receiver is told of every change.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.shared.status.clone()
    }

    /// Waits until the switch is connected: which connection it is, and what the switch is.
    pub async fn up(&self) -> Result<(u64, Features), RequestError> {
        let mut status = self.status();
        let up = status.wait_for(|s| matches!(s, Status::Up { .. })).await.map_err(|_| RequestError::Stopped)?;
        match &*up {
            Status::Up { epoch, features } => Ok((*epoch, *features)),
            Status::Connecting | Status::Waiting { .. } => Err(RequestError::Stopped),
        }
    }

    /// Sends a request that one message answers.
    pub async fn request(&self, message: Message) -> Result<Message, RequestError> {
        match self.call(|reply| Call::Request { message, reply }).await? {
            Answer::Message(message) => Ok(message),
            Answer::Done | Answer::Parts(_) => Err(RequestError::Unexpected),
        }
    }

    /// Sends messages that nothing answers, and waits until the switch has carried them out or refused one.
    pub async fn apply(&self, messages: Vec<Message>) -> Result<(), RequestError> {
        match self.call(|reply| Call::Apply { messages, reply }).await? {
            Answer::Done => Ok(()),
            Answer::Message(_) | Answer::Parts(_) => Err(RequestError::Unexpected),
        }
    }

    /// Asks for something small that may come in parts. For flows and groups see [`Switch::dump_flows`] and
    /// [`Switch::dump_groups`].
    pub async fn multipart(&self, request: MultipartRequest) -> Result<Vec<ReplyBody>, RequestError> {
        match self.call(|reply| Call::Multipart { request, reply }).await? {
            Answer::Parts(parts) => Ok(parts),
            Answer::Message(_) | Answer::Done => Err(RequestError::Unexpected),
        }
    }

    /// Carries out all messages at one instant, or none of them.
    pub async fn commit<I>(&self, messages: I) -> Result<(), BundleError>
    where
        I: IntoIterator<Item: Bundled>,
    {
        bundle::commit(&self.shared.config, messages).await
    }

    /// Lists flows as they come.
    pub async fn dump_flows(&self, request: FlowRequest) -> Result<Dump<FlowStats>, RequestError> {
        Dump::start(&self.shared.config, MultipartRequest::Flow(request), |body| match body {
            ReplyBody::Flow(flows) => Some(flows),
            _ => None,
        })
        .await
    }

    /// Lists groups as they come.
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
