//! One daemon of the control plane: start, wait until it is ready, tell its story when it is not.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::process::Process;
use crate::wait::until;

/// How much of a log goes into an error message.
const TAIL_LINES: usize = 20;

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
        patience: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let output = File::create(&log)?;
        command.current_dir(dir).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut process = Process::spawn(command)?;
        until(format_args!("{name} to be ready"), patience, || match process.ended() {
            Ok(None) => ready().then_some(Ok(())),
            Ok(Some(status)) => Some(Err(anyhow!("{name} ended with {status}"))),
            Err(error) => Some(Err(error.into())),
        })
        .flatten()
        .with_context(|| format!("{name} does not start; the end of its log:\n{}", tail(&log)))?;
        Ok(Self { name, process })
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Resident memory in bytes.
    pub(super) fn rss(&self) -> Result<u64> {
        self.process.rss()
    }

    /// Whether a process accepts connections at `address`.
    pub(super) fn listens(address: SocketAddr) -> bool {
        TcpStream::connect(address).is_ok()
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
