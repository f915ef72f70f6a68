//! Snapshots and changes, from the task to its readers.

use std::sync::Arc;

use ovsdb::replica::{Change, Replica};
use tokio::sync::{broadcast, watch};

/// An item of the stream of changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Feed {
    /// Start over from these rows: the first item, and the next one after missed changes.
    Resync {
        /// All rows; later changes are relative to them.
        replica: Arc<Replica>,
        /// Batches of changes that the reader was too slow for; 0 at the start.
        missed: u64,
    },
    /// The changes of one message from the server.
    Changed(Arc<[Change]>),
}

/// The rows after the batch with this sequence number.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) replica: Arc<Replica>,
    sequence: u64,
}

/// The changes that lead to the snapshot with the same sequence number.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    changes: Arc<[Change]>,
    sequence: u64,
}

/// The sending side, in the task.
#[derive(Debug)]
pub(super) struct Publisher {
    snapshot: watch::Sender<Option<Snapshot>>,
    changes: broadcast::Sender<Batch>,
    sequence: u64,
}

/// A bounded stream of changes, in order.
#[derive(Debug)]
pub struct Changes {
    snapshot: watch::Receiver<Option<Snapshot>>,
    changes: Option<broadcast::Receiver<Batch>>,
    /// Sequence number of the last snapshot or batch that was returned; `None` before the first.
    position: Option<u64>,
}

impl Publisher {
    pub(super) fn new(backlog: usize) -> (Self, watch::Receiver<Option<Snapshot>>) {
        let (snapshot, reader) = watch::channel(None);
        (Self { snapshot, changes: broadcast::Sender::new(backlog.max(1)), sequence: 0 }, reader)
    }

    /// Where readers subscribe; does not keep the stream open after the task has ended.
    pub(super) fn subscriptions(&self) -> broadcast::WeakSender<Batch> {
        self.changes.downgrade()
    }

    /// Publishes the replica and its last changes. The snapshot goes first: it is never older than a batch that was read.
    pub(super) fn publish(&mut self, replica: &Replica, changes: Vec<Change>) {
        if changes.is_empty() && self.snapshot.borrow().is_some() {
            return;
        }
        self.sequence += 1;
        let sequence = self.sequence;
        self.snapshot.send_replace(Some(Snapshot { replica: Arc::new(replica.clone()), sequence }));
        // Fails only without readers.
        let _ = self.changes.send(Batch { changes: changes.into(), sequence });
    }
}

impl Changes {
    pub(super) fn new(
        snapshot: watch::Receiver<Option<Snapshot>>,
        changes: Option<broadcast::Receiver<Batch>>,
    ) -> Self {
        Self { snapshot, changes, position: None }
    }

    /// The next item; `None` when the client has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<Feed> {
        if self.position.is_none() {
            self.snapshot.wait_for(Option::is_some).await.ok()?;
            return self.resync(0);
        }
        loop {
            match self.changes.as_mut()?.recv().await {
                // Already part of the snapshot that the reader started from.
                Ok(batch) if Some(batch.sequence) <= self.position => {}
                Ok(batch) => {
                    self.position = Some(batch.sequence);
                    return Some(Feed::Changed(batch.changes));
                }
                Err(broadcast::error::RecvError::Lagged(missed)) => return self.resync(missed),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    fn resync(&mut self, missed: u64) -> Option<Feed> {
        // Batches in the ring are older than the snapshot; reading on from them would soon lag again.
        self.changes = self.changes.as_ref().map(broadcast::Receiver::resubscribe);
        let snapshot = self.snapshot.borrow_and_update().clone()?;
        self.position = Some(snapshot.sequence);
        Some(Feed::Resync { replica: snapshot.replica, missed })
    }
}

#[cfg(test)]
mod tests {
    use ovsdb::monitor::Update;
    use ovsdb::value::Uuid;
    use serde_json::json;

    use super::*;

    /// A publisher whose rows have numbers as ids.
    struct Server(Publisher, Replica);

    impl Server {
        fn new(backlog: usize) -> (Self, impl Fn() -> Changes) {
            let (publisher, snapshot) = Publisher::new(backlog);
            let subscriptions = publisher.subscriptions();
            let subscribe = move || Changes::new(snapshot.clone(), subscriptions.upgrade().map(|s| s.subscribe()));
            (Self(publisher, Replica::new(ovsdb::tables::all())), subscribe)
        }

        fn insert(&mut self, n: u128) {
            let id = Uuid::from_bits(n).to_string();
            let row = json!({"Bridge": {id.clone(): {"insert": {"name": n.to_string()}}}});
            let update = Update::decode(&["m".into(), id.into(), row]).unwrap();
            let changes = self.1.apply_update(update).unwrap();
            self.0.publish(&self.1, changes);
        }
    }

    /// The kind of the next item, and its number of rows or changes.
    async fn next(changes: &mut Changes) -> (char, usize) {
        match changes.next().await.unwrap() {
            Feed::Resync { replica, missed: 0 } => ('=', replica.len()),
            Feed::Resync { replica, .. } => ('!', replica.len()),
            Feed::Changed(changes) => ('+', changes.len()),
        }
    }

    #[tokio::test]
    async fn a_reader_starts_with_all_rows_and_sees_no_change_twice() {
        let (mut server, subscribe) = Server::new(8);
        let mut early = subscribe();
        server.insert(1);
        server.insert(2);
        let mut late = subscribe();
        server.insert(3);
        for reader in [&mut early, &mut late] {
            assert_eq!(next(reader).await, ('=', 3));
        }
        server.insert(4);
        for reader in [&mut early, &mut late] {
            assert_eq!(next(reader).await, ('+', 1));
        }
        drop(server);
        assert_eq!(early.next().await, None);
        assert_eq!(subscribe().next().await.map(|_| ()), Some(()));
    }

    #[tokio::test]
    async fn a_batch_that_is_part_of_the_snapshot_is_skipped() {
        let (mut server, subscribe) = Server::new(8);
        let mut reader = subscribe();
        server.insert(1);
        // As if the snapshot had been taken just after the subscription.
        reader.position = Some(server.0.sequence);
        server.insert(2);
        assert_eq!(next(&mut reader).await, ('+', 1));
        assert_eq!(reader.position, Some(2));
    }

    #[tokio::test]
    async fn a_slow_reader_starts_over_in_order() {
        let (mut server, subscribe) = Server::new(2);
        server.insert(1);
        let mut reader = subscribe();
        assert_eq!(next(&mut reader).await, ('=', 1));
        for n in 2..10 {
            server.insert(n);
        }
        assert_eq!(next(&mut reader).await, ('!', 9));
        server.insert(10);
        assert_eq!(next(&mut reader).await, ('+', 1));
    }
}
