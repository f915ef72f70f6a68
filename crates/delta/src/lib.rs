//! Desired against actual state of the switch: flows, groups and meters.
//!
//! *Role.* Owners (a rule, a Service, a Pod) claim objects; a resync after every connect reports the objects that the switch
//! has; [`State::patch`] returns the messages to send. [`Ids`] assigns the ids that live in the switch.
//!
//! *Invariants.* The desired state depends on the current claims, never on their history. Two owners of one flow never
//! overwrite each other: `conjunction` actions are united, equal flows are shared, and anything else is a [`Conflict`] that
//! the smallest owner wins. Leftovers (objects in the switch without a claim) are neither deleted nor reduced before
//! [`State::allow_sweep`]. Groups and meters are installed before, and deleted after, the objects that point at them; one
//! that is still pointed at stays, so the switch never deletes flows by itself. Failed messages stay due; rejected objects
//! are set aside and reported, and do not block the rest. Meters cannot be marked as applied together with a bundle: their
//! patches have a type of their own. An id is never assigned to a second key while the first may still have flows. Nothing
//! depends on the order of a hash table.
//!
//! *Not here.* Sockets and bundles (crate `ovs`); the meaning of flows (crate `pipeline`); when to resync and to retry
//! (`engine.rs` of the agent).

mod flows;
mod hash;
mod ids;
mod ledger;
mod numbered;
mod patch;
mod report;
mod state;
mod status;
mod target;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use hash::{StableHasher, StableKey};
pub use ids::{Adopted, Exhausted, Ids};
pub use patch::{Failure, Message, MeterPatch, Patch, Rejected, Stage};
pub use report::{Conflict, Rejection, Subject, Waiting};
pub use state::{Meters, NoMeters, Observed, State};
pub use target::Target;
