//! The task that owns the shared connection.

use std::sync::Arc;
use std::time::Duration;

use openflow::control::Features;
use openflow::message::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};
use types::backoff::Backoff;

use super::connection::{Receiver, connect, echo_reply, xid};
use super::error::{ConnectionError, RequestError};
use super::events::{Event, EventSender};
use super::pending::{Call, Pending};
use super::{Config, Status};

/// While this many bytes wait to be written, no further call is accepted.
const WRITE_BACKLOG: usize = 1 << 20;
/// While this many calls are in flight, no further call is accepted.
const CALL_BACKLOG: usize = 1024;

pub(super) struct Task {
    config: Arc<Config>,
    calls: mpsc::Receiver<Call>,
    status: watch::Sender<Status>,
    events: EventSender,
    epoch: u64,
}

/// The state of one connection.
struct Session {
    receiver: Receiver,
    sender: OwnedWriteHalf,
    pending: Pending,
    /// Encoded messages that are not written yet.
    out: Vec<u8>,
    /// When to probe a silent switch, or to disconnect if it does not answer a probe.
    probe_at: Instant,
    /// Whether a probe was sent since data was last received.
    probed: bool,
}

impl Task {
    pub(super) fn new(
        config: Arc<Config>,
        calls: mpsc::Receiver<Call>,
        status: watch::Sender<Status>,
        events: EventSender,
    ) -> Self {
        Self { config, calls, status, events, epoch: 0 }
    }

    /// Connects and reconnects until all handles are dropped.
    pub(super) async fn run(mut self) {
        let (min, max) = self.config.reconnect;
        let mut backoff = Backoff::new(min, max).seeded(u64::from(std::process::id()));
        loop {
            self.status.send_replace(Status::Connecting);
            let reason = match self.open().await {
                Ok((mut session, features)) => {
                    backoff.reset();
                    self.epoch += 1;
                    info!(socket = %self.config.socket.display(), epoch = self.epoch, "connected to ovs-vswitchd");
                    self.events.send(Event::Up { epoch: self.epoch, features });
                    self.status.send_replace(Status::Up { epoch: self.epoch, features });
                    let Err(error) = self.serve(&mut session).await else { return };
                    let reason = error.to_string();
                    session.pending.fail_all(|| RequestError::Lost(reason.clone()));
                    self.events.send(Event::Down { reason: reason.clone() });
                    reason
                }
                Err(error) => error.to_string(),
            };
            let retry_in = backoff.next_delay();
            let (socket, attempts) = (self.config.socket.display(), backoff.attempts());
            if backoff.is_news() {
                warn!(%socket, attempts, ?retry_in, "not connected to ovs-vswitchd, retrying: {reason}");
            } else {
                debug!(%socket, attempts, ?retry_in, "not connected to ovs-vswitchd, retrying: {reason}");
            }
            self.status.send_replace(Status::Waiting { reason: reason.clone(), retry_in });
            if !self.wait(retry_in, &reason).await {
                return;
            }
        }
    }

    async fn open(&self) -> Result<(Session, Features), ConnectionError> {
        let (receiver, sender) = connect(&self.config.socket, self.config.timeout).await?;
        let mut session = Session {
            receiver,
            sender,
            pending: Pending::default(),
            out: Vec::new(),
            probe_at: Instant::now() + self.config.probe_interval,
            probed: false,
        };
        for message in &self.config.setup {
            session.pending.send(message, &mut session.out)?;
        }
        session.pending.send(&Message::FeaturesRequest, &mut session.out)?;
        session.sender.write_all(&session.out).await?;
        session.out.clear();
        loop {
            let message = session.receiver.next_within(self.config.timeout).await?;
            match Message::decode(message)?.1 {
                Message::FeaturesReply(features) => return Ok((session, features)),
                Message::Error(error) => return Err(ConnectionError::Refused(error)),
                // Asynchronous messages before the first event are of no use.
                _ => {}
            }
        }
    }

    /// Serves calls until the connection ends (an error) or all handles are dropped (`Ok`).
    async fn serve(&mut self, session: &mut Session) -> Result<(), ConnectionError> {
        loop {
            let (deadline, probe_at) = (session.pending.next_deadline(), session.probe_at);
            let wake_at = deadline.map_or(probe_at, |deadline| deadline.min(probe_at));
            let room = session.out.len() < WRITE_BACKLOG && session.pending.len() < CALL_BACKLOG;
            tokio::select! {
                // No branch starves: writes and calls in flight are bounded, then comes reading. The switch is silent only if
                // there is nothing to read: on a busy machine, this task may run long after the moment of a probe.
                biased;
                written = session.sender.write(&session.out), if !session.out.is_empty() => {
                    session.out.drain(..written?);
                }
                call = self.calls.recv(), if room => match call {
                    Some(call) => session.pending.start(call, Instant::now() + self.config.timeout, &mut session.out),
                    None => return Ok(()),
                },
                message = session.receiver.next() => {
                    let message = message?;
                    session.probe_at = Instant::now() + self.config.probe_interval;
                    session.probed = false;
                    if let Some(reply) = echo_reply(message) {
                        session.out.extend_from_slice(&reply);
                        continue;
                    }
                    let decoded = Message::decode(message).map(|(_, message)| message);
                    match session.pending.answer(xid(message), decoded) {
                        None | Some(Ok(Message::EchoReply(_))) => {}
                        Some(Ok(message)) => match (message, &self.config.packets) {
                            (Message::PacketIn2(packet), Some(sink)) => (sink.0)(packet),
                            (message, _) => self.events.send(Event::Message(message)),
                        },
                        Some(Err(error)) => warn!(%error, "ignored a malformed message of ovs-vswitchd"),
                    }
                }
                () = sleep_until(wake_at) => self.check_deadlines(session)?,
            }
        }
    }

    /// Fails calls after their deadline. Probes a switch that was silent for an interval, and fails if it was probed before.
    fn check_deadlines(&self, session: &mut Session) -> Result<(), ConnectionError> {
        let (now, interval) = (Instant::now(), self.config.probe_interval);
        session.pending.expire(now, || RequestError::TimedOut(self.config.timeout));
        if now < session.probe_at {
            return Ok(());
        }
        if session.probed {
            return Err(ConnectionError::Silent(interval * 2));
        }
        session.pending.send(&Message::EchoRequest(Vec::new()), &mut session.out)?;
        session.probed = true;
        // A whole interval from now, however late this is.
        session.probe_at = now + interval;
        Ok(())
    }

    /// Waits before the next attempt and fails calls meanwhile; `false` if all handles were dropped.
    async fn wait(&mut self, delay: Duration, reason: &str) -> bool {
        let until = Instant::now() + delay;
        loop {
            tokio::select! {
                () = sleep_until(until) => return true,
                call = self.calls.recv() => match call {
                    Some(call) => call.fail(RequestError::NotConnected(reason.to_owned())),
                    None => return false,
                },
            }
        }
    }
}
