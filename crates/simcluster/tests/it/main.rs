//! Scenarios of the product, from YAML to packets.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod golden;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod report;
