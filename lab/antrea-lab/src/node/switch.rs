//! The Node's Open vSwitch, which the agent configures.
//!
//! As in `deploy/image/antrea-ovs`, the switch does not follow the kernel's routes: after each change of one it would read all
//! of them again, and lose tunnel packets meanwhile. With the kernel's datapath, tunnels are the kernel's.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testkit::process::run;
use testkit::wait::scaled;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::time::Instant;
use types::network::Datapath;

use super::daemon::{self, Backoff, Program};
use crate::plan::Node;

const DATABASE: &str = "/etc/openvswitch/conf.db";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const SOCKET: &str = "/run/openvswitch/db.sock";
/// Starting takes less than a second on an idle machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts both daemons, and restarts them when they end. Returns when the switch is usable.
pub(crate) async fn start(node: &Node, datapath: Datapath, logs: &Path) -> Result<()> {
    let program = |name: &'static str, arguments: &[&str]| {
        let log_file = format!("--log-file={}", logs.join(format!("{name}.log")).display());
        let common = ["--pidfile", &log_file, "-vconsole:off", "-vsyslog:off"];
        Program {
            name: name.into(),
            arguments: arguments.iter().chain(&common).map(ToString::to_string).collect(),
            environment: Vec::new(),
            log: logs.join(format!("{name}.out")),
        }
    };
    run(std::process::Command::new("ovsdb-tool").args(["create", DATABASE, SCHEMA]), None)?;
    let server = program("ovsdb-server", &[DATABASE, &format!("--remote=punix:{SOCKET}")]);
    let mut child = server.start()?;
    until_it_answers(&server, &mut child).await?;
    tokio::spawn(daemon::supervise(server, child));

    vsctl(&["--no-wait", "init", "--", "set", "Open_vSwitch", ".", &format!("external_ids:hostname={}", node.name)])?;
    let remote = format!("unix:{SOCKET}");
    let vswitchd = match datapath {
        Datapath::Netdev => program("ovs-vswitchd", &["--disable-system", "--disable-system-route", &remote]),
        Datapath::System | Datapath::Windows => without_outage(program("ovs-vswitchd", &[&remote])),
    };
    let child = vswitchd.start()?;
    vsctl(&["set", "Open_vSwitch", ".", "external_ids:lab=up"]).with_context(|| vswitchd.log_tail())?;
    tokio::spawn(daemon::supervise(vswitchd, child));
    Ok(())
}

/// As production starts ovs-vswitchd: it keeps the kernel's flows until antrea-agent has installed its own.
fn without_outage(vswitchd: Program) -> Program {
    let wait = "ovs-vsctl --no-wait set Open_vSwitch . other_config:flow-restore-wait=true";
    let script = format!("{wait}; exec {} {}", vswitchd.name.display(), vswitchd.arguments.join(" "));
    Program { name: "sh".into(), arguments: vec!["-c".to_owned(), script], ..vswitchd }
}

async fn until_it_answers(server: &Program, child: &mut Child) -> Result<()> {
    let (deadline, mut backoff) = (Instant::now() + scaled(START_TIMEOUT), Backoff::default());
    while UnixStream::connect(SOCKET).await.is_err() {
        if let Some(status) = child.try_wait()? {
            bail!("{} ended with {status}: {}", server.name.display(), server.log_tail());
        }
        if Instant::now() > deadline {
            bail!("{} does not answer at {SOCKET}: {}", server.name.display(), server.log_tail());
        }
        tokio::time::sleep_until(Instant::now() + backoff.next().min(Duration::from_millis(20))).await;
    }
    Ok(())
}

fn vsctl(arguments: &[&str]) -> Result<String> {
    run(
        std::process::Command::new("ovs-vsctl")
            .arg(format!("--timeout={}", scaled(START_TIMEOUT).as_secs()))
            .args(arguments),
        None,
    )
}
