//! The only crate that knows the Kubernetes API.
//!
//! *Role.* [`Client`] finds its way to the API server; [`Client::watch`] tells of every object of a kind, now and from now on, as
//! the plain values of `types`.
//!
//! *Invariants.* A watch goes on for ever: it reconnects with a back-off, resumes where it was, and lists anew where it cannot.
//! After a list, what is no longer there is reported as gone, so nobody has to compare. Only the fields that `types` knows are
//! kept, and no object is held here: only names.
//!
//! *Not here.* What the objects mean; writing of status and Leases, which comes with the controller.

mod client;
mod kinds;
mod watch;
mod wire;

pub use client::{Client, ConnectError, RequestError, TokenError};
pub use kinds::Watched;
pub use watch::{Notice, Only, Watch};
