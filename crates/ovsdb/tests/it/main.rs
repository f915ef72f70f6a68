//! The codec and the replica against a real ovsdb-server, and their fuzz properties.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod monitor;
#[cfg(test)]
mod transaction;
