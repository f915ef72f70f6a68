//! Watches against a Kubernetes API: the embedded one, which is itself compared with the real one.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod watches;
