//! `logs`: prints the log of a container.

use std::fs;
use std::io::Write;

use anyhow::{Context, Result};
use clap::Args;

use super::enter;
use crate::cli::LabName;
use crate::container_log::{Printer, Selection};
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
    /// The log of the previous run of the container
    #[arg(short, long)]
    previous: bool,
    /// POD, NAMESPACE/POD, or the name of a Deployment for one of its Pods
    pod: String,
}

/// Prints a container's log.
pub(crate) fn run(options: &Options) -> Result<()> {
    let home = Home::of(&options.lab.name);
    let lab = home.alive()?;
    let found = enter::find(&home, &lab, &options.pod, options.namespace.as_deref())?;
    let directory = enter::container_directory(&home, &found, options.container.as_deref())?;
    let mut runs: Vec<u32> = fs::read_dir(&directory)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".log")?.parse().ok())
        .collect();
    runs.sort_unstable();
    let back = usize::from(options.previous);
    let run = runs.iter().rev().nth(back).with_context(|| {
        format!("{} has started {} times", directory.file_name().unwrap_or_default().to_string_lossy(), runs.len())
    })?;
    let log = fs::read(directory.join(format!("{run}.log")))?;
    let text = Printer::new(Selection::default()).print(&log);
    // A closed pipe is not an error.
    let _ = std::io::stdout().write_all(&text);
    Ok(())
}
