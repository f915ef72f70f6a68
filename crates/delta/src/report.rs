//! What went wrong, for the status of the objects that it concerns.

use std::fmt;

use openflow::flow::EncodedFlow;
use openflow::matching::Match;

use crate::target::Target;

/// What a report is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// A flow, by what the switch tells flows apart by.
    Flow {
        /// Its table.
        table: u8,
        /// Its priority.
        priority: u16,
        /// Its match.
        matches: Match,
    },
    /// The group with this number.
    Group(u32),
    /// The meter with this number.
    Meter(u32),
}

impl Subject {
    pub(crate) fn flow(flow: &EncodedFlow) -> Self {
        Subject::Flow { table: flow.table(), priority: flow.priority(), matches: flow.decode().matches }
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

/// Two owners want different things in one place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
#[error("{subject} is wanted in two ways, by {winner:?}, who gets it, and by {loser:?}")]
pub struct Conflict<O: fmt::Debug> {
    /// What it is about.
    pub subject: Subject,
    /// The smallest owner: what it wants is installed.
    pub winner: O,
    /// The other one; the same owner, if it contradicts itself.
    pub loser: O,
}

/// The switch refused something, and will not be asked again before it changes or [`crate::State::retry`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
#[error("{subject} was refused: {reason}")]
pub struct Rejection<O: fmt::Debug> {
    /// What it is about.
    pub subject: Subject,
    /// Who wants it; nobody, if its removal was refused.
    pub owners: Vec<O>,
    /// What the switch said.
    pub reason: String,
}

/// Something that cannot be installed yet, as it points at something that is not there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
#[error("{subject} waits for {target}")]
pub struct Waiting<O: fmt::Debug> {
    /// What it is about.
    pub subject: Subject,
    /// Who wants it.
    pub owners: Vec<O>,
    /// What is missing: nobody wants it, the switch refused it, or it waits itself.
    pub target: Target,
}
