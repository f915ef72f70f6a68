//! The only crate that knows the Kubernetes API.
//!
//! *Role.* [`Client`] finds its way to the API server; [`Client::watch`] tells of every object of a kind, now and from now on, as
//! the plain values of `types`; [`Client::lead`] holds a Lease; [`Client::review_token`] and [`Client::allows`] say who somebody is and
//! what they may do; and a few objects are written.
//!
//! *Invariants.* A watch goes on for ever: it reconnects with a back-off, resumes where it was, and lists anew where it cannot.
//! One that hears nothing is noticed, since every watch is asked for anew after half a minute; so is a request without an answer.
//! After a list, what is no longer there is reported as gone, so nobody has to compare. Only the fields that `types` knows are
//! kept, and no object is held here: only names.
//!
//! A write never takes the place of what somebody else has written in the meantime, unless it says so.
//!
//! *Not here.* What the objects mean.

mod client;
mod kinds;
mod lease;
mod review;
mod watch;
mod wire;
mod write;

pub use client::{Client, ConnectError, Patience, RequestError, TokenError};
pub use kinds::Watched;
pub use review::{Access, User};
pub use watch::{Notice, Only, Watch};
pub use write::{Event, Kept, Outcome};
