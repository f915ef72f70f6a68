//! A client of an OVSDB server that stays connected, follows a database and runs transactions.
//!
//! One task owns the connection and the replica. Readers get snapshots ([`Database::snapshot`]) or a stream of changes
//! ([`Database::changes`]); what the server has committed before it answers a transaction is in the snapshot when
//! [`Database::transact`] returns.

mod call;
mod changes;
mod session;
mod task;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ovsdb::frame::DEFAULT_MAX_MESSAGE;
use ovsdb::monitor::Monitored;
use ovsdb::replica::Replica;
use ovsdb::transaction::{OperationResult, Transaction};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tracing::debug;

pub use self::call::TransactError;
use self::call::{Call, Reason};
pub use self::changes::{Changes, Feed};
use self::changes::{Publisher, Snapshot};
use self::task::Task;

/// How many calls wait for the task; further callers wait for their turn.
const QUEUE: usize = 64;

/// Where the server is, what is followed, and how patient the client is.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server's unix socket.
    pub socket: PathBuf,
    /// Name of the database.
    pub database: String,
    /// The tables and columns to follow.
    pub monitored: Monitored,
    /// After this long without a word of the server it is probed; after as long again without an answer it is left.
    pub probe_interval: Duration,
    /// The shortest and the longest delay before a new attempt to connect.
    pub reconnect: (Duration, Duration),
    /// How long a transaction may take altogether, unless its caller says otherwise.
    pub transact_timeout: Duration,
    /// The longest message that is accepted.
    pub max_message: usize,
    /// How many batches of changes a slow reader may be behind before it has to start over from a snapshot.
    pub change_backlog: usize,
}

/// How the connection is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// Connecting, or waiting for the first rows.
    Connecting,
    /// The replica follows the server.
    Connected,
    /// Not connected; the replica is as it was.
    Waiting {
        /// Why the last attempt or connection ended.
        reason: String,
        /// When the next attempt is made, from the time of this status on.
        retry_in: Duration,
    },
}

/// A handle to the client; dropping it ends the connection.
#[derive(Debug)]
pub struct Database {
    calls: mpsc::Sender<Call>,
    snapshot: watch::Receiver<Option<Snapshot>>,
    changes: broadcast::WeakSender<changes::Batch>,
    status: watch::Receiver<Status>,
    transact_timeout: Duration,
    task: JoinHandle<()>,
}

impl Config {
    /// The Open_vSwitch database at `socket`, all typed tables, and patience for a local server.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            database: ovsdb::OPEN_VSWITCH.to_owned(),
            monitored: ovsdb::tables::all(),
            probe_interval: Duration::from_secs(5),
            reconnect: (Duration::from_millis(100), Duration::from_secs(5)),
            transact_timeout: Duration::from_secs(30),
            max_message: DEFAULT_MAX_MESSAGE,
            change_backlog: 256,
        }
    }
}

impl Database {
    /// Starts the client on the current runtime; it connects when it can.
    pub fn connect(config: Config) -> Self {
        let (calls, queue) = mpsc::channel(QUEUE);
        let (status_sender, status) = watch::channel(Status::Connecting);
        let (publisher, snapshot) = Publisher::new(config.change_backlog);
        let (changes, transact_timeout) = (publisher.subscriptions(), config.transact_timeout);
        let task = tokio::spawn(Task::new(config, queue, publisher, status_sender).run());
        Self { calls, snapshot, changes, status, transact_timeout, task }
    }

    /// Runs a transaction and returns one result per operation; see [`Database::transact_within`].
    pub async fn transact(&self, transaction: Transaction) -> Result<Vec<OperationResult>, TransactError> {
        self.transact_within(transaction, self.transact_timeout).await
    }

    /// Runs a transaction; while there is no connection, waits for one up to `timeout` altogether.
    ///
    /// The transaction is sent at most once. If the returned future is dropped it may or may not be sent.
    pub async fn transact_within(
        &self,
        transaction: Transaction,
        timeout: Duration,
    ) -> Result<Vec<OperationResult>, TransactError> {
        let (call, ticket, answer) = Call::new(transaction);
        if self.calls.capacity() == 0 {
            debug!("{QUEUE} transactions wait to be sent; one more waits for its turn");
        }
        let answered = async {
            self.calls.send(call).await.ok()?;
            answer.await.ok()
        };
        let reason = match tokio::time::timeout(timeout, answered).await {
            Ok(Some(outcome)) => return outcome,
            Ok(None) => Reason::Stopped,
            Err(_) => Reason::TimedOut { timeout, status: self.status.borrow().clone() },
        };
        Err(ticket.give_up(reason.to_string()))
    }

    /// The rows as of now, or as of when the connection was lost; `None` until they first arrived.
    pub fn snapshot(&self) -> Option<Arc<Replica>> {
        self.snapshot.borrow().as_ref().map(|snapshot| snapshot.replica.clone())
    }

    /// The rows as soon as they first arrived; `None` if the client ended before.
    pub async fn synced(&self) -> Option<Arc<Replica>> {
        self.wait_for(|_| true).await
    }

    /// The first snapshot that passes the test; `None` if the client ended before.
    pub async fn wait_for(&self, mut test: impl FnMut(&Replica) -> bool) -> Option<Arc<Replica>> {
        let mut snapshots = self.snapshot.clone();
        let passes = |snapshot: &Option<Snapshot>| snapshot.as_ref().is_some_and(|snapshot| test(&snapshot.replica));
        let found = snapshots.wait_for(passes).await.ok()?;
        found.as_ref().map(|snapshot| snapshot.replica.clone())
    }

    /// A stream that starts with all rows and goes on with what changes.
    pub fn changes(&self) -> Changes {
        Changes::new(self.snapshot.clone(), self.changes.upgrade().map(|sender| sender.subscribe()))
    }

    /// How the connection is, to be looked at or waited for.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.task.abort();
    }
}
