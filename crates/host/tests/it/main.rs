//! Tests against the real kernel, in namespaces of their own.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod connections;
#[cfg(test)]
mod firewall;
#[cfg(test)]
mod guard;
#[cfg(test)]
mod ipam;
#[cfg(test)]
mod netns;
#[cfg(test)]
mod next_hops;
#[cfg(test)]
mod pods;
#[cfg(test)]
mod state;
#[cfg(test)]
mod watch;
