//! The database client against ovsdb-server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ovs::database::{Config, Database, Feed, Status, TransactError};
use ovsdb::condition::Where;
use ovsdb::operation::{Mutation, Mutator, Wait};
use ovsdb::replica::{Change, Replica};
use ovsdb::tables::{Bridge, BridgeColumns, Columns, OpenVSwitchColumns};
use ovsdb::transaction::{OperationResult, Transaction};
use ovsdb::value::{Datum, Row, RowRef, Uuid};
use testkit::Ovs;
use testkit::wait::TIMEOUT;
use tokio::time::timeout;

/// A database server without a switch, which would write into the database too.
fn server() -> Ovs {
    let ovs = Ovs::start().unwrap();
    ovs.kill_vswitchd().unwrap();
    ovs
}

fn config(ovs: &Ovs) -> Config {
    let reconnect = (Duration::from_millis(1), Duration::from_millis(50));
    Config { reconnect, transact_timeout: TIMEOUT, ..Config::new(ovs.db_socket()) }
}

fn client(ovs: &Ovs) -> Database {
    Database::connect(config(ovs))
}

/// Waits with a timeout.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(TIMEOUT, what).await.expect("timed out")
}

fn set_id(key: &str, value: &str) -> Transaction {
    let mut transaction = Transaction::new();
    transaction.mutate(
        "Open_vSwitch",
        Where::EVERY_ROW,
        [
            Mutation::delete("external_ids", Datum::from_iter([key])),
            Mutation::insert("external_ids", Datum::from_iter([(key, value)])),
        ],
    );
    transaction
}

fn id(replica: &Replica, key: &str) -> Option<String> {
    replica.open_vswitch().unwrap()?.external_ids.get(key).cloned()
}

fn add_bridge(name: &str) -> Transaction {
    let mut transaction = Transaction::new();
    let bridge = transaction.insert(BridgeColumns::default().name(name));
    transaction.mutate("Open_vSwitch", Where::EVERY_ROW, [Mutation::insert("bridges", RowRef::from(bridge))]);
    transaction
}

/// The rows that a new client gets.
async fn fresh(ovs: &Ovs) -> Arc<Replica> {
    soon(client(ovs).synced()).await.unwrap()
}

#[tokio::test]
async fn committed_rows_are_in_the_snapshot_when_the_call_returns() {
    let ovs = server();
    let database = client(&ovs);
    soon(database.synced()).await.unwrap();
    for n in 0..20 {
        database.transact(set_id("n", &n.to_string())).await.unwrap();
        assert_eq!(id(&database.snapshot().unwrap(), "n"), Some(n.to_string()));
    }
    let results = database.transact(add_bridge("br0")).await.unwrap();
    let bridge: Bridge = database.snapshot().unwrap().named("br0").unwrap().unwrap();
    assert_eq!(results[0], OperationResult::Inserted(bridge.uuid));
    let error = database.transact(add_bridge("br0")).await.unwrap_err();
    assert!(matches!(&error, TransactError::Refused(_)), "{error}");
    assert!(!error.is_transient() && !error.is_outcome_unknown());
    assert_eq!(*database.status().borrow(), Status::Connected);
}

#[tokio::test]
async fn a_call_waits_for_the_server() {
    let ovs = server();
    ovs.kill_ovsdb().unwrap();
    let database = client(&ovs);
    let error = database.transact_within(set_id("a", "1"), Duration::from_millis(20)).await.unwrap_err();
    assert!(matches!(&error, TransactError::NotSent(reason) if reason.contains("not connected")), "{error}");
    assert!(database.snapshot().is_none());
    let mut status = database.status();
    soon(status.wait_for(|status| matches!(status, Status::Waiting { .. }))).await.unwrap();
    let call = database.transact(set_id("a", "2"));
    let ((), outcome) = tokio::join!(async { ovs.start_ovsdb().unwrap() }, call);
    outcome.unwrap();
    assert_eq!(id(&database.snapshot().unwrap(), "a").as_deref(), Some("2"));
}

#[tokio::test]
async fn a_call_in_flight_when_the_server_dies_has_an_unknown_outcome() {
    let ovs = server();
    let database = client(&ovs);
    soon(database.synced()).await.unwrap();
    let mut never = Transaction::new();
    let impossible: Row = OpenVSwitchColumns::default().next_cfg(77).into_row();
    never.wait(Wait { timeout_ms: None, ..Wait::equal("Open_vSwitch", Where::EVERY_ROW, impossible) });
    let kill = async {
        // Replies come in order, so the previous call was written.
        database.transact(set_id("a", "1")).await.unwrap();
        ovs.kill_ovsdb().unwrap();
    };
    let (outcome, ()) = tokio::join!(database.transact(never.clone()), kill);
    let error = outcome.unwrap_err();
    assert!(error.is_outcome_unknown() && error.is_transient(), "{error}");
    ovs.start_ovsdb().unwrap();
    database.transact(set_id("a", "2")).await.unwrap();
    let error = database.transact_within(never, Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(&error, TransactError::OutcomeUnknown(reason) if reason.contains("no reply")), "{error}");
}

/// A reader that keeps a copy of the rows from the stream of changes.
#[derive(Default)]
struct Reader {
    rows: BTreeMap<(String, Uuid), Arc<Row>>,
    resyncs: usize,
}

impl Reader {
    fn read(&mut self, feed: &Feed) {
        match feed {
            Feed::Resync { replica, .. } => {
                self.rows.clear();
                self.resyncs += 1;
                self.apply(&replica.as_changes());
            }
            Feed::Changed(changes) => self.apply(changes),
        }
    }

    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            let key = (change.table.clone(), change.uuid);
            let before = match &change.after {
                Some(row) => self.rows.insert(key, row.clone()),
                None => self.rows.remove(&key),
            };
            assert_eq!(before, change.before);
        }
    }

    fn has(&self, replica: &Replica) -> bool {
        self.rows.len() == replica.len()
            && self.rows.iter().all(|((table, uuid), row)| replica.row(table, *uuid) == Some(row))
    }
}

#[tokio::test]
async fn a_copy_follows_the_stream_of_changes() {
    let ovs = server();
    let database = Database::connect(Config { change_backlog: 4, ..config(&ovs) });
    let mut changes = database.changes();
    let mut reader = Reader::default();
    reader.read(&soon(changes.next()).await.unwrap());
    for n in 0..3 {
        database.transact(add_bridge(&format!("br{n}"))).await.unwrap();
        reader.read(&soon(changes.next()).await.unwrap());
    }
    assert!(reader.has(&database.snapshot().unwrap()));
    assert_eq!(reader.resyncs, 1);
    // Too slow for a backlog of four.
    for n in 3..10 {
        database.transact(add_bridge(&format!("br{n}"))).await.unwrap();
    }
    reader.read(&soon(changes.next()).await.unwrap());
    assert!(reader.has(&database.snapshot().unwrap()));
    assert_eq!(reader.resyncs, 2);
    // Changes during an outage of the server arrive as changes too.
    ovs.kill_ovsdb().unwrap();
    ovs.start_ovsdb().unwrap();
    ovs.vsctl(["--no-wait", "del-br", "br5"]).unwrap();
    while !reader.has(&*fresh(&ovs).await) {
        reader.read(&soon(changes.next()).await.unwrap());
    }
    assert_eq!(reader.resyncs, 2);
    drop(database);
    assert_eq!(soon(changes.next()).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_crashes_of_the_server_lose_no_call_and_no_row() {
    const CALLERS: usize = 4;
    let ovs = Arc::new(server());
    let database = Arc::new(client(&ovs));
    soon(database.synced()).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (database, done) = (database.clone(), done.clone());
            tokio::spawn(async move {
                let (mut committed, mut unknown, mut calls) = (0u64, 0u64, 0u64);
                while !done.load(Ordering::Acquire) {
                    let mut transaction = set_id(&format!("caller{caller}"), &calls.to_string());
                    let count = Mutation::new("next_cfg", Mutator::Add, 1);
                    transaction.mutate("Open_vSwitch", Where::EVERY_ROW, [count]);
                    transaction.commit(true);
                    calls += 1;
                    match database.transact(transaction).await {
                        Ok(_) => committed += 1,
                        Err(error) if error.is_outcome_unknown() => unknown += 1,
                        Err(error) => assert!(error.is_transient(), "{error}"),
                    }
                }
                (committed, unknown)
            })
        })
        .collect();
    let mut changes = database.changes();
    let reader = tokio::spawn(async move {
        let mut reader = Reader::default();
        while let Some(feed) = changes.next().await {
            reader.read(&feed);
        }
        reader
    });
    let before = database.snapshot().unwrap().open_vswitch().unwrap().unwrap().next_cfg;
    for round in 0..10 {
        // Wait until the client works again, then kill the server under load.
        let (key, value) = ("round", round.to_string());
        loop {
            match database.transact(set_id(key, &value)).await {
                Ok(_) => break,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
        let ovs = ovs.clone();
        tokio::task::spawn_blocking(move || {
            ovs.kill_ovsdb().unwrap();
            ovs.start_ovsdb().unwrap();
        })
        .await
        .unwrap();
    }
    done.store(true, Ordering::Release);
    let (mut committed, mut unknown) = (0, 0);
    for caller in callers {
        let (c, u) = soon(caller).await.unwrap();
        committed += c;
        unknown += u;
    }
    database.transact(set_id("round", "last")).await.unwrap();
    let replica = database.snapshot().unwrap();
    assert_eq!(replica, fresh(&ovs).await);
    // Every committed transaction counts, and none twice.
    let counted = u64::try_from(replica.open_vswitch().unwrap().unwrap().next_cfg - before).unwrap();
    assert!(counted >= committed && counted <= committed + unknown, "{committed} <= {counted} <= +{unknown}");
    drop(Arc::into_inner(database).unwrap());
    assert!(soon(reader).await.unwrap().has(&replica));
}
