//! The task that owns the connection and the replica.

use ovsdb::frame::Framer;
use ovsdb::replica::Replica;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};
use types::backoff::Backoff;

use super::call::Call;
use super::changes::Publisher;
use super::session::{Disconnect, Session};
use super::{Config, Status};

/// Bytes to read at once.
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

    /// Connects and reconnects until the task is aborted.
    pub(super) async fn run(mut self) {
        loop {
            self.status.send_replace(Status::Connecting);
            let lost = match UnixStream::connect(&self.config.socket).await {
                Ok(stream) => self.serve(stream).await,
                Err(error) => Disconnect::Connect(self.config.socket.display().to_string(), error),
            };
            if let Disconnect::Replica(_) | Disconnect::Decode(_) = lost {
                // The replica may be wrong, so the next monitor requests all rows.
                self.replica.forget_position();
            }
            let (reason, retry_in) = (lost.to_string(), self.backoff.next_delay());
            let attempts = self.backoff.attempts();
            if self.backoff.is_news() {
                warn!(
                    database = self.config.database,
                    attempts,
                    ?retry_in,
                    "not connected to ovsdb-server, retrying: {reason}"
                );
            } else {
                debug!(
                    database = self.config.database,
                    attempts,
                    ?retry_in,
                    "not connected to ovsdb-server, retrying: {reason}"
                );
            }
            self.status.send_replace(Status::Waiting { reason, retry_in });
            sleep_until(Instant::now() + retry_in).await;
        }
    }

    /// Runs one connection to its end.
    async fn serve(&mut self, stream: UnixStream) -> Disconnect {
        let mut session = Session::new(&self.config.database, &self.replica);
        let Err(lost) = self.pump(stream, &mut session).await;
        session.end(&lost);
        lost
    }

    async fn pump(
        &mut self,
        stream: UnixStream,
        session: &mut Session,
    ) -> Result<std::convert::Infallible, Disconnect> {
        let (mut reader, mut writer) = stream.into_split();
        let mut framer = Framer::new(self.config.max_message);
        let mut chunk = vec![0; CHUNK];
        let mut probe_at = Instant::now() + self.config.probe_interval;
        loop {
            tokio::select! {
                // No branch starves: writes and calls in flight are bounded, then comes reading, and the server is silent
                // only if there is nothing to read.
                biased;
                wrote = writer.write(session.outgoing()), if !session.outgoing().is_empty() => {
                    session.wrote(wrote?);
                }
                Some(call) = self.calls.recv(), if session.may_submit() => session.submit(call),
                read = reader.read(&mut chunk), if session.may_receive() => {
                    match read? {
                        0 => return Err(Disconnect::Closed),
                        n => framer.push(chunk.get(..n).unwrap_or_default()),
                    }
                    session.mark_alive();
                    probe_at = Instant::now() + self.config.probe_interval;
                    while let Some(message) = framer.next_value()? {
                        self.receive(session, message)?;
                    }
                }
                () = sleep_until(probe_at) => {
                    session.check_alive(self.config.probe_interval)?;
                    probe_at = Instant::now() + self.config.probe_interval;
                }
            }
        }
    }

    fn receive(&mut self, session: &mut Session, message: serde_json::Value) -> Result<(), Disconnect> {
        if let Some(changes) = session.receive(message, &mut self.replica)? {
            self.publisher.publish(&self.replica, changes);
            if *self.status.borrow() != Status::Connected {
                info!(database = self.config.database, rows = self.replica.len(), "replicating the database");
                self.backoff.reset();
                self.status.send_replace(Status::Connected);
            }
        }
        Ok(())
    }
}
