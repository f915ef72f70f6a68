//! The clients against real daemons.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod database;
#[cfg(test)]
mod delta;
#[cfg(test)]
mod odd_server;
#[cfg(test)]
mod restarts;
#[cfg(test)]
mod switch;
#[cfg(test)]
mod unixctl;
