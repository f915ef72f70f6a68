//! One transaction between its caller and the task.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use ovsdb::transaction::{OperationResult, Transaction, TransactionError};
use thiserror::Error;
use tokio::sync::oneshot;

use super::Status;

/// Why a transaction has no result.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TransactError {
    /// The server rejected it, and nothing changed.
    #[error(transparent)]
    Refused(#[from] TransactionError),
    /// The server never got it, so nothing changed.
    #[error("transaction not sent to ovsdb-server: {0}")]
    NotSent(String),
    /// It was sent, but no reply came: it may have been committed or not. The replica will show it.
    #[error("transaction outcome unknown: {0}")]
    OutcomeUnknown(String),
}

impl TransactError {
    /// Whether the same transaction may succeed later; check the replica first if the outcome is unknown.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused(error) => error.is_transient(),
            Self::NotSent(_) | Self::OutcomeUnknown(_) => true,
        }
    }

    /// Whether the transaction may have been committed nevertheless.
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            // A malformed reply does not mean that nothing changed.
            Self::OutcomeUnknown(_) | Self::Refused(TransactionError::BadReply(_)) => true,
            Self::Refused(_) | Self::NotSent(_) => false,
        }
    }
}

/// Why the caller got no reply.
#[derive(Debug)]
pub(super) enum Reason {
    TimedOut { timeout: Duration, status: Status },
    Stopped,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { timeout, status: Status::Connected } => write!(f, "no reply within {timeout:?}"),
            Self::TimedOut { timeout, status: Status::Connecting } => write!(f, "not connected within {timeout:?}"),
            Self::TimedOut { timeout, status: Status::Waiting { reason, .. } } => {
                write!(f, "not connected within {timeout:?}: {reason}")
            }
            Self::Stopped => f.write_str("the client was stopped"),
        }
    }
}

pub(super) type Outcome = Result<Vec<OperationResult>, TransactError>;

/// A transaction, with the channel to its caller.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) transaction: Transaction,
    ticket: Ticket,
    reply: oneshot::Sender<Outcome>,
}

/// Shared by caller and task: a call is either sent or given up, never both.
#[derive(Clone, Debug, Default)]
pub(super) struct Ticket(Arc<AtomicU8>);

const QUEUED: u8 = 0;
const SENT: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Call {
    pub(super) fn new(transaction: Transaction) -> (Self, Ticket, oneshot::Receiver<Outcome>) {
        let (reply, answer) = oneshot::channel();
        let ticket = Ticket::default();
        (Self { transaction, ticket: ticket.clone(), reply }, ticket, answer)
    }

    /// Marks the call as sent; `false` if its caller has given up.
    pub(super) fn claim(&self) -> bool {
        !self.reply.is_closed() && self.ticket.settle(SENT)
    }

    /// Sends the outcome to the caller, if it still waits.
    pub(super) fn finish(self, outcome: Outcome) {
        let _ = self.reply.send(outcome);
    }
}

impl Ticket {
    /// Marks the call as given up; returns the error for its caller.
    pub(super) fn give_up(&self, reason: String) -> TransactError {
        if self.settle(GIVEN_UP) { TransactError::NotSent(reason) } else { TransactError::OutcomeUnknown(reason) }
    }

    fn settle(&self, state: u8) -> bool {
        self.0.compare_exchange(QUEUED, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_either_sent_or_given_up() {
        let (call, ticket, _answer) = Call::new(Transaction::new());
        assert!(call.claim());
        assert!(matches!(ticket.give_up("late".into()), TransactError::OutcomeUnknown(_)));
        let (call, ticket, _answer) = Call::new(Transaction::new());
        assert!(matches!(ticket.give_up("late".into()), TransactError::NotSent(_)));
        assert!(!call.claim());
        let (call, _, answer) = Call::new(Transaction::new());
        drop(answer);
        assert!(!call.claim());
    }
}
