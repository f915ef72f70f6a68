use serde_json::{Value, json};

use super::*;
use crate::schema::{AtomType, ColumnType};
use crate::value::Datum;

fn replica() -> Replica {
    let table = MonitoredTable::new([
        ("name", ColumnType::scalar(AtomType::String)),
        ("tag", ColumnType::optional(AtomType::Integer)),
        ("ids", ColumnType::map(AtomType::String, AtomType::String)),
        ("vlans", ColumnType::set(AtomType::Integer)),
    ]);
    Replica::new(Monitored::new().with_table("T", table))
}

fn id(n: u128) -> String {
    Uuid::from_bits(n).to_string()
}

fn reply(found: bool, last: u128, rows: Value) -> MonitorReply {
    MonitorReply::decode(&json!([found, id(last), {"T": rows}])).unwrap()
}

fn update(last: u128, rows: Value) -> Update {
    Update::decode(&[json!("m"), json!(id(last)), json!({"T": rows})]).unwrap()
}

fn names(replica: &Replica) -> Vec<String> {
    replica.rows("T").map(|(_, row)| row["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn columns_that_the_server_omits_have_their_default() {
    let mut replica = replica();
    let changes = replica.apply_reply(reply(false, 1, json!({id(1): {"initial": {"name": "a"}}}))).unwrap();
    let row = replica.row("T", Uuid::from_bits(1)).unwrap();
    assert_eq!(row["tag"], Datum::EMPTY);
    assert_eq!(row["ids"], Datum::Map(BTreeMap::new()));
    assert_eq!(
        changes,
        [Change { table: "T".into(), uuid: Uuid::from_bits(1), before: None, after: Some(row.clone()) }]
    );
    assert_eq!(replica.last_transaction(), Uuid::from_bits(1));
}

#[test]
fn a_modification_replaces_one_value_and_toggles_many() {
    let mut replica = replica();
    let row = json!({"name": "a", "tag": 1, "ids": ["map", [["k", "v"], ["x", "y"]]], "vlans": ["set", [1, 2]]});
    replica.apply_reply(reply(false, 1, json!({id(1): {"initial": row}}))).unwrap();
    let change = json!({"tag": 1, "ids": ["map", [["k", "w"], ["x", "y"]]], "vlans": 1});
    let changes = replica.apply_update(update(2, json!({id(1): {"modify": change}}))).unwrap();
    let after = changes[0].after.clone().unwrap();
    assert_eq!(after["tag"], Datum::from(1i64));
    assert_eq!(after["ids"], Datum::from_iter([("k", "w")]));
    assert_eq!(after["vlans"], Datum::from(2i64));
    let changes = replica.apply_update(update(3, json!({id(1): {"modify": {"tag": ["set", []]}}}))).unwrap();
    assert_eq!(changes[0].before, Some(after));
    assert_eq!(changes[0].after.clone().unwrap()["tag"], Datum::EMPTY);
}

#[test]
fn rows_that_vanished_between_two_connections_are_deletions() {
    let mut replica = replica();
    let initial = |names: &[(u128, &str)]| -> Value {
        names
            .iter()
            .map(|(n, name)| (id(*n), json!({"initial": {"name": name}})))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    replica.apply_reply(reply(false, 1, initial(&[(1, "a"), (2, "b")]))).unwrap();
    let changes = replica.apply_reply(reply(false, 2, initial(&[(2, "b"), (3, "a")]))).unwrap();
    let brief: Vec<_> = changes.iter().map(|c| (c.uuid.bits(), c.before.is_some(), c.after.is_some())).collect();
    assert_eq!(brief, [(1, true, false), (3, false, true)]);
    assert_eq!(replica.row_named("T", "a").unwrap().0, Uuid::from_bits(3));
    // Found: only the rows of the reply change.
    let changes = replica.apply_reply(reply(true, 3, json!({id(2): {"delete": null}}))).unwrap();
    assert_eq!((changes.len(), names(&replica)), (1, vec!["a".to_owned()]));
    assert!(replica.row_named("T", "b").is_none());
}

#[test]
fn a_name_may_move_to_another_row_in_one_update() {
    let mut replica = replica();
    replica.apply_reply(reply(false, 1, json!({id(9): {"initial": {"name": "a"}}}))).unwrap();
    let moved = json!({id(1): {"insert": {"name": "a"}}, id(9): {"delete": null}});
    replica.apply_update(update(2, moved)).unwrap();
    assert_eq!(replica.row_named("T", "a").unwrap().0, Uuid::from_bits(1));
}

#[test]
fn a_failed_update_changes_nothing() {
    let mut replica = replica();
    replica.apply_reply(reply(false, 1, json!({id(1): {"initial": {"name": "a"}}}))).unwrap();
    let before = replica.clone();
    for (rows, message) in [
        (
            json!({id(1): {"delete": null}, id(2): {"modify": {}}}),
            format!("update of T row {}, which does not exist", id(2)),
        ),
        (
            json!({id(1): {"delete": null}, id(2): {"insert": {"tag": "x"}}}),
            format!("update of T row {}: tag: expected an integer, found \"x\"", id(2)),
        ),
        (
            json!({id(1): {"modify": {"name": "b", "zzz": 1}}}),
            format!("update of T row {}: zzz: expected a monitored column, found 1", id(1)),
        ),
    ] {
        assert_eq!(replica.apply_update(update(2, rows)).unwrap_err().to_string(), message);
        assert_eq!((&replica, replica.last_transaction()), (&before, before.last_transaction()));
    }
    let other = Update::decode(&[json!("m"), json!(id(2)), json!({"U": {}})]).unwrap();
    assert_eq!(replica.apply_update(other).unwrap_err(), ReplicaError::UnknownTable("U".into()));
}

#[test]
fn a_snapshot_does_not_change_and_can_be_compared() {
    let mut replica = replica();
    replica.apply_reply(reply(false, 1, json!({id(1): {"initial": {"name": "a"}}}))).unwrap();
    let snapshot = replica.clone();
    let changes = replica.apply_update(update(2, json!({id(2): {"insert": {"name": "b"}}}))).unwrap();
    assert_eq!((snapshot.len(), replica.len()), (1, 2));
    assert_eq!(snapshot.changes_to(&replica), changes);
    assert_eq!(replica.as_changes().len(), 2);
    assert_ne!(snapshot, replica);
}

#[test]
fn an_update_without_a_difference_reports_nothing() {
    let mut replica = replica();
    replica.apply_reply(reply(false, 1, json!({id(1): {"initial": {"name": "a"}}}))).unwrap();
    let again = json!({id(1): {"insert": {"name": "a"}}, id(2): {"delete": null}});
    assert_eq!(replica.apply_update(update(2, again)).unwrap(), []);
    assert_eq!(replica.last_transaction(), Uuid::from_bits(2));
}
