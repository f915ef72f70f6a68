//! Properties of anything that a database server may send.

use ovsdb::condition::Where;
use ovsdb::frame::Framer;
use ovsdb::monitor::{MonitorNotice, MonitorReply};
use ovsdb::replica::{Change, Replica};
use ovsdb::rpc::Message;
use ovsdb::schema::DatabaseSchema;
use ovsdb::tables::{self, Bridge, Interface, OpenVSwitch, Port, TypedRow};
use ovsdb::transaction::Transaction;
use ovsdb::value::Datum;

/// Interprets the bytes as the stream of a server: responses are monitor replies, notifications are updates.
pub fn check(data: &[u8]) {
    let mut framer = Framer::default();
    framer.push(data);
    let mut replica = Replica::new(tables::all());
    while let Ok(Some(value)) = framer.next_value() {
        if let Ok(datum) = Datum::decode(&value) {
            assert_eq!(Datum::decode(&datum.encode()).as_ref(), Ok(&datum));
        }
        match Message::decode(value) {
            Ok(Message::Response(response)) => {
                let mut transaction = Transaction::new();
                transaction.comment("any").delete("Port", Where::EVERY_ROW).select("Port", Where::EVERY_ROW, None);
                transaction.insert_row("Port", [].into());
                // Any reply is decoded without a panic, and an error can be printed.
                let _ = transaction.decode_reply(response.outcome.clone()).map_err(|error| error.to_string());
                let Ok(result) = response.outcome else { continue };
                let _ = DatabaseSchema::decode(&result);
                if let Ok(reply) = MonitorReply::decode(&result) {
                    assert_eq!(MonitorReply::decode(&reply.encode()).as_ref(), Ok(&reply));
                    follow(&mut replica, |replica| replica.apply_reply(reply.clone()).ok());
                }
            }
            Ok(Message::Notification(notification)) => {
                if let Ok(Some(MonitorNotice::Update(update))) = MonitorNotice::decode(&notification) {
                    let again = MonitorNotice::decode(&update.encode());
                    assert_eq!(again, Ok(Some(MonitorNotice::Update(update.clone()))));
                    follow(&mut replica, |replica| replica.apply_update(update.clone()).ok());
                }
            }
            Ok(Message::Request(_)) | Err(_) => {}
        }
    }
}

/// The reported changes are exactly the difference between before and after; an error changes nothing.
fn follow(replica: &mut Replica, apply: impl Fn(&mut Replica) -> Option<Vec<Change>>) {
    let before = replica.clone();
    match apply(replica) {
        Some(changes) => assert_eq!(before.changes_to(replica), changes),
        None => assert!(before == *replica && before.last_transaction() == replica.last_transaction()),
    }
    read::<OpenVSwitch>(replica);
    read::<Bridge>(replica);
    read::<Port>(replica);
    read::<Interface>(replica);
}

/// Every row has all its columns and is found by its name; reading it gives a value or an error that prints.
fn read<T: TypedRow>(replica: &Replica) {
    for (uuid, row) in replica.rows(T::TABLE) {
        assert!(T::column_types().iter().all(|(column, _)| row.contains_key(*column)));
        let _ = T::from_row(uuid, row).map_err(|error| error.to_string());
        if let Some(name) = row.get("name").and_then(Datum::as_str) {
            let (_, found) = replica.row_named(T::TABLE, name).expect("a name leads to a row");
            assert_eq!(found.get("name"), row.get("name"));
        }
    }
}
