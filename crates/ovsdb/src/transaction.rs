//! Building a transaction and reading its outcome.

mod outcome;

use serde_json::Value;

pub use self::outcome::{ErrorKind, OperationResult, TransactionError};
use crate::condition::Where;
use crate::operation::{Mutation, Operation, Wait};
use crate::tables::Columns;
use crate::value::{NamedUuid, Row};

/// Operations that the server applies atomically and in order.
///
/// Each method adds one operation; its result has the same index in the return value of [`Transaction::decode_reply`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transaction {
    operations: Vec<Operation>,
}

impl Transaction {
    /// A transaction without operations.
    pub fn new() -> Self {
        Self::default()
    }

    /// The operations in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Whether there are no operations.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Inserts a row and returns its name for the rest of this transaction.
    pub fn insert<C: Columns>(&mut self, columns: C) -> NamedUuid {
        self.insert_row(C::TABLE, columns.into_row())
    }

    /// Inserts a row into a table that has no type here.
    pub fn insert_row(&mut self, table: &str, row: Row) -> NamedUuid {
        let name = NamedUuid::of_operation(self.operations.len());
        self.push(Operation::Insert { table: table.to_owned(), row, name: name.clone() });
        name
    }

    /// Reads the selected rows.
    pub fn select(&mut self, table: &str, rows: impl Into<Where>, columns: Option<&[&str]>) -> &mut Self {
        let columns = columns.map(|columns| columns.iter().map(|&column| column.to_owned()).collect());
        self.push(Operation::Select { table: table.to_owned(), rows: rows.into(), columns })
    }

    /// Overwrites these columns of the selected rows.
    pub fn update<C: Columns>(&mut self, rows: impl Into<Where>, columns: C) -> &mut Self {
        self.update_rows(C::TABLE, rows, columns.into_row())
    }

    /// Overwrites columns in a table that has no type here.
    pub fn update_rows(&mut self, table: &str, rows: impl Into<Where>, row: Row) -> &mut Self {
        self.push(Operation::Update { table: table.to_owned(), rows: rows.into(), row })
    }

    /// Changes columns of the selected rows relative to their values.
    pub fn mutate(
        &mut self,
        table: &str,
        rows: impl Into<Where>,
        mutations: impl IntoIterator<Item = Mutation>,
    ) -> &mut Self {
        let mutations = mutations.into_iter().collect();
        self.push(Operation::Mutate { table: table.to_owned(), rows: rows.into(), mutations })
    }

    /// Deletes the selected rows.
    pub fn delete(&mut self, table: &str, rows: impl Into<Where>) -> &mut Self {
        self.push(Operation::Delete { table: table.to_owned(), rows: rows.into() })
    }

    /// Fails the transaction unless rows are, or are not, as expected.
    pub fn wait(&mut self, wait: Wait) -> &mut Self {
        self.push(Operation::Wait(wait))
    }

    /// Requests that the transaction is on disk before the reply.
    pub fn commit(&mut self, durable: bool) -> &mut Self {
        self.push(Operation::Commit { durable })
    }

    /// Aborts the transaction with an error.
    pub fn abort(&mut self) -> &mut Self {
        self.push(Operation::Abort)
    }

    /// Adds a comment to the database's log.
    pub fn comment(&mut self, comment: &str) -> &mut Self {
        self.push(Operation::Comment(comment.to_owned()))
    }

    /// Fails the transaction unless this client owns the lock.
    pub fn assert(&mut self, lock: &str) -> &mut Self {
        self.push(Operation::Assert { lock: lock.to_owned() })
    }

    /// The params of the `transact` request.
    pub fn encode(&self, database: &str) -> Vec<Value> {
        std::iter::once(database.into()).chain(self.operations.iter().map(Operation::encode)).collect()
    }

    /// Decodes the `transact` response: one result per operation, or the first error.
    pub fn decode_reply(&self, outcome: Result<Value, Value>) -> Result<Vec<OperationResult>, TransactionError> {
        outcome::decode(&self.operations, outcome)
    }

    fn push(&mut self, operation: Operation) -> &mut Self {
        self.operations.push(operation);
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::condition::Condition;
    use crate::value::RowRef;

    #[test]
    fn a_named_row_resolves_to_the_result_of_its_own_operation() {
        let mut transaction = Transaction::new();
        transaction.comment("first");
        let interface = transaction.insert_row("Interface", Row::from([("name".to_owned(), "p".into())]));
        let port = Row::from([("interfaces".to_owned(), RowRef::from(&interface).into())]);
        transaction.insert_row("Port", port);
        transaction.delete("Bridge", [Condition::equal("name", "b")]);
        assert_eq!(
            transaction.encode("db"),
            [
                json!("db"),
                json!({"op": "comment", "comment": "first"}),
                json!({"op": "insert", "table": "Interface", "row": {"name": "p"}, "uuid-name": "row1"}),
                json!({"op": "insert", "table": "Port", "row": {"interfaces": ["named-uuid", "row1"]}, "uuid-name": "row2"}),
                json!({"op": "delete", "table": "Bridge", "where": [["name", "==", "b"]]}),
            ]
        );
        let uuid = "550e8400-e29b-41d4-a716-446655440000";
        let reply = json!([{}, {"uuid": ["uuid", uuid]}, {"uuid": ["uuid", uuid]}, {"count": 2}]);
        let results = transaction.decode_reply(Ok(reply)).unwrap();
        assert_eq!(OperationResult::inserted(&results, &interface), Some(uuid.parse().unwrap()));
        assert_eq!(results[3], OperationResult::Deleted(2));
    }
}
