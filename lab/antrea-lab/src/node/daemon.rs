//! Programs that are to run for as long as the Node does: started again when they end, as systemd would.

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
/// Who has run for that long starts with the first pause again.
const LONG_ENOUGH: Duration = Duration::from_secs(30);

/// How to start a program, and where it writes to.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) log: PathBuf,
}

impl Program {
    /// Starts it; what it prints is appended to its log.
    pub(crate) fn start(&self) -> Result<Child> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("cannot write {}", self.log.display()))?;
        let mut command = std::process::Command::new(&self.name);
        command.args(&self.arguments).envs(self.environment.iter().cloned()).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        kill_with_parent(&mut command);
        Command::from(command).spawn().with_context(|| format!("cannot start {}", self.name.display()))
    }

    /// The end of its log, for an error message.
    pub(crate) fn log_tail(&self) -> String {
        log_tail(&self.log)
    }
}

/// Waits for the end of a program and starts it again, for ever. `started` runs after each start; when it fails, it is run
/// again until it succeeds or the program ends.
pub(crate) async fn keep(program: Program, mut child: Child, started: impl AsyncFn() -> Result<()>) {
    let mut pauses = Pauses::default();
    loop {
        let since = Instant::now();
        let ended = child.wait().await;
        // Whom somebody has killed is not to blame, and will not fail the sooner for being started at once.
        let killed = ended.as_ref().is_ok_and(|status| status.signal() == Some(Signal::SIGKILL as i32));
        report(&program, ended);
        if killed || since.elapsed() > LONG_ENOUGH {
            pauses = Pauses::default();
        }
        child = loop {
            tokio::time::sleep_until(Instant::now() + pauses.next()).await;
            match program.start() {
                Ok(child) => break child,
                Err(error) => tracing::error!("{error:#}"),
            }
        };
        let settle = async {
            let mut pauses = Pauses::default();
            while let Err(error) = started().await {
                tracing::warn!("after the start of {}: {error:#}", program.name.display());
                tokio::time::sleep_until(Instant::now() + pauses.next()).await;
            }
        };
        tokio::select! {
            () = settle => {}
            _ = child.wait() => {}
        }
    }
}

fn report(program: &Program, ended: std::io::Result<ExitStatus>) {
    match ended {
        Ok(status) => tracing::warn!("{} ended ({status}) and is started again", program.name.display()),
        Err(error) => tracing::error!("{} can't be waited for: {error}", program.name.display()),
    }
}

/// Pauses between attempts: each twice as long as the one before, up to a longest.
#[derive(Debug)]
pub(crate) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Pauses {
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}
