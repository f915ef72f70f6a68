//! The brain: desired state for given events, and its independence of their order.

// `cfg(test)` marks the helpers as test code, where clippy allows `unwrap`.
#[cfg(test)]
mod attachments;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod host;
#[cfg(test)]
mod order;
#[cfg(test)]
mod policies;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod recording;
#[cfg(test)]
mod services;
#[cfg(test)]
mod switch;
#[cfg(test)]
mod tunnels;
#[cfg(test)]
mod underlay;
