//! A client of an OVSDB server that stays connected, replicates a database and runs transactions.
//!
//! One task owns the connection and the replica. Readers get snapshots ([`Database::snapshot`]) or a stream of changes
//! ([`Database::changes`]). When [`Database::transact`] returns, the snapshot contains all that the server had committed
//! before its reply.

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

/// Calls that wait for the task; further callers block.
const QUEUE: usize = 64;

/// The server, the tables to replicate, and timeouts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of the server's unix socket.
    pub socket: PathBuf,
    /// Name of the database to replicate.
    pub database: String,
    /// The tables and columns to replicate.
    pub monitored: Monitored,
    /// After this long without data a probe is sent; after as long again without data the connection is closed.
    pub probe_interval: Duration,
    /// Minimum and maximum of the reconnect backoff.
    pub reconnect: (Duration, Duration),
    /// Default timeout of a transaction, including the wait for a connection.
    pub transact_timeout: Duration,
    /// Maximum length of a message from the server.
    pub max_message: usize,
    /// Batches of changes that are kept for a slow reader; after more, it has to start over from a snapshot.
    pub change_backlog: usize,
}

/// State of the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// Connecting, or waiting for the initial rows.
    Connecting,
    /// The replica is up to date.
    Connected,
    /// Not connected; the replica keeps its last rows.
    Waiting {
        /// Why the last attempt or connection ended.
        reason: String,
        /// Delay of the next attempt, counted from this status.
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
    /// The `Open_vSwitch` database at `socket`, all typed tables, and timeouts for a local server.
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
    /// Starts the client on the current runtime; it connects in the background.
    pub fn connect(config: Config) -> Self {
        let (calls, queue) = mpsc::channel(QUEUE);
        let (status_sender, status) = watch::channel(Status::Connecting);
        let (publisher, snapshot) = Publisher::new(config.change_backlog);
        let (changes, transact_timeout) = (publisher.subscriptions(), config.transact_timeout);
        let task = tokio::spawn(Task::new(config, queue, publisher, status_sender).run());
        Self { calls, snapshot, changes, status, transact_timeout, task }
    }

    /// Runs a transaction with the default timeout and returns one result per operation.
    pub async fn transact(&self, transaction: Transaction) -> Result<Vec<OperationResult>, TransactError> {
        self.transact_within(transaction, self.transact_timeout).await
    }

    /// Runs a transaction; `timeout` includes the wait for a connection.
    ///
    /// The transaction is sent at most once. If the returned future is dropped it may or may not be sent.
    pub async fn transact_within(
        &self,
        transaction: Transaction,
        timeout: Duration,
    ) -> Result<Vec<OperationResult>, TransactError> {
        let (call, ticket, answer) = Call::new(transaction);
        if self.calls.capacity() == 0 {
            debug!("transaction queue is full: {QUEUE} wait to be sent");
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

    /// The current rows, or those before the connection was lost; `None` before the initial rows arrived.
    pub fn snapshot(&self) -> Option<Arc<Replica>> {
        self.snapshot.borrow().as_ref().map(|snapshot| snapshot.replica.clone())
    }

    /// Waits for the initial rows; `None` if the client ended before.
    pub async fn synced(&self) -> Option<Arc<Replica>> {
        self.wait_for(|_| true).await
    }

    /// Waits for a snapshot that passes the test; `None` if the client ended before.
    pub async fn wait_for(&self, mut test: impl FnMut(&Replica) -> bool) -> Option<Arc<Replica>> {
        let mut snapshots = self.snapshot.clone();
        let passes = |snapshot: &Option<Snapshot>| snapshot.as_ref().is_some_and(|snapshot| test(&snapshot.replica));
        let found = snapshots.wait_for(passes).await.ok()?;
        found.as_ref().map(|snapshot| snapshot.replica.clone())
    }

    /// A stream that starts with all rows and continues with changes.
    pub fn changes(&self) -> Changes {
        Changes::new(self.snapshot.clone(), self.changes.upgrade().map(|sender| sender.subscribe()))
    }

    /// The state of the connection, to read or to wait for.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.task.abort();
    }
}
