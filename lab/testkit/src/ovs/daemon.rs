//! One daemon of Open vSwitch: start, wait for its control socket, kill, start again.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, anyhow, ensure};

use super::{Home, rpc};
use crate::process::Process;
use crate::wait::{TIMEOUT, until};

/// How much of a log goes into an error message.
const TAIL_LINES: usize = 20;

#[derive(Debug)]
pub(super) struct Daemon {
    program: &'static str,
    process: Mutex<Option<Process>>,
}

impl Daemon {
    pub(super) fn new(program: &'static str) -> Self {
        Self { program, process: Mutex::new(None) }
    }

    /// Starts the daemon in the foreground, and returns when its control socket answers.
    pub(super) fn start(&self, home: &Home, mut command: Command) -> Result<()> {
        let mut slot = self.slot();
        ensure!(slot.is_none(), "{} runs already", self.program);
        self.remove_stale(home).with_context(|| format!("what the last {} has left", self.program))?;
        let output = File::create(home.file(&self.output()))?;
        command.args(["--pidfile", "--log-file", "-vconsole:off", "-vsyslog:off"]);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut process = Process::spawn(command)?;
        let ctl = self.ctl_of(home, process.pid());
        until(format_args!("an answer of {}", self.program), TIMEOUT, || match process.ended() {
            Ok(None) => rpc::call(&ctl, "version", &[]).ok().map(|_| Ok(())),
            Ok(Some(status)) => Some(Err(anyhow!("{} ended with {status}", self.program))),
            Err(error) => Some(Err(error.into())),
        })
        .flatten()
        .with_context(|| format!("{} does not start\n{}", self.program, self.story(home)))?;
        *slot = Some(process);
        Ok(())
    }

    pub(super) fn kill(&self) -> Result<()> {
        let mut process = self.slot().take().with_context(|| format!("{} does not run", self.program))?;
        process.kill().with_context(|| format!("cannot kill {}", self.program))
    }

    pub(super) fn pid(&self) -> Result<u32> {
        self.slot().as_ref().map(Process::pid).with_context(|| format!("{} does not run", self.program))
    }

    pub(super) fn ctl(&self, home: &Home) -> Result<PathBuf> {
        Ok(self.ctl_of(home, self.pid()?))
    }

    /// Resident memory in bytes.
    pub(super) fn rss(&self) -> Result<u64> {
        self.slot().as_ref().with_context(|| format!("{} does not run", self.program))?.rss()
    }

    /// The last lines of the daemon's log, for an error message.
    pub(super) fn story(&self, home: &Home) -> String {
        let mut story = String::new();
        for name in [self.output(), format!("{}.log", self.program)] {
            let text = fs::read(home.file(&name)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<_> = text.lines().collect();
            if !lines.is_empty() {
                let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
                story += &format!("--- end of {name}\n{}\n", tail.join("\n"));
            }
        }
        story
    }

    fn slot(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A killed daemon leaves its pidfile and its control socket; the tools would find a daemon that does not run.
    fn remove_stale(&self, home: &Home) -> Result<()> {
        let pidfile = home.file(&format!("{}.pid", self.program));
        if let Ok(pid) = fs::read_to_string(&pidfile) {
            let _ = fs::remove_file(self.ctl_of(home, pid.trim().parse()?));
            fs::remove_file(pidfile)?;
        }
        Ok(())
    }

    fn ctl_of(&self, home: &Home, pid: u32) -> PathBuf {
        home.file(&format!("{}.{pid}.ctl", self.program))
    }

    /// The file for the daemon's output before it opens its log.
    fn output(&self) -> String {
        format!("{}.out", self.program)
    }
}
