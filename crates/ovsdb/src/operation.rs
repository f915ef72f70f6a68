//! The operations of a transaction.

use std::fmt;

use serde_json::{Value, json};

use crate::condition::Where;
use crate::value::{Datum, NamedUuid, Row, encode_row};

/// One step of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Adds a row; columns not given take their defaults.
    Insert {
        /// Where it is added.
        table: String,
        /// Its columns.
        row: Row,
        /// What the rest of the transaction calls it.
        name: NamedUuid,
    },
    /// Reads rows.
    Select {
        /// Where they are.
        table: String,
        /// Which.
        rows: Where,
        /// Which of their columns; all, with `_uuid` and `_version`, when `None`.
        columns: Option<Vec<String>>,
    },
    /// Overwrites columns.
    Update {
        /// Where the rows are.
        table: String,
        /// Which.
        rows: Where,
        /// The new values.
        row: Row,
    },
    /// Changes columns relative to what they hold.
    Mutate {
        /// Where the rows are.
        table: String,
        /// Which.
        rows: Where,
        /// The changes, made in order.
        mutations: Vec<Mutation>,
    },
    /// Removes rows.
    Delete {
        /// Where they are.
        table: String,
        /// Which.
        rows: Where,
    },
    /// Fails the transaction unless the rows are (not) as given.
    Wait(Wait),
    /// Asks that the transaction is on disk before it is answered.
    Commit {
        /// Whether it has to be.
        durable: bool,
    },
    /// Fails the transaction.
    Abort,
    /// Writes a line to the database's log.
    Comment(String),
    /// Fails the transaction unless this client owns the lock.
    Assert {
        /// Name of the lock.
        lock: String,
    },
}

/// What the rows of a table must be before the transaction goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// Where the rows are.
    pub table: String,
    /// Which are looked at.
    pub rows: Where,
    /// Which of their columns are looked at.
    pub columns: Vec<String>,
    /// Whether they have to equal `expected` or must not.
    pub until: Until,
    /// The rows to compare with; their order does not matter.
    pub expected: Vec<Row>,
    /// How long the server holds the transaction back until it is so; without end when `None`.
    pub timeout_ms: Option<u32>,
}

/// When a [`Wait`] is over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Until {
    /// The rows equal the expected ones.
    Equal,
    /// They do not.
    NotEqual,
}

/// A change of one column.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mutation {
    /// The column.
    pub column: String,
    /// What is done to it.
    pub mutator: Mutator,
    /// With what.
    pub value: Datum,
}

/// How a column is changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mutator {
    /// Adds to each number.
    Add,
    /// Subtracts from each number.
    Subtract,
    /// Multiplies each number.
    Multiply,
    /// Divides each number.
    Divide,
    /// Takes the remainder of each integer.
    Remainder,
    /// Adds elements; the pairs of a map only where the key is new.
    Insert,
    /// Removes elements; of a map those with the given keys or the given pairs.
    Delete,
}

/// Which operation it is.
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
    /// Which operation it is.
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

    /// The table it works on, if it works on one.
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

    /// The operation as JSON.
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
    /// Fails at once unless the chosen rows' columns equal `expected`, one row.
    pub fn equal(table: &str, rows: impl Into<Where>, expected: Row) -> Self {
        let columns = expected.keys().cloned().collect();
        let (table, rows, expected) = (table.to_owned(), rows.into(), vec![expected]);
        Self { table, rows, columns, until: Until::Equal, expected, timeout_ms: Some(0) }
    }

    /// Fails at once if any row is chosen.
    pub fn absent(table: &str, rows: impl Into<Where>) -> Self {
        let (table, rows, columns) = (table.to_owned(), rows.into(), vec!["_uuid".to_owned()]);
        Self { table, rows, columns, until: Until::Equal, expected: vec![], timeout_ms: Some(0) }
    }

    /// The same, but the server waits up to `timeout_ms` milliseconds for it.
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
    /// A change of a column.
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
    /// The mutator on the wire.
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
    /// The operation's name on the wire.
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
    fn a_wait_without_timeout_waits_without_end() {
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
