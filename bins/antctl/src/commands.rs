//! The commands of antctl, a module for each.

pub(crate) mod diagram;
pub(crate) mod pipeline;
pub(crate) mod replay;
pub(crate) mod trace;
