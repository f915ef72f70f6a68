//! What the switch should hold against what it holds: flows, groups and meters.
//!
//! *Role.* Owners (a rule, a Service, a Pod) say what they want; the switch, listed once after every connect, says what
//! it has; [`State::patch`] says what to send. [`Ids`] gives the numbers that live in the switch.
//!
//! *Invariants.* What is wanted depends on what owners say now, never on the way there. Two owners of one flow never
//! overwrite each other: `conjunction` actions are united, equal flows are shared, and anything else is a [`Conflict`]
//! that the smallest owner wins. What was found in the switch is neither removed nor reduced before
//! [`State::allow_sweep`]. What is pointed at is there before, and goes after, what points at it; a group that is still
//! pointed at stays, so the switch never takes flows away by itself. What failed stays due; what the switch refused is
//! set aside, reported, and does not hold up the rest. An id is never given to a second key while the first may still
//! have flows. Nothing depends on the order of a hash table.
//!
//! *Not here.* Sockets and bundles (crate `ovs`); what the flows mean (crate `pipeline`); when to retry (crate `node`).

mod flows;
mod hash;
mod ids;
mod life;
mod numbered;
mod patch;
mod report;
mod state;
mod target;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use hash::{StableHasher, StableKey};
pub use ids::{Adopted, Exhausted, Ids};
pub use patch::{Failure, Message, Patch, Rejected};
pub use report::{Conflict, Rejection, Subject, Waiting};
pub use state::{Observed, State};
pub use target::Target;
