//! The codec against the real tools.

#[cfg(test)]
mod flows;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod messages;
