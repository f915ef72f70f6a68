//! The crate from outside.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod codegen;
#[cfg(test)]
mod socket;
#[cfg(test)]
mod streams;
