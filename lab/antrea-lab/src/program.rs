//! The file of this program, which the lab starts again as its supervisor, Nodes, containers and servers.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// Path of the running program.
pub(crate) fn current_exe() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find the path of the running program")
}
