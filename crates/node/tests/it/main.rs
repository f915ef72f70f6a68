//! The brain: what follows from what is known, and that the way there does not matter.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod host;
#[cfg(test)]
mod order;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod services;
#[cfg(test)]
mod switch;
