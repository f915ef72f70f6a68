//! `exec`: runs a command in a Pod.

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
    /// Namespace of the Pod; needed only if the name is not unique
    #[arg(short, long)]
    namespace: Option<String>,
    /// The container; by default the first one
    #[arg(short, long)]
    container: Option<String>,
    /// POD, NAMESPACE/POD, or the name of a Deployment for one of its Pods
    pod: String,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Replaces this process with the command.
pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let home = Home::of(&options.lab.name);
    let lab = home.alive()?;
    let found = enter::find(&home, &lab, &options.pod, options.namespace.as_deref())?;
    let mut command = enter::pod(&home, &lab, &found, options.container.as_deref())?;
    Err(command.args(options.command).exec()).context("cannot run nsenter")
}
