//! Monitors: a replica that applied updates equals a new one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use ovsdb::condition::{Condition, Where};
use ovsdb::monitor::{MONITOR_CANCEL, Monitored, MonitoredTable, encode_cancel};
use ovsdb::operation::{Mutation, Mutator};
use ovsdb::replica::Replica;
use ovsdb::tables::{BridgeColumns, FailMode, InterfaceColumns, OpenVSwitchColumns, PortColumns, TypedRow};
use ovsdb::transaction::Transaction;
use ovsdb::value::{Datum, RowRef, Uuid};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use super::fixture::{Client, Server, fresh};

fn set_ids(client: &mut Client, ids: impl IntoIterator<Item = (&'static str, &'static str)>) {
    let mut transaction = Transaction::new();
    transaction.update(Where::EVERY_ROW, OpenVSwitchColumns::default().external_ids(ids));
    client.transact(&transaction).unwrap();
}

/// Adds rows that never change: the server keeps no more history than there is data.
fn fill(client: &mut Client) {
    let mut transaction = Transaction::new();
    let ids: Vec<_> = (0..50).map(|n| (n.to_string(), n.to_string())).collect();
    for n in 0..10 {
        let columns = BridgeColumns::default().name(format!("filler{n}")).external_ids(ids.clone());
        let bridge = RowRef::from(transaction.insert(columns));
        transaction.mutate("Open_vSwitch", Where::EVERY_ROW, [Mutation::insert("bridges", bridge)]);
    }
    client.transact(&transaction).unwrap();
}

#[test]
fn a_cluster_resumes_a_monitor_after_the_last_transaction() {
    let server = Server::clustered();
    let mut writer = server.connect();
    fill(&mut writer);
    let monitored = Arc::new(ovsdb::tables::all());
    let mut replica = Replica::new(monitored.clone());
    {
        let mut client = server.connect();
        let reply = client.monitor(&replica);
        assert!(!reply.found);
        replica.apply_reply(reply).unwrap();
        set_ids(&mut writer, [("a", "1")]);
        assert_eq!(client.follow(&mut replica).len(), 1);
    }
    set_ids(&mut writer, [("a", "1"), ("b", "2")]);
    set_ids(&mut writer, [("b", "3")]);
    let mut client = server.connect();
    let reply = client.monitor(&replica);
    assert!(reply.found);
    let changes = replica.apply_reply(reply).unwrap();
    assert_eq!(changes.len(), 1);
    assert_eq!(replica, fresh(&server, monitored.clone()));
    set_ids(&mut writer, []);
    client.follow(&mut replica);
    assert_eq!(replica, fresh(&server, monitored));
}

#[test]
fn a_standalone_server_starts_over_and_only_changes_are_reported() {
    let server = Server::standalone();
    let monitored = Arc::new(ovsdb::tables::all());
    let mut replica = fresh(&server, monitored.clone());
    let reply = server.connect().monitor(&replica);
    assert!(!reply.found);
    assert_eq!(replica.apply_reply(reply).unwrap(), []);
    set_ids(&mut server.connect(), [("a", "1")]);
    let reply = server.connect().monitor(&replica);
    assert_eq!(replica.apply_reply(reply).unwrap().len(), 1);
    server.connect().transact(Transaction::new().delete("Open_vSwitch", Where::EVERY_ROW)).unwrap();
    let reply = server.connect().monitor(&replica);
    let changes = replica.apply_reply(reply).unwrap();
    assert_eq!((changes.len(), changes[0].uuid, &changes[0].after), (1, server.root, &None));
}

#[test]
fn rows_enter_and_leave_the_condition_of_a_monitor() {
    let server = Server::standalone();
    let columns = MonitoredTable::new(ovsdb::tables::OpenVSwitch::column_types());
    let marked = [Condition::includes("external_ids", Datum::from_iter([("mark", "1")]))];
    let monitored = Arc::new(Monitored::new().with_table("Open_vSwitch", columns.any_of(marked)));
    let mut replica = Replica::new(monitored.clone());
    let mut client = server.connect();
    let reply = client.monitor(&replica);
    replica.apply_reply(reply).unwrap();
    assert!(replica.is_empty());
    let steps: [(&[_], usize); 3] = [(&[("mark", "1"), ("x", "y")], 1), (&[("mark", "1")], 1), (&[("mark", "2")], 0)];
    for (ids, rows) in steps {
        set_ids(&mut client, ids.to_vec());
        assert_eq!(client.follow(&mut replica).len(), 1, "{ids:?}");
        assert_eq!(replica.len(), rows, "{ids:?}");
        assert_eq!(replica, fresh(&server, monitored.clone()));
    }
}

#[test]
fn a_cancelled_monitor_sends_nothing() {
    let server = Server::standalone();
    let mut client = server.connect();
    client.monitor(&Replica::new(ovsdb::tables::all()));
    set_ids(&mut client, [("a", "1")]);
    assert_eq!(client.notices().len(), 1);
    client.call(MONITOR_CANCEL, encode_cancel(&json!("m"))).unwrap();
    set_ids(&mut client, [("a", "2")]);
    assert_eq!(client.notices(), []);
}

/// An operation on one of a few bridges and ports.
#[derive(Clone, Debug)]
enum Step {
    AddPort { bridge: u8, port: u8, tag: Option<u16> },
    DropPort { bridge: u8, port: u8 },
    DropBridge { bridge: u8 },
    SetTag { port: u8, tag: Option<u16> },
    SetProtocols { bridge: u8, protocols: Vec<&'static str>, secure: bool },
    PutId { bridge: u8, key: u8, value: u8 },
    DropId { bridge: u8, key: u8 },
    Count { by: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    let (bridge, port, key, tag) = (|| 0..3u8, || 0..4u8, || 0..3u8, || prop::option::of(0..3u16));
    let protocols = prop::sample::subsequence(vec!["OpenFlow10", "OpenFlow13", "OpenFlow15"], 0..=3);
    prop_oneof![
        4 => (bridge(), port(), tag()).prop_map(|(bridge, port, tag)| Step::AddPort { bridge, port, tag }),
        1 => (bridge(), port()).prop_map(|(bridge, port)| Step::DropPort { bridge, port }),
        1 => bridge().prop_map(|bridge| Step::DropBridge { bridge }),
        2 => (port(), tag()).prop_map(|(port, tag)| Step::SetTag { port, tag }),
        2 => (bridge(), protocols, any::<bool>())
            .prop_map(|(bridge, protocols, secure)| Step::SetProtocols { bridge, protocols, secure }),
        2 => (bridge(), key(), 0..3u8).prop_map(|(bridge, key, value)| Step::PutId { bridge, key, value }),
        1 => (bridge(), key()).prop_map(|(bridge, key)| Step::DropId { bridge, key }),
        1 => (-2..2i64).prop_map(|by| Step::Count { by }),
    ]
}

impl Step {
    /// Adds the step to a transaction, unless its rows do not exist.
    fn add_to(&self, transaction: &mut Transaction, replica: &Replica) {
        let find = |table: &str, name: &str| replica.row_named(table, name).map(|(uuid, _)| uuid);
        let bridge_row = |bridge: &u8| find("Bridge", &format!("br{bridge}"));
        let port_row = |port: &u8| find("Port", &format!("p{port}"));
        match self {
            Step::AddPort { bridge, port, tag } => {
                if port_row(port).is_some() {
                    return;
                }
                let name = format!("p{port}");
                let interface = transaction.insert(InterfaceColumns::default().name(name.as_str()));
                let port = PortColumns::default().name(name).interfaces([interface]).tag(*tag);
                let port = RowRef::from(transaction.insert(port));
                if let Some(bridge) = bridge_row(bridge) {
                    transaction.mutate("Bridge", bridge, [Mutation::insert("ports", port)]);
                } else {
                    let name = format!("br{bridge}");
                    let bridge = transaction.insert(BridgeColumns::default().name(name).ports([port]));
                    let add = Mutation::insert("bridges", RowRef::from(bridge));
                    transaction.mutate("Open_vSwitch", Where::EVERY_ROW, [add]);
                }
            }
            Step::DropPort { bridge, port } => {
                if let Some(port) = port_row(port) {
                    let bridge = Where::named(&format!("br{bridge}"));
                    transaction.mutate("Bridge", bridge, [Mutation::delete("ports", port)]);
                }
            }
            Step::DropBridge { bridge } => {
                if let Some(bridge) = bridge_row(bridge) {
                    transaction.mutate("Open_vSwitch", Where::EVERY_ROW, [Mutation::delete("bridges", bridge)]);
                }
            }
            Step::SetTag { port, tag } => {
                transaction.update(Where::named(&format!("p{port}")), PortColumns::default().tag(*tag));
            }
            Step::SetProtocols { bridge, protocols, secure } => {
                let columns = BridgeColumns::default().protocols(protocols.clone());
                let columns = columns.fail_mode(secure.then_some(FailMode::Secure));
                transaction.update(Where::named(&format!("br{bridge}")), columns);
            }
            Step::PutId { bridge, key, value } => {
                let (key, value) = (key.to_string(), value.to_string());
                transaction.mutate(
                    "Bridge",
                    Where::named(&format!("br{bridge}")),
                    [
                        Mutation::delete("external_ids", Datum::from_iter([key.clone()])),
                        Mutation::insert("external_ids", Datum::from_iter([(key, value)])),
                    ],
                );
            }
            Step::DropId { bridge, key } => {
                let delete = Mutation::delete("external_ids", Datum::from_iter([key.to_string()]));
                transaction.mutate("Bridge", Where::named(&format!("br{bridge}")), [delete]);
            }
            Step::Count { by } => {
                transaction.mutate("Open_vSwitch", Where::EVERY_ROW, [Mutation::new("next_cfg", Mutator::Add, *by)]);
            }
        }
    }
}

/// Runs random transactions on one server; sometimes the connection is lost during other writes. Returns how often
/// the monitor was resumed.
fn updated_equals_new(server: &Server) -> u32 {
    let monitored = Arc::new(ovsdb::tables::all());
    let writer = RefCell::new(server.connect());
    fill(&mut writer.borrow_mut());
    let resumed = Cell::new(0);
    let transactions = prop::collection::vec((prop::collection::vec(step(), 1..4), 0..4u8), 1..8);
    let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&transactions, |transactions| {
        let mut writer = writer.borrow_mut();
        let mut client = server.connect();
        let mut replica = Replica::new(monitored.clone());
        replica.apply_reply(client.monitor(&replica)).unwrap();
        let mut changes = Replica::new(monitored.clone()).changes_to(&replica);
        for (steps, luck) in transactions {
            let reconnect = luck == 0;
            if !reconnect {
                changes.extend(client.follow(&mut replica));
            }
            let mut transaction = Transaction::new();
            // Steps are based on the rows before the transaction, so two of them may collide: the server rejects that.
            let current = fresh(server, monitored.clone());
            steps.iter().for_each(|step| step.add_to(&mut transaction, &current));
            let _ = writer.transact(&transaction);
            if reconnect {
                client = server.connect();
                let reply = client.monitor(&replica);
                resumed.set(resumed.get() + u32::from(reply.found));
                changes.extend(replica.apply_reply(reply).unwrap());
            }
        }
        changes.extend(client.follow(&mut replica));
        let expected = fresh(server, monitored.clone());
        prop_assert_eq!(&replica, &expected);
        // The changes, applied one by one, give the same rows.
        let mut rows = BTreeMap::new();
        for change in changes {
            let key = (change.table, change.uuid);
            let before = match change.after {
                Some(row) => rows.insert(key, row),
                None => rows.remove(&key),
            };
            prop_assert_eq!(before, change.before);
        }
        prop_assert_eq!(rows.len(), expected.len());
        prop_assert!(rows.iter().all(|((table, uuid), row)| expected.row(table, *uuid) == Some(row)));
        // Names refer to the rows that have them.
        for (uuid, row) in expected.rows("Port") {
            let found = replica.row_named("Port", row["name"].as_str().unwrap()).map(|(uuid, _)| uuid);
            prop_assert_eq!(found, Some::<Uuid>(uuid));
        }
        Ok(())
    });
    outcome.unwrap();
    resumed.get()
}

#[test]
fn an_updated_replica_of_a_standalone_server_equals_a_new_one() {
    assert_eq!(updated_equals_new(&Server::standalone()), 0);
}

#[test]
fn an_updated_replica_of_a_cluster_equals_a_new_one() {
    assert_ne!(updated_equals_new(&Server::clustered()), 0);
}
