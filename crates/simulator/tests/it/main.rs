//! The simulator against the real switch.

#[cfg(test)]
mod abort;
#[cfg(test)]
mod compare;
#[cfg(test)]
mod node;
#[cfg(test)]
mod random;
