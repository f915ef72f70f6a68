//! A private ovsdb-server and ovs-vswitchd.

mod daemon;
mod datapath;
mod idle;
mod pcap;
mod ports;
mod rpc;
mod tap;
mod tools;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result};

use crate::netns::Netns;
use crate::process::run;
use crate::scratch::Scratch;
use daemon::Daemon;
pub use datapath::{Datapath, VARIABLE, in_kernel};
use tap::Tap;

/// A running Open vSwitch of its own. Dropping it ends the daemons and removes the directory.
///
/// All methods take `&self`, so one sandbox can be shared by the tests of a binary in a `OnceLock` or `LazyLock`.
#[derive(Debug)]
pub struct Ovs {
    // Fields are dropped in this order: first the daemons, then their files.
    vswitchd: Daemon,
    ovsdb: Daemon,
    home: Home,
    /// Ports of the kernel datapath that take the place of dummy ports.
    taps: Mutex<BTreeMap<String, Tap>>,
}

/// Where the daemons and the tools of one sandbox live.
#[derive(Debug)]
struct Home {
    dir: Scratch,
    datapath: Datapath,
    /// Only the dummy datapath needs none.
    netns: Option<Netns>,
}

impl Home {
    /// A command in the sandbox's namespace, with the sandbox's directories.
    fn command(&self, program: &str) -> Command {
        let mut command = self.netns.as_ref().map_or_else(|| Command::new(program), |netns| netns.command(program));
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, self.dir.path());
        }
        command
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Ovs {
    /// Starts both daemons on the dummy datapath, with an empty database, and returns when they answer.
    ///
    /// With the kernel's datapath ([`in_kernel`]) they get a namespace, and taps instead of dummy ports.
    pub fn start() -> Result<Self> {
        if !in_kernel() {
            return Self::start_at(Home { dir: Scratch::new()?, datapath: Datapath::Dummy, netns: None });
        }
        let netns = Netns::new()?;
        // What the kernel sends by itself would be taken for output of the switch.
        netns.sysctls(&[("net.ipv6.conf.default.disable_ipv6", "1")])?;
        Self::start_in(&netns)
    }

    /// Starts both daemons inside `netns`, with the userspace datapath or the kernel's ([`in_kernel`]): real ports, real
    /// connection tracking.
    pub fn start_in(netns: &Netns) -> Result<Self> {
        let datapath = if in_kernel() { Datapath::Kernel } else { Datapath::Userspace };
        Self::start_at(Home { dir: Scratch::new()?, datapath, netns: Some(netns.clone()) })
    }

    fn start_at(home: Home) -> Result<Self> {
        run(home.command("ovsdb-tool").arg("create"), None)?;
        let ovs = Self {
            vswitchd: Daemon::new("ovs-vswitchd"),
            ovsdb: Daemon::new("ovsdb-server"),
            home,
            taps: Mutex::default(),
        };
        ovs.start_ovsdb()?;
        ovs.start_vswitchd()?;
        Ok(ovs)
    }

    /// The directory of the sandbox: sockets, logs, database, captures.
    pub fn dir(&self) -> &Path {
        self.home.dir.path()
    }

    /// The datapath of the bridges.
    pub fn datapath(&self) -> Datapath {
        self.home.datapath
    }

    /// The namespace of the daemons, unless they run on the dummy datapath.
    pub fn netns(&self) -> Option<&Netns> {
        self.home.netns.as_ref()
    }

    /// The unix socket where ovsdb-server listens.
    pub fn db_socket(&self) -> PathBuf {
        self.home.file("db.sock")
    }

    /// The unix socket where ovs-vswitchd listens for OpenFlow connections to `bridge`.
    pub fn mgmt_socket(&self, bridge: &str) -> PathBuf {
        self.home.file(&format!("{bridge}.mgmt"))
    }

    /// The control socket of the running ovs-vswitchd, as `ovs-appctl -t` takes it.
    pub fn vswitchd_ctl(&self) -> Result<PathBuf> {
        self.vswitchd.ctl(&self.home)
    }

    /// The process id of the running ovs-vswitchd.
    pub fn vswitchd_pid(&self) -> Result<u32> {
        self.vswitchd.pid()
    }

    /// The process id of the running ovsdb-server.
    pub fn ovsdb_pid(&self) -> Result<u32> {
        self.ovsdb.pid()
    }

    /// Resident memory of ovs-vswitchd, in bytes.
    pub fn vswitchd_rss(&self) -> Result<u64> {
        self.vswitchd.rss()
    }

    /// Starts ovs-vswitchd again on the same database; returns when all that is in the database is set up.
    pub fn start_vswitchd(&self) -> Result<()> {
        let mut command = self.home.command("ovs-vswitchd");
        command.args(self.datapath().options()).arg(format!("unix:{}", self.db_socket().display()));
        self.vswitchd.start(&self.home, command)?;
        // ovs-vsctl returns when ovs-vswitchd has applied a configuration that is at least as new as this change.
        let started = format!("external_ids:testkit-vswitchd={}", self.vswitchd_pid()?);
        self.vsctl(["set", "Open_vSwitch", ".", &started])
            .with_context(|| format!("ovs-vswitchd does not set itself up\n{}", self.vswitchd.story(&self.home)))
            .map(drop)
    }

    /// Starts ovsdb-server again on the same database file; returns when it answers.
    pub fn start_ovsdb(&self) -> Result<()> {
        let socket = self.db_socket();
        let mut command = self.home.command("ovsdb-server");
        command.arg(self.home.file("conf.db")).arg(format!("--remote=punix:{}", socket.display()));
        self.ovsdb.start(&self.home, command)?;
        rpc::call(&socket, "list_dbs", &[]).map(drop)
    }

    /// Kills ovs-vswitchd as a crash would (SIGKILL).
    pub fn kill_vswitchd(&self) -> Result<()> {
        self.vswitchd.kill()
    }

    /// Kills ovsdb-server as a crash would (SIGKILL).
    pub fn kill_ovsdb(&self) -> Result<()> {
        self.ovsdb.kill()
    }

    /// The last lines that both daemons have logged.
    pub fn log_tail(&self) -> String {
        [&self.ovsdb, &self.vswitchd].map(|daemon| daemon.story(&self.home)).join("\n")
    }
}

#[cfg(test)]
mod tests;
