//! The suite against the real Kubernetes: what is recorded is what it answers.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod real_kubernetes;
