//! Against a real ovsdb-server, and the fuzz properties against messages like its own.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
#[path = "server/fixture.rs"]
mod fixture;
#[cfg(test)]
#[path = "server/fuzz.rs"]
mod fuzz;
#[cfg(test)]
#[path = "server/monitor.rs"]
mod monitor;
#[cfg(test)]
#[path = "server/transaction.rs"]
mod transaction;
