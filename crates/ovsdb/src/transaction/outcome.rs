//! Results and errors of transactions.

use serde_json::Value;
use thiserror::Error;

use crate::operation::{Operation, OperationKind};
use crate::value::{Atom, DecodeError, Decoded, NamedUuid, Row, Uuid, array, decode_row};

/// The result of one operation of a committed transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OperationResult {
    /// The id of the new row.
    Inserted(Uuid),
    /// The rows that were read.
    Selected(Vec<Row>),
    /// The number of selected rows.
    Updated(u64),
    /// The number of selected rows.
    Mutated(u64),
    /// The number of deleted rows.
    Deleted(u64),
    /// The operation has no result: `wait`, `commit`, `comment`, `assert`.
    Done,
}

/// Why a transaction changed nothing; with [`TransactionError::BadReply`] the outcome is unknown.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TransactionError {
    /// The server rejected an operation.
    #[error("operation {index} ({kind}{}): {error}{}", on(table.as_deref()), say(details.as_deref()))]
    Operation {
        /// Its index in the transaction.
        index: usize,
        /// The kind of the operation.
        kind: OperationKind,
        /// The table of the operation, if any.
        table: Option<String>,
        /// The kind of the error.
        error: ErrorKind,
        /// The `details` of the error.
        details: Option<String>,
    },
    /// All operations succeeded, but the commit failed, for example because of a reference to a deleted row.
    #[error("commit: {error}{}", say(details.as_deref()))]
    Commit {
        /// The kind of the error.
        error: ErrorKind,
        /// The `details` of the error.
        details: Option<String>,
    },
    /// The server rejected the request as a whole.
    #[error("request rejected: {error}{}", say(details.as_deref()))]
    Refused {
        /// The kind of the error.
        error: ErrorKind,
        /// The `details` of the error.
        details: Option<String>,
    },
    /// The reply of the server is malformed.
    #[error("malformed reply to the transaction: {0}")]
    BadReply(#[from] DecodeError),
}

/// The `error` member of RFC 7047 and of OVS's additions to it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ErrorKind {
    /// A `wait` was not satisfied in time.
    #[error("timed out")]
    TimedOut,
    /// The transaction has an `abort` operation.
    #[error("aborted")]
    Aborted,
    /// The client does not own the lock of an `assert`.
    #[error("not owner")]
    NotOwner,
    /// A value, a number of rows or an index breaks a rule of the schema.
    #[error("constraint violation")]
    Constraint,
    /// A reference points to a row that does not exist.
    #[error("referential integrity violation")]
    ReferentialIntegrity,
    /// A mutation divided by zero.
    #[error("domain error")]
    Domain,
    /// A mutation left the range of its type.
    #[error("range error")]
    Range,
    /// A `uuid-name` is used twice.
    #[error("duplicate uuid-name")]
    DuplicateName,
    /// The server is out of memory or space.
    #[error("resources exhausted")]
    ResourcesExhausted,
    /// The server could not write to disk.
    #[error("I/O error")]
    Io,
    /// The request was cancelled by its client.
    #[error("canceled")]
    Cancelled,
    /// The server is not the leader of its cluster.
    #[error("not leader")]
    NotLeader,
    /// The cluster could not commit.
    #[error("cluster error")]
    Cluster,
    /// The server does not have this database.
    #[error("unknown database")]
    UnknownDatabase,
    /// Any other error, by its name.
    #[error("{0}")]
    Other(String),
}

impl OperationResult {
    /// The id of a named row of the same transaction.
    pub fn inserted(results: &[Self], row: &NamedUuid) -> Option<Uuid> {
        match results.get(row.operation()?)? {
            Self::Inserted(uuid) => Some(*uuid),
            _ => None,
        }
    }

    /// The number of rows that the operation selected, if it selects rows.
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Updated(count) | Self::Mutated(count) | Self::Deleted(count) => Some(*count),
            Self::Selected(rows) => Some(rows.len() as u64),
            Self::Inserted(_) | Self::Done => None,
        }
    }
}

impl TransactionError {
    /// Whether the same transaction may succeed later. After a failed `wait`, recompute it first.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Operation { error, .. } | Self::Commit { error, .. } | Self::Refused { error, .. } => {
                error.is_transient()
            }
            Self::BadReply(_) => false,
        }
    }
}

impl ErrorKind {
    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::TimedOut
            | Self::NotOwner
            | Self::ResourcesExhausted
            | Self::Io
            | Self::Cancelled
            | Self::NotLeader
            | Self::Cluster
            // While a server starts or converts a database, it does not have it.
            | Self::UnknownDatabase => true,
            Self::Aborted
            | Self::Constraint
            | Self::ReferentialIntegrity
            | Self::Domain
            | Self::Range
            | Self::DuplicateName
            | Self::Other(_) => false,
        }
    }
}

impl From<&str> for ErrorKind {
    fn from(error: &str) -> Self {
        let known = [
            Self::TimedOut,
            Self::Aborted,
            Self::NotOwner,
            Self::Constraint,
            Self::ReferentialIntegrity,
            Self::Domain,
            Self::Range,
            Self::DuplicateName,
            Self::ResourcesExhausted,
            Self::Io,
            Self::Cancelled,
            Self::NotLeader,
            Self::Cluster,
            Self::UnknownDatabase,
        ];
        known.into_iter().find(|kind| kind.to_string() == error).unwrap_or_else(|| Self::Other(error.to_owned()))
    }
}

/// Decodes a reply: a result for each operation, and one more error if the commit failed. After a failed operation
/// the results are null or missing.
pub(super) fn decode(
    operations: &[Operation],
    outcome: Result<Value, Value>,
) -> Result<Vec<OperationResult>, TransactionError> {
    let reply = match outcome {
        Ok(reply) => reply,
        Err(error) => {
            let (error, details) = error_of(&error).unwrap_or_else(|| (ErrorKind::Other(error.to_string()), None));
            return Err(TransactionError::Refused { error, details });
        }
    };
    let results = array(&reply)?;
    if let Some((index, (error, details))) = results.iter().enumerate().find_map(|(i, r)| Some((i, error_of(r)?))) {
        return Err(match operations.get(index) {
            Some(operation) => {
                let (kind, table) = (operation.kind(), operation.table().map(ToOwned::to_owned));
                TransactionError::Operation { index, kind, table, error, details }
            }
            None => TransactionError::Commit { error, details },
        });
    }
    if results.len() != operations.len() {
        return Err(DecodeError::unexpected("one result for each operation", &reply).into());
    }
    let decode = |(index, (operation, result)): (usize, (&Operation, &Value))| {
        result_of(operation, result).map_err(|error| error.at(format_args!("operation {index} ({})", operation.kind())))
    };
    Ok(operations.iter().zip(results).enumerate().map(decode).collect::<Decoded<_>>()?)
}

fn result_of(operation: &Operation, result: &Value) -> Decoded<OperationResult> {
    let count = || {
        let count = result.get("count").and_then(Value::as_u64);
        count.ok_or_else(|| DecodeError::unexpected("a count of rows", result))
    };
    match operation.kind() {
        OperationKind::Insert => match Atom::decode(result.get("uuid").unwrap_or(&Value::Null)) {
            Ok(Atom::Uuid(uuid)) => Ok(OperationResult::Inserted(uuid)),
            _ => Err(DecodeError::unexpected("the UUID of a row", result)),
        },
        OperationKind::Select => {
            let rows = array(result.get("rows").unwrap_or(&Value::Null))?;
            Ok(OperationResult::Selected(rows.iter().map(decode_row).collect::<Decoded<_>>()?))
        }
        OperationKind::Update => Ok(OperationResult::Updated(count()?)),
        OperationKind::Mutate => Ok(OperationResult::Mutated(count()?)),
        OperationKind::Delete => Ok(OperationResult::Deleted(count()?)),
        OperationKind::Wait
        | OperationKind::Commit
        | OperationKind::Abort
        | OperationKind::Comment
        | OperationKind::Assert => match result {
            Value::Object(_) => Ok(OperationResult::Done),
            other => Err(DecodeError::unexpected("an object", other)),
        },
    }
}

fn error_of(result: &Value) -> Option<(ErrorKind, Option<String>)> {
    let error = match (result.get("error"), result) {
        (Some(Value::String(error)), _) | (None, Value::String(error)) => ErrorKind::from(error.as_str()),
        _ => return None,
    };
    Some((error, result.get("details").and_then(Value::as_str).map(ToOwned::to_owned)))
}

fn on(table: Option<&str>) -> String {
    table.map(|table| format!(" on {table}")).unwrap_or_default()
}

fn say(details: Option<&str>) -> String {
    details.map(|details| format!(": {details}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Transaction;
    use super::*;
    use crate::condition::Where;

    fn three() -> Transaction {
        let mut transaction = Transaction::new();
        transaction.comment("why");
        transaction.delete("Port", Where::EVERY_ROW);
        transaction.select("Port", Where::EVERY_ROW, None);
        transaction
    }

    #[test]
    fn an_error_names_its_operation() {
        let failed = json!({"error": "constraint violation", "details": "no"});
        for reply in [json!([{}, failed, null]), json!([{}, failed])] {
            let error = three().decode_reply(Ok(reply)).unwrap_err();
            assert_eq!(error.to_string(), "operation 1 (delete on Port): constraint violation: no");
            assert!(!error.is_transient());
        }
    }

    #[test]
    fn an_error_beyond_the_operations_is_of_the_commit() {
        let reply = json!([{}, {"count": 1}, {"rows": []}, {"error": "referential integrity violation"}]);
        let error = three().decode_reply(Ok(reply)).unwrap_err();
        assert_eq!(error, TransactionError::Commit { error: ErrorKind::ReferentialIntegrity, details: None });
    }

    #[test]
    fn a_rejected_request_keeps_its_reason() {
        let error = three().decode_reply(Err(json!({"error": "not leader", "details": "x"}))).unwrap_err();
        assert!(error.is_transient());
        assert_eq!(error.to_string(), "request rejected: not leader: x");
        let error = three().decode_reply(Err(json!("unknown database"))).unwrap_err();
        assert_eq!(error, TransactionError::Refused { error: ErrorKind::UnknownDatabase, details: None });
        let error = three().decode_reply(Err(json!(7))).unwrap_err();
        assert_eq!(error.to_string(), "request rejected: 7");
    }

    #[test]
    fn a_malformed_reply_is_an_error() {
        for reply in [
            json!(null),
            json!([{}]),
            json!([{}, {"count": 1}, null]),
            json!([{}, {"count": -1}, {"rows": []}]),
            json!([{}, {"count": 1}, {"rows": [1]}]),
            json!([{}, {"count": 1}, {"rows": []}, {}]),
        ] {
            let error = three().decode_reply(Ok(reply.clone())).unwrap_err();
            assert!(matches!(error, TransactionError::BadReply(_)), "{reply}");
        }
    }
}
