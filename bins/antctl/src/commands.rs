//! The commands.

pub(crate) mod diagram;
pub(crate) mod pipeline;
pub(crate) mod trace;
