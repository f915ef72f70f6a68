//! Daemons of a Node: restarted when they end, as systemd does.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use testkit::process::{kill_with_parent, log_tail};
use tokio::process::{Child, Command};

use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A program that has run for longer starts with the first pause again.
const LONG_ENOUGH: Duration = Duration::from_secs(30);

/// A program with its arguments and log file.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) log: PathBuf,
}

impl Program {
    /// Starts the program; its output is appended to the log.
    pub(crate) fn start(&self) -> Result<Child> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("cannot write {}", self.log.display()))?;
        let mut command = std::process::Command::new(&self.name);
        command.args(&self.arguments).envs(self.environment.iter().cloned()).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        kill_with_parent(&mut command);
        Command::from(command).spawn().with_context(|| format!("cannot start {}", self.name.display()))
    }

    /// The last lines of its log, for an error message.
    pub(crate) fn log_tail(&self) -> String {
        log_tail(&self.log)
    }
}

/// Restarts a program whenever it ends.
pub(crate) async fn supervise(program: Program, mut child: Child) {
    let mut backoff = Backoff::default();
    loop {
        let since = Instant::now();
        let ended = child.wait().await;
        // A program that was killed from outside can be restarted without backoff.
        let killed = ended.as_ref().is_ok_and(|status| status.signal() == Some(Signal::SIGKILL as i32));
        report(&program, ended);
        if killed || since.elapsed() > LONG_ENOUGH {
            backoff = Backoff::default();
        }
        child = loop {
            tokio::time::sleep_until(Instant::now() + backoff.next()).await;
            match program.start() {
                Ok(child) => break child,
                Err(error) => tracing::error!("{error:#}"),
            }
        };
    }
}

fn report(program: &Program, ended: std::io::Result<ExitStatus>) {
    match ended {
        Ok(status) => tracing::warn!("{} ended ({status}), restarting", program.name.display()),
        Err(error) => tracing::error!("cannot wait for {}: {error}", program.name.display()),
    }
}

/// Exponential backoff: each pause is twice as long as the previous one, up to a maximum.
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Backoff {
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}
