//! The pipelines against their specification, and in a real switch.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod client;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod compilers;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod overlap;
#[cfg(test)]
mod packets;
