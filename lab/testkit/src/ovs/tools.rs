//! The command-line tools of Open vSwitch, run against one sandbox.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::Result;

use super::{Ovs, rpc};
use crate::process::run;
use crate::wait::{TIMEOUT, until};

/// Seconds after which a tool gives up, so that no test hangs.
const TIMEOUT_FLAG: &str = "--timeout=30";

impl Ovs {
    /// Runs `ovs-vsctl` and returns what it prints; waits until ovs-vswitchd has applied the change.
    pub fn vsctl<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        let db = format!("--db=unix:{}", self.db_socket().display());
        run(self.command("ovs-vsctl").args([TIMEOUT_FLAG, &db]).args(args), None)
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
        run(self.command("ovs-appctl").arg(TIMEOUT_FLAG).arg("-t").arg(ctl).args(args), None)
    }

    /// What `ovs-appctl` does, without starting a process for it.
    pub fn control(&self, command: &str, args: &[&str]) -> Result<String> {
        let answer = rpc::call(&self.vswitchd_ctl()?, command, args)?;
        Ok(answer.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the last change of flows applies to all packets, by purging the flows of the datapath, which are updated
    /// with a delay otherwise. A purge skips flows that are in use at the moment, so one may not be enough.
    pub fn settle(&self) -> Result<()> {
        until("a datapath without flows", TIMEOUT, || {
            let settled = self.control("revalidator/purge", &[]).and_then(|_| self.control("dpctl/dump-flows", &[]));
            settled.map(|flows| (!flows.contains("actions:")).then_some(())).transpose()
        })?
    }

    /// Any other program with the environment of this sandbox, to be run by the caller.
    pub fn command(&self, program: &str) -> Command {
        self.home.command(program)
    }

    fn ofctl_command(&self) -> Command {
        let mut command = self.command("ovs-ofctl");
        command.args(["-O", "OpenFlow15", TIMEOUT_FLAG]);
        command
    }
}
