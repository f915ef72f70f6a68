//! A small Kubernetes API in the process, for the lab, for tests and for simulations of scale.
//!
//! *Role.* Serves what `kubectl` and kube-rs clients need: the resources of the table in `resources`, and those of
//! CustomResourceDefinitions, with discovery, watches, patches, server-side apply, tables, RBAC and tokens, over TLS.
//! [`ApiServer`] is the server; [`Local`] is the same API without a socket.
//!
//! *Invariants.* A resource is a row in a table, and all resources share one code path and one store. Every write has a
//! revision of its own. A watch gets every write of its resource once and in order, or the error 410, after which it
//! must list again. An object is stored once, as bytes that gets, lists and watches share. Every request is answered;
//! errors are `Status` objects like those of the real server. All connections use TLS, and RBAC decides about every
//! request.
//!
//! *Not here.* This is **not a cluster store for production**: one process, in memory, with a snapshot and a journal on
//! disk. The crate's `README.md` lists the differences from kube-apiserver.

mod allocate;
mod auth;
mod bootstrap;
mod controllers;
mod core;
mod custom;
mod defaults;
mod failure;
mod local;
mod managed;
mod moment;
mod names;
mod objects;
mod patch;
mod path;
mod quantity;
mod resources;
mod schema;
mod selector;
mod serve;
mod server;
mod snapshot;
mod store;
mod syntax;
mod table;
mod tls;
mod validate;
mod value;

pub use failure::Failure;
pub use local::{Local, Patch};
pub use serve::Dialer;
pub use server::{ApiServer, KubeletCertificates, Options, StartError};
