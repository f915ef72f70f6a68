//! The command-line tools of Open vSwitch, run against one sandbox.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use super::Ovs;
use crate::process::describe;

/// Seconds after which a tool gives up, so that no test hangs.
const TIMEOUT: &str = "--timeout=30";

impl Ovs {
    /// Runs `ovs-vsctl` and returns what it prints; waits until ovs-vswitchd has carried out the change.
    pub fn vsctl<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        let db = format!("--db=unix:{}", self.db_socket().display());
        run(self.command("ovs-vsctl").args([TIMEOUT, &db]).args(args), None)
    }

    /// Runs `ovs-ofctl -O OpenFlow15` and returns what it prints. Bridges are given by name.
    pub fn ofctl<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        run(self.ofctl_command().args(args), None)
    }

    /// As [`Ovs::ofctl`], with `input` to read: `ofctl_stdin(["add-flows", "br0", "-"], flows)`.
    pub fn ofctl_stdin<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, input: &str) -> Result<String> {
        run(self.ofctl_command().args(args), Some(input))
    }

    /// Runs `ovs-appctl` against ovs-vswitchd and returns what it prints.
    pub fn appctl<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        let ctl = self.vswitchd_ctl()?;
        run(self.command("ovs-appctl").arg(TIMEOUT).arg("-t").arg(ctl).args(args), None)
    }

    /// Any other program with the environment of this sandbox, to be run by the caller.
    pub fn command(&self, program: &str) -> Command {
        self.home.command(program)
    }

    fn ofctl_command(&self) -> Command {
        let mut command = self.command("ovs-ofctl");
        command.args(["-O", "OpenFlow15", TIMEOUT]);
        command
    }
}

/// Runs a command to its end. Success gives its standard output; failure an error with the command and what it said.
pub(crate) fn run(command: &mut Command, input: Option<&str>) -> Result<String> {
    let what = describe(command);
    let output = output(command, input).with_context(|| format!("cannot run `{what}`"))?;
    if !output.status.success() {
        let said = [output.stderr, output.stdout].concat();
        bail!("`{what}` failed ({}): {}", output.status, String::from_utf8_lossy(&said).trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of `{what}`"))
}

fn output(command: &mut Command, input: Option<&str>) -> Result<Output> {
    let Some(input) = input else { return Ok(command.stdin(Stdio::null()).output()?) };
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pipe = child.stdin.take();
    thread::scope(|scope| {
        // A tool that fails stops reading; its message says more than the broken pipe.
        scope.spawn(|| pipe.map(|mut pipe| pipe.write_all(input.as_bytes())));
        Ok(child.wait_with_output()?)
    })
}
