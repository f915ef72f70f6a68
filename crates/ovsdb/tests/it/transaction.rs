//! Transactions on a real server.

use ovsdb::condition::{Condition, Function, Where};
use ovsdb::monitor::Monitored;
use ovsdb::operation::{Mutation, Mutator, OperationKind, Until, Wait};
use ovsdb::schema::DatabaseSchema;
use ovsdb::tables::{
    Bridge, BridgeColumns, Columns, FailMode, Interface, InterfaceColumns, OpenVSwitchColumns, Port, PortColumns,
};
use ovsdb::transaction::{ErrorKind, OperationResult, Transaction, TransactionError};
use ovsdb::value::{Datum, Row, RowRef, Uuid};

use super::fixture::{Server, fresh};

fn row<const N: usize>(columns: [(&str, Datum); N]) -> Row {
    columns.map(|(name, datum)| (name.to_owned(), datum)).into()
}

/// A bridge with one port.
fn bridge(name: &str) -> Transaction {
    let mut transaction = Transaction::new();
    transaction.comment("a bridge");
    let interface = transaction.insert(InterfaceColumns::default().name(name).kind("internal"));
    let port = transaction.insert(PortColumns::default().name(name).interfaces([interface]).tag(Some(7u16)));
    let columns = BridgeColumns::default().name(name).ports([port]).fail_mode(Some(FailMode::Secure));
    let bridge = transaction.insert(columns.protocols(["OpenFlow15"]).external_ids([("k", "v")]));
    transaction.mutate("Open_vSwitch", Where::EVERY_ROW, [Mutation::insert("bridges", RowRef::from(bridge))]);
    transaction
}

#[test]
fn the_typed_tables_match_the_schema() {
    let server = Server::standalone();
    let mut client = server.connect();
    let schema = client.call("get_schema", vec![ovsdb::OPEN_VSWITCH.into()]).unwrap();
    let schema = DatabaseSchema::decode(&schema).unwrap();
    assert_eq!(schema.name, "Open_vSwitch");
    assert_eq!(ovsdb::tables::all().missing_from(&schema), [""; 0]);
}

#[test]
fn rows_of_one_transaction_refer_to_each_other_and_read_back_as_written() {
    let server = Server::standalone();
    let results = server.connect().transact(&bridge("br0")).unwrap();
    assert_eq!(results[0], OperationResult::Done);
    assert_eq!(results[4], OperationResult::Mutated(1));
    let replica = fresh(&server, ovsdb::tables::all().into());
    let read: Bridge = replica.named("br0").unwrap().unwrap();
    assert_eq!(results[3], OperationResult::Inserted(read.uuid));
    assert_eq!(read.fail_mode, Some(FailMode::Secure));
    assert_eq!(read.external_ids.get("k").map(String::as_str), Some("v"));
    let ports = replica.ports_of(&read).unwrap();
    assert_eq!(ports.iter().map(|port| port.tag).collect::<Vec<_>>(), [Some(7)]);
    let interfaces = replica.interfaces_of(&ports[0]).unwrap();
    assert_eq!(replica.named::<Interface>("br0").unwrap().as_ref(), interfaces.first());
    assert!(replica.open_vswitch().unwrap().unwrap().bridges.contains(&read.uuid));
}

#[test]
fn every_operation_reports_its_result() {
    let server = Server::standalone();
    let mut client = server.connect();
    client.transact(&bridge("br0")).unwrap();
    let mut transaction = Transaction::new();
    transaction
        .wait(Wait::equal("Bridge", Where::named("br0"), row([("datapath_type", "".into())])))
        .wait(Wait::absent("Bridge", Where::named("other")))
        .update(Where::named("br0"), BridgeColumns::default().datapath_type("netdev").fail_mode(None::<FailMode>))
        .update(Where::named("none"), BridgeColumns::default().datapath_type("netdev"))
        .mutate(
            "Open_vSwitch",
            server.root,
            [
                Mutation::new("next_cfg", Mutator::Add, 10),
                Mutation::new("next_cfg", Mutator::Subtract, 1),
                Mutation::new("next_cfg", Mutator::Multiply, 5),
                Mutation::new("next_cfg", Mutator::Divide, 2),
                Mutation::new("next_cfg", Mutator::Remainder, 20),
                Mutation::insert("external_ids", Datum::from_iter([("a", "1"), ("b", "2"), ("c", "3")])),
                Mutation::delete("external_ids", Datum::from_iter(["a"])),
                Mutation::delete("external_ids", Datum::from_iter([("b", "not 2"), ("c", "3")])),
            ],
        )
        .select("Open_vSwitch", Where::EVERY_ROW, Some(&["next_cfg", "external_ids"]))
        .mutate("Open_vSwitch", server.root, [Mutation::new("bridges", Mutator::Delete, Datum::EMPTY)])
        .update(server.root, OpenVSwitchColumns::default().bridges([] as [Uuid; 0]))
        .delete("Bridge", Where::EVERY_ROW)
        .commit(false)
        .comment("done");
    let results = client.transact(&transaction).unwrap();
    let read = row([("next_cfg", Datum::from(2)), ("external_ids", Datum::from_iter([("b", "2")]))]);
    assert_eq!(
        results,
        [
            OperationResult::Done,
            OperationResult::Done,
            OperationResult::Updated(1),
            OperationResult::Updated(0),
            OperationResult::Mutated(1),
            OperationResult::Selected(vec![read]),
            OperationResult::Mutated(1),
            OperationResult::Updated(1),
            OperationResult::Deleted(1),
            OperationResult::Done,
            OperationResult::Done,
        ]
    );
    // The server deletes a port without references.
    assert_eq!(fresh(&server, Monitored::new().with::<Bridge>().with::<Port>().into()).len(), 0);
}

#[test]
fn every_function_selects_its_rows() {
    let server = Server::standalone();
    let mut client = server.connect();
    client
        .transact(
            Transaction::new()
                .update(server.root, OpenVSwitchColumns::default().next_cfg(5).external_ids([("a", "1"), ("b", "2")])),
        )
        .unwrap();
    let next_cfg = |function, value: i64| Condition::new("next_cfg", function, value);
    let ids = |function, ids: &[(&str, &str)]| Condition::new("external_ids", function, Datum::from_iter(ids.to_vec()));
    for (condition, expected) in [
        (next_cfg(Function::Less, 5), 0),
        (next_cfg(Function::LessOrEqual, 5), 1),
        (next_cfg(Function::Equal, 5), 1),
        (next_cfg(Function::NotEqual, 5), 0),
        (next_cfg(Function::GreaterOrEqual, 5), 1),
        (next_cfg(Function::Greater, 5), 0),
        (ids(Function::Includes, &[("a", "1")]), 1),
        (ids(Function::Includes, &[("a", "2")]), 0),
        (ids(Function::Excludes, &[("a", "1")]), 0),
        (ids(Function::Excludes, &[("a", "2")]), 1),
        (Condition::equal("_uuid", server.root), 1),
    ] {
        let results = client.transact(Transaction::new().select("Open_vSwitch", condition.clone(), None)).unwrap();
        assert_eq!(results[0].count(), Some(expected), "{condition:?}");
    }
}

#[test]
fn an_error_names_the_operation_that_failed() {
    let server = Server::standalone();
    let mut client = server.connect();
    client.transact(&bridge("br0")).unwrap();
    let mut check = |build: &dyn Fn(&mut Transaction), kind, table: Option<&str>, expected: ErrorKind, transient| {
        let mut transaction = Transaction::new();
        transaction.comment("operation 0");
        build(&mut transaction);
        transaction.comment("never reached");
        let error = client.transact(&transaction).unwrap_err();
        assert_eq!(error.is_transient(), transient, "{error}");
        match error {
            TransactionError::Operation { index: 1, kind: k, table: t, error, details: Some(_) } => {
                assert_eq!((k, t.as_deref(), error), (kind, table, expected));
            }
            other => panic!("{other:?}"),
        }
    };
    let wait = Wait::equal("Bridge", Where::named("br0"), row([("datapath_type", "x".into())]));
    for wait in [wait.clone(), wait.clone().up_to(20)] {
        let build = |t: &mut Transaction| {
            t.wait(wait.clone());
        };
        check(&build, OperationKind::Wait, Some("Bridge"), ErrorKind::TimedOut, true);
    }
    let not_equal = Wait { until: Until::NotEqual, expected: vec![row([("datapath_type", "".into())])], ..wait };
    let build = |t: &mut Transaction| {
        t.wait(not_equal.clone());
    };
    check(&build, OperationKind::Wait, Some("Bridge"), ErrorKind::TimedOut, true);
    let build = |t: &mut Transaction| {
        t.abort();
    };
    check(&build, OperationKind::Abort, None, ErrorKind::Aborted, false);
    let build = |t: &mut Transaction| {
        t.assert("lock");
    };
    check(&build, OperationKind::Assert, None, ErrorKind::NotOwner, true);
    let build = |t: &mut Transaction| {
        t.delete("Nope", Where::EVERY_ROW);
    };
    check(&build, OperationKind::Delete, Some("Nope"), ErrorKind::Other("syntax error".into()), false);
    let build = |t: &mut Transaction| {
        t.mutate("Open_vSwitch", Where::EVERY_ROW, [Mutation::new("next_cfg", Mutator::Divide, 0)]);
    };
    check(&build, OperationKind::Mutate, Some("Open_vSwitch"), ErrorKind::Domain, false);
    let build = |t: &mut Transaction| {
        t.update_rows("Bridge", Where::EVERY_ROW, row([("fail_mode", "no such mode".into())]));
    };
    check(&build, OperationKind::Update, Some("Bridge"), ErrorKind::Constraint, false);
}

#[test]
fn an_error_of_the_commit_differs_from_one_of_an_operation() {
    let server = Server::standalone();
    let mut client = server.connect();
    let mut dangling = Transaction::new();
    dangling.update(server.root, OpenVSwitchColumns::default().bridges([Uuid::from_bits(1)]));
    let error = client.transact(&dangling).unwrap_err();
    assert!(matches!(error, TransactionError::Commit { error: ErrorKind::ReferentialIntegrity, .. }), "{error:?}");
    client.transact(&bridge("br0")).unwrap();
    let error = client.transact(&bridge("br0")).unwrap_err();
    assert!(matches!(error, TransactionError::Commit { error: ErrorKind::Constraint, .. }), "{error:?}");
    let mut transaction = Transaction::new();
    transaction.comment("elsewhere");
    let outcome = client.call("transact", transaction.encode("no such database"));
    let error = transaction.decode_reply(outcome).unwrap_err();
    assert!(matches!(error, TransactionError::Refused { error: ErrorKind::UnknownDatabase, .. }), "{error:?}");
    assert_eq!(client.transact(&Transaction::new()).unwrap(), []);
}

#[test]
fn a_wait_blocks_the_transaction_until_another_one_satisfies_it() {
    let server = Server::standalone();
    let mut transaction = Transaction::new();
    let wanted = OpenVSwitchColumns::default().next_cfg(1).into_row();
    transaction.wait(Wait::equal("Open_vSwitch", server.root, wanted).up_to(20_000));
    let mut waiting = server.connect();
    let mut other = server.connect();
    std::thread::scope(|scope| {
        let outcome = scope.spawn(|| waiting.transact(&transaction));
        let mut satisfy = Transaction::new();
        satisfy.update(server.root, OpenVSwitchColumns::default().next_cfg(1));
        other.transact(&satisfy).unwrap();
        assert_eq!(outcome.join().unwrap().unwrap(), [OperationResult::Done]);
    });
}
