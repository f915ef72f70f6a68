//! The task that owns the connection and the replica.

use ovsdb::frame::Framer;
use ovsdb::replica::Replica;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::call::Call;
use super::changes::Publisher;
use super::session::{Lost, Session};
use super::{Config, Status};
use crate::backoff::Backoff;

/// How much is read at once.
const CHUNK: usize = 64 << 10;

pub(super) struct Task {
    config: Config,
    calls: mpsc::Receiver<Call>,
    publisher: Publisher,
    status: watch::Sender<Status>,
    replica: Replica,
    backoff: Backoff,
}

impl Task {
    pub(super) fn new(
        config: Config,
        calls: mpsc::Receiver<Call>,
        publisher: Publisher,
        status: watch::Sender<Status>,
    ) -> Self {
        let replica = Replica::new(config.monitored.clone());
        let backoff = Backoff::new(config.reconnect.0, config.reconnect.1).seeded(std::process::id().into());
        Self { config, calls, publisher, status, replica, backoff }
    }

    /// Connects again and again; ends only by being aborted.
    pub(super) async fn run(mut self) {
        loop {
            self.status.send_replace(Status::Connecting);
            let lost = match UnixStream::connect(&self.config.socket).await {
                Ok(stream) => self.serve(stream).await,
                Err(error) => Lost::Connect(self.config.socket.display().to_string(), error),
            };
            if let Lost::Replica(_) | Lost::Decode(_) = lost {
                // What we have may be wrong, so the next monitor asks for everything.
                self.replica.forget_position();
            }
            let (reason, retry_in) = (lost.to_string(), self.backoff.next_delay());
            let attempts = self.backoff.attempts();
            if self.backoff.is_news() {
                warn!(database = self.config.database, attempts, ?retry_in, "waiting for the database: {reason}");
            } else {
                debug!(database = self.config.database, attempts, ?retry_in, "waiting for the database: {reason}");
            }
            self.status.send_replace(Status::Waiting { reason, retry_in });
            sleep_until(Instant::now() + retry_in).await;
        }
    }

    /// Runs one connection to its end.
    async fn serve(&mut self, stream: UnixStream) -> Lost {
        let mut session = Session::new(&self.config.database, &self.replica);
        let Err(lost) = self.pump(stream, &mut session).await;
        session.end(&lost);
        lost
    }

    async fn pump(&mut self, stream: UnixStream, session: &mut Session) -> Result<std::convert::Infallible, Lost> {
        let (mut reader, mut writer) = stream.into_split();
        let mut framer = Framer::new(self.config.max_message);
        let mut chunk = vec![0; CHUNK];
        let mut probe_at = Instant::now() + self.config.probe_interval;
        loop {
            tokio::select! {
                // In this order nobody starves: what is written and what is in flight is bounded, then comes reading,
                // and only if there is nothing to read can the server be silent.
                biased;
                wrote = writer.write(session.outgoing()), if !session.outgoing().is_empty() => {
                    session.wrote(wrote?);
                }
                Some(call) = self.calls.recv(), if session.may_submit() => session.submit(call),
                read = reader.read(&mut chunk), if session.may_receive() => {
                    match read? {
                        0 => return Err(Lost::Closed),
                        n => framer.push(chunk.get(..n).unwrap_or_default()),
                    }
                    session.heard();
                    probe_at = Instant::now() + self.config.probe_interval;
                    while let Some(message) = framer.next_value()? {
                        self.receive(session, message)?;
                    }
                }
                () = sleep_until(probe_at) => {
                    session.silent(self.config.probe_interval)?;
                    probe_at = Instant::now() + self.config.probe_interval;
                }
            }
        }
    }

    fn receive(&mut self, session: &mut Session, message: serde_json::Value) -> Result<(), Lost> {
        if let Some(changes) = session.receive(message, &mut self.replica)? {
            self.publisher.publish(&self.replica, changes);
            if *self.status.borrow() != Status::Connected {
                info!(database = self.config.database, rows = self.replica.len(), "following the database");
                self.backoff.reset();
                self.status.send_replace(Status::Connected);
            }
        }
        Ok(())
    }
}
