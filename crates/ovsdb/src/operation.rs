//! The operations of a transaction.

use std::fmt;

use serde_json::{Value, json};

use crate::condition::Where;
use crate::value::{Datum, NamedUuid, Row, encode_row};

/// One operation of a transaction, as in RFC 7047.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Adds a row; other columns take their defaults.
    Insert {
        /// Name of the table to add to.
        table: String,
        /// The columns of the new row.
        row: Row,
        /// The name of the row in the rest of the transaction.
        name: NamedUuid,
    },
    /// Reads the selected rows.
    Select {
        /// Name of the table.
        table: String,
        /// Conditions that select the rows.
        rows: Where,
        /// The columns to read; `None` means all, with `_uuid` and `_version`.
        columns: Option<Vec<String>>,
    },
    /// Overwrites columns of the selected rows.
    Update {
        /// Name of the table.
        table: String,
        /// Conditions that select the rows.
        rows: Where,
        /// The new values, by column.
        row: Row,
    },
    /// Changes columns relative to their values.
    Mutate {
        /// Name of the table.
        table: String,
        /// Conditions that select the rows.
        rows: Where,
        /// The changes, applied in order.
        mutations: Vec<Mutation>,
    },
    /// Deletes the selected rows.
    Delete {
        /// Name of the table.
        table: String,
        /// Conditions that select the rows.
        rows: Where,
    },
    /// Fails the transaction unless the rows are, or are not, as expected.
    Wait(Wait),
    /// Requests that the transaction is on disk before the reply.
    Commit {
        /// Whether it has to be durable.
        durable: bool,
    },
    /// Aborts the transaction with an error.
    Abort,
    /// Adds a comment to the database's log.
    Comment(String),
    /// Fails the transaction unless this client owns the lock.
    Assert {
        /// Name of the lock to own.
        lock: String,
    },
}

/// The rows that a table must have before the transaction continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// Name of the table.
    pub table: String,
    /// Conditions that select the rows to compare.
    pub rows: Where,
    /// The columns to compare.
    pub columns: Vec<String>,
    /// Whether the rows have to equal `expected` or must not.
    pub until: Until,
    /// The rows to compare with; their order does not matter.
    pub expected: Vec<Row>,
    /// How long the server waits for that; without limit if `None`.
    pub timeout_ms: Option<u32>,
}

/// The condition that a [`Wait`] waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Until {
    /// The rows equal the expected ones.
    Equal,
    /// The rows differ from the expected ones.
    NotEqual,
}

/// A relative change of one column.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mutation {
    /// Name of the column to change.
    pub column: String,
    /// The kind of change.
    pub mutator: Mutator,
    /// The operand of the change.
    pub value: Datum,
}

/// The kind of a relative change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mutator {
    /// Adds the operand to each number.
    Add,
    /// Subtracts the operand from each number.
    Subtract,
    /// Multiplies each number by the operand.
    Multiply,
    /// Divides each number by the operand.
    Divide,
    /// Replaces each integer by its remainder.
    Remainder,
    /// Adds elements; the pairs of a map only where the key is new.
    Insert,
    /// Removes elements; of a map those with the given keys or the given pairs.
    Delete,
}

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "the names are those of `Operation`")]
pub enum OperationKind {
    Insert,
    Select,
    Update,
    Mutate,
    Delete,
    Wait,
    Commit,
    Abort,
    Comment,
    Assert,
}

impl Operation {
    /// The kind of an operation.
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::Insert { .. } => OperationKind::Insert,
            Self::Select { .. } => OperationKind::Select,
            Self::Update { .. } => OperationKind::Update,
            Self::Mutate { .. } => OperationKind::Mutate,
            Self::Delete { .. } => OperationKind::Delete,
            Self::Wait(_) => OperationKind::Wait,
            Self::Commit { .. } => OperationKind::Commit,
            Self::Abort => OperationKind::Abort,
            Self::Comment(_) => OperationKind::Comment,
            Self::Assert { .. } => OperationKind::Assert,
        }
    }

    /// The table that the operation works on, if any.
    pub fn table(&self) -> Option<&str> {
        match self {
            Self::Insert { table, .. }
            | Self::Select { table, .. }
            | Self::Update { table, .. }
            | Self::Mutate { table, .. }
            | Self::Delete { table, .. }
            | Self::Wait(Wait { table, .. }) => Some(table),
            Self::Commit { .. } | Self::Abort | Self::Comment(_) | Self::Assert { .. } => None,
        }
    }

    /// Encodes the operation as JSON.
    pub fn encode(&self) -> Value {
        let op = self.kind().as_str();
        match self {
            Self::Insert { table, row, name } => {
                json!({"op": op, "table": table, "row": encode_row(row), "uuid-name": name.name()})
            }
            Self::Select { table, rows, columns: None } => json!({"op": op, "table": table, "where": rows.encode()}),
            Self::Select { table, rows, columns: Some(columns) } => {
                json!({"op": op, "table": table, "where": rows.encode(), "columns": columns})
            }
            Self::Update { table, rows, row } => {
                json!({"op": op, "table": table, "where": rows.encode(), "row": encode_row(row)})
            }
            Self::Mutate { table, rows, mutations } => {
                let mutations: Value = mutations.iter().map(Mutation::encode).collect();
                json!({"op": op, "table": table, "where": rows.encode(), "mutations": mutations})
            }
            Self::Delete { table, rows } => json!({"op": op, "table": table, "where": rows.encode()}),
            Self::Wait(wait) => wait.encode(),
            Self::Commit { durable } => json!({"op": op, "durable": durable}),
            Self::Abort => json!({"op": op}),
            Self::Comment(comment) => json!({"op": op, "comment": comment}),
            Self::Assert { lock } => json!({"op": op, "lock": lock}),
        }
    }
}

impl Wait {
    /// Fails at once unless a single row is selected and its columns equal `expected`.
    pub fn equal(table: &str, rows: impl Into<Where>, expected: Row) -> Self {
        let columns = expected.keys().cloned().collect();
        let (table, rows, expected) = (table.to_owned(), rows.into(), vec![expected]);
        Self { table, rows, columns, until: Until::Equal, expected, timeout_ms: Some(0) }
    }

    /// Fails at once if any row is selected.
    pub fn absent(table: &str, rows: impl Into<Where>) -> Self {
        let (table, rows, columns) = (table.to_owned(), rows.into(), vec!["_uuid".to_owned()]);
        Self { table, rows, columns, until: Until::Equal, expected: vec![], timeout_ms: Some(0) }
    }

    /// The same, but the server waits for it up to `timeout_ms` milliseconds.
    #[must_use]
    pub fn up_to(self, timeout_ms: u32) -> Self {
        Self { timeout_ms: Some(timeout_ms), ..self }
    }

    fn encode(&self) -> Value {
        let until = match self.until {
            Until::Equal => "==",
            Until::NotEqual => "!=",
        };
        let mut wait = json!({
            "op": "wait",
            "table": self.table,
            "where": self.rows.encode(),
            "columns": self.columns,
            "until": until,
            "rows": self.expected.iter().map(encode_row).collect::<Vec<_>>(),
        });
        if let (Some(timeout), Some(object)) = (self.timeout_ms, wait.as_object_mut()) {
            object.insert("timeout".to_owned(), timeout.into());
        }
        wait
    }
}

impl Mutation {
    /// A relative change of a column.
    pub fn new(column: &str, mutator: Mutator, value: impl Into<Datum>) -> Self {
        Self { column: column.to_owned(), mutator, value: value.into() }
    }

    /// Adds elements to a set or map.
    pub fn insert(column: &str, value: impl Into<Datum>) -> Self {
        Self::new(column, Mutator::Insert, value)
    }

    /// Removes elements from a set or map; for a map, a set of keys or a map of pairs.
    pub fn delete(column: &str, value: impl Into<Datum>) -> Self {
        Self::new(column, Mutator::Delete, value)
    }

    fn encode(&self) -> Value {
        json!([self.column, self.mutator.as_str(), self.value.encode()])
    }
}

impl Mutator {
    /// The name of the mutator in RFC 7047.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "+=",
            Self::Subtract => "-=",
            Self::Multiply => "*=",
            Self::Divide => "/=",
            Self::Remainder => "%=",
            Self::Insert => "insert",
            Self::Delete => "delete",
        }
    }
}

impl OperationKind {
    /// The name of the operation in RFC 7047.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Select => "select",
            Self::Update => "update",
            Self::Mutate => "mutate",
            Self::Delete => "delete",
            Self::Wait => "wait",
            Self::Commit => "commit",
            Self::Abort => "abort",
            Self::Comment => "comment",
            Self::Assert => "assert",
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Condition;

    #[test]
    fn a_wait_without_timeout_has_no_limit() {
        let wait = Wait::equal("Bridge", Where::named("b"), Row::from([("name".to_owned(), "b".into())]));
        let encoded = Operation::Wait(wait.clone()).encode();
        assert_eq!(
            encoded,
            json!({"op": "wait", "table": "Bridge", "where": [["name", "==", "b"]], "columns": ["name"],
                "until": "==", "rows": [{"name": "b"}], "timeout": 0})
        );
        assert_eq!(Operation::Wait(wait.clone().up_to(5)).encode()["timeout"], 5);
        assert_eq!(Operation::Wait(Wait { timeout_ms: None, ..wait }).encode().get("timeout"), None);
    }

    #[test]
    fn mutations_are_triples() {
        let mutate = Operation::Mutate {
            table: "Bridge".into(),
            rows: Condition::equal("name", "b").into(),
            mutations: vec![
                Mutation::new("next_cfg", Mutator::Add, 1),
                Mutation::delete("external_ids", Datum::from_iter(["k"])),
            ],
        };
        assert_eq!(
            mutate.encode(),
            json!({"op": "mutate", "table": "Bridge", "where": [["name", "==", "b"]],
                "mutations": [["next_cfg", "+=", 1], ["external_ids", "delete", "k"]]})
        );
        assert_eq!(mutate.table(), Some("Bridge"));
    }
}
