//! The only crate that knows the Kubernetes API.
//!
//! *Role.* [`Client`] connects to the API server; [`Client::watch`] watches the objects of a kind, as the plain values of `types`;
//! [`Client::lead`] holds a Lease; [`Client::review_token`] and [`Client::allows`] authenticate and authorize; a few objects are written.
//!
//! *Invariants.* A watch never ends: it reconnects with a backoff, resumes where it was, and lists again where it cannot resume.
//! A silent watch is detected, since every watch is requested again after half a minute; every other request has a timeout.
//! Objects that are missing in a new list are returned as deleted, so callers need not compare. Only the fields that `types` knows
//! are parsed, and only names of objects are stored here.
//!
//! A write fails if the object has changed since it was read, unless its documentation says otherwise.
//!
//! *Not here.* What the objects mean.

mod client;
mod kinds;
mod lease;
mod review;
mod token;
mod watch;
mod wire;
mod write;

pub use client::{Client, ConnectError, RequestError, Timeouts, TokenError};
pub use kinds::{AntreaNetworkPolicy, ClusterGroup, ClusterNetworkPolicy, NamespacedGroup, Watched};
pub use review::{Access, User};
pub use watch::{Watch, WatchEvent, WatchFilter};
pub use write::{Event, Outcome, SecretContent};
