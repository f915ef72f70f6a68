//! Reports of problems, for the status of the owners.

use std::fmt;

use openflow::matching::Match;

use crate::target::Target;

/// The object of a report.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// A flow, by the key that the switch uses.
    Flow {
        /// Number of the table.
        table: u8,
        /// Higher priorities match first.
        priority: u16,
        /// All fields of the match.
        matches: Match,
    },
    /// The group with this id.
    Group(u32),
    /// The meter with this id.
    Meter(u32),
}

impl From<Target> for Subject {
    fn from(target: Target) -> Self {
        match target {
            Target::Group(id) => Subject::Group(id),
            Target::Meter(id) => Subject::Meter(id),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Flow { table, priority, matches } if matches.is_any() => {
                write!(f, "flow table={table},priority={priority}")
            }
            Subject::Flow { table, priority, matches } => write!(f, "flow table={table},priority={priority},{matches}"),
            Subject::Group(id) => write!(f, "group {id}"),
            Subject::Meter(id) => write!(f, "meter {id}"),
        }
    }
}

/// Two owners claim different objects with the same key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
#[error("conflict on {subject}: {winner:?} and {loser:?} want different contents; {winner:?} is installed")]
pub struct Conflict<O: fmt::Debug> {
    /// The object in question.
    pub subject: Subject,
    /// The smallest owner, whose claim is installed.
    pub winner: O,
    /// The other owner; the same one, if it contradicts itself.
    pub loser: O,
}

/// The switch rejected an object; it is sent again after a change or [`crate::State::retry`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
#[error("switch rejected {subject}: {reason}")]
pub struct Rejection<O: fmt::Debug> {
    /// The object in question.
    pub subject: Subject,
    /// The owners that claim it; none, if its deletion was rejected.
    pub owners: Vec<O>,
    /// The error of the switch.
    pub reason: String,
}

/// An object that cannot be installed yet, as its target does not exist.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
#[error("{subject} waits for {target}, which does not exist")]
pub struct Waiting<O: fmt::Debug> {
    /// The object in question.
    pub subject: Subject,
    /// The owners that claim it.
    pub owners: Vec<O>,
    /// The missing target: it has no claim, was rejected, or waits itself.
    pub target: Target,
}
