//! The suite against the real Kubernetes: compares or records its answers.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod policies_kubernetes;
#[cfg(test)]
mod real_kubernetes;
