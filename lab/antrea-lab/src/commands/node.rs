//! `node`: runs a command in a Node.

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use super::enter;
use crate::cli::LabName;
use crate::state::Home;

#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    lab: LabName,
    /// The Node, or `router`, `fabric`, `control` or `outside`
    node: String,
    /// The command; without one, a shell
    #[arg(last = true)]
    command: Vec<String>,
}

/// Replaces this process with the command.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let home = Home::of(&options.lab.name);
    let lab = home.alive()?;
    let mut command = enter::node(&home, &lab, &options.node)?;
    let words = if options.command.is_empty() { vec!["bash".to_owned()] } else { options.command };
    Err(command.args(words).exec()).context("cannot run nsenter")
}
