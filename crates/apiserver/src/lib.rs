//! A small Kubernetes API in the process: for the lab, for tests and for simulations of scale.
//!
//! *Role.* Serves what `kubectl` and kube-rs clients need to live: the resources of the table in `resources`, and those that
//! CustomResourceDefinitions define, with discovery, watches, patches, server-side apply, tables, RBAC and tokens, over TLS.
//! [`ApiServer`] is the server; [`Local`] is the same API without a socket.
//!
//! *Invariants.* A resource is a row in a table, and all go the same way through one store. Every write has a revision of its
//! own, and a watch sees every write of its resource in order, once, or is told (410) that it must list again. An object is kept
//! once, as bytes that gets, lists and watchers share. Whatever comes in is answered: a failure is a `Status` as the real server
//! gives it. Nobody gets in without TLS, and nobody but the admin does anything that no role allows.
//!
//! *Not here.* This is **not a cluster store for production**: one process, in memory, with a snapshot and a journal on disk.
//! Differences from kube-apiserver are listed in the crate's `README.md`.

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

pub use auth::{Authority, Identity};
pub use failure::Failure;
pub use local::{Local, Patch};
pub use server::{ApiServer, Options, StartError};
