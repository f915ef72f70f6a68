//! wip
#![expect(dead_code, reason = "wip")]
mod failure;
mod managed;
mod moment;
mod names;
mod patch;
mod quantity;
mod schema;
mod selector;
mod store;
mod value;
