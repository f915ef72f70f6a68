//! One daemon of the control plane: starts it, and waits until it is ready.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::process::{Process, log_tail};
use crate::wait::until;

#[derive(Debug)]
pub(super) struct Daemon {
    name: &'static str,
    process: Process,
}

impl Daemon {
    /// Starts the daemon with its output in `dir`/`name`.log, and returns when `ready` says so.
    pub(super) fn start(
        name: &'static str,
        mut command: Command,
        dir: &Path,
        timeout: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let output = File::create(&log)?;
        command.current_dir(dir).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut process = Process::spawn(command)?;
        until(format_args!("{name} to be ready"), timeout, || match process.ended() {
            Ok(None) => ready().then_some(Ok(())),
            Ok(Some(status)) => Some(Err(anyhow!("{name} ended with {status}"))),
            Err(error) => Some(Err(error.into())),
        })
        .flatten()
        .with_context(|| format!("{name} does not start; the end of its log:\n{}", log_tail(&log)))?;
        Ok(Self { name, process })
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Resident memory in bytes.
    pub(super) fn rss(&self) -> Result<u64> {
        self.process.rss()
    }
}
