//! The codec against the real tools.

#[cfg(test)]
mod flows;
#[cfg(test)]
mod messages;
