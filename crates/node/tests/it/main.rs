//! The brain: what follows from what is known, and that the way there does not matter.

mod fixture;
mod host;
mod order;
mod switch;
