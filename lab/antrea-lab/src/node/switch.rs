//! The Node's Open vSwitch, and what its userspace datapath needs to end tunnels at the Node's address.
//!
//! The Node's address stays on the kernel's `eth0`, as on any machine. `eth0` is a port of the bridge `br-phy` too, which
//! does one thing: it hands packets of tunnels from the wire to the switch's tunnel ports and back. The kernel, which sees
//! every packet as well, is told to drop those. All flows are gone when ovs-vswitchd restarts, so they are put back then.
//!
//! The switch gets its few routes from us, not from the kernel: at each change of any kernel route it would forget and
//! reread all of them, and lose the packets of tunnels that it looks up in between.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testkit::process::run;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::Instant;

use super::daemon::{self, Pauses, Program};
use crate::plan::{self, Node, Plan};

const DATABASE: &str = "/etc/openvswitch/conf.db";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const SOCKET: &str = "/run/openvswitch/db.sock";
/// Starting takes less than a second, when nobody else needs the processor.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts both daemons and keeps them running; returns when the switch can be used.
pub(crate) async fn start(plans: &watch::Receiver<Plan>, node: &Node, logs: &Path) -> Result<()> {
    let program = |name: &'static str, arguments: &[&str]| Program {
        name: name.into(),
        arguments: arguments
            .iter()
            .chain(&["--pidfile", "--log-file", "-vconsole:off", "-vsyslog:off"])
            .map(ToString::to_string)
            .collect(),
        environment: Vec::new(),
        log: logs.join(format!("{name}.out")),
    };
    run(std::process::Command::new("ovsdb-tool").args(["create", DATABASE, SCHEMA]), None)?;
    let server = program("ovsdb-server", &[DATABASE, &format!("--remote=punix:{SOCKET}")]);
    let mut child = server.start()?;
    until_it_answers(&server, &mut child).await?;
    tokio::spawn(daemon::keep(server, child, async || Ok(())));

    vsctl(&["--no-wait", "init", "--", "set", "Open_vSwitch", ".", &format!("external_ids:hostname={}", node.name)])?;
    let vswitchd = program("ovs-vswitchd", &["--disable-system", "--disable-system-route", &format!("unix:{SOCKET}")]);
    let child = vswitchd.start()?;
    vsctl(&["set", "Open_vSwitch", ".", "external_ids:lab=up"]).with_context(|| vswitchd.log_tail())?;
    let tunnels = plans.borrow().tunnels();
    if tunnels {
        hide_tunnels_from_kernel()?;
        add_bridge()?;
    }
    let (plans, node) = (plans.clone(), node.clone());
    let started = async move || {
        if !tunnels {
            return Ok(());
        }
        let (plan, node) = (plans.borrow().clone(), node.clone());
        // These are programs that wait for the switch.
        tokio::task::spawn_blocking(move || end_tunnels(&plan, &node)).await?
    };
    started().await?;
    tokio::spawn(daemon::keep(vswitchd, child, started));
    Ok(())
}

async fn until_it_answers(server: &Program, child: &mut Child) -> Result<()> {
    let (deadline, mut pauses) = (Instant::now() + PATIENCE, Pauses::default());
    while UnixStream::connect(SOCKET).await.is_err() {
        if let Some(status) = child.try_wait()? {
            bail!("{} ended with {status}: {}", server.name.display(), server.log_tail());
        }
        if Instant::now() > deadline {
            bail!("{} does not answer at {SOCKET}: {}", server.name.display(), server.log_tail());
        }
        tokio::time::sleep_until(Instant::now() + pauses.next().min(Duration::from_millis(20))).await;
    }
    Ok(())
}

fn vsctl(arguments: &[&str]) -> Result<String> {
    run(std::process::Command::new("ovs-vsctl").arg("--timeout=30").args(arguments), None)
}

/// The kernel would answer packets of tunnels with "port unreachable".
fn hide_tunnels_from_kernel() -> Result<()> {
    let rules = "table netdev lab {
        chain eth0 {
            type filter hook ingress device \"eth0\" priority -500; policy accept;
            udp dport { 4789, 6081 } drop
            ip protocol gre drop
        }
    }";
    run(std::process::Command::new("nft").args(["-f", "-"]), Some(rules)).map(drop)
}

fn add_bridge() -> Result<()> {
    let add = "add-br br-phy -- set bridge br-phy datapath_type=netdev fail_mode=secure";
    let port = "-- add-port br-phy eth0 -- set interface eth0 ofport_request=1";
    let arguments: Vec<&str> = add.split(' ').chain(port.split(' ')).collect();
    vsctl(&arguments)?;
    // The switch ends tunnels only on a bridge that has some address.
    let lines = "addr replace 169.254.1.1/32 dev br-phy\nlink set br-phy up";
    run(std::process::Command::new("ip").args(["-batch", "-"]), Some(lines)).map(drop)
}

/// Everything that is gone when ovs-vswitchd restarts.
fn end_tunnels(plan: &Plan, node: &Node) -> Result<()> {
    // It waits until the bridge is there.
    vsctl(&["set", "bridge", "br-phy", "external_ids:lab=up"])?;
    run(
        std::process::Command::new("ovs-ofctl").args(["--timeout=30", "add-flows", "br-phy", "-"]),
        Some(&flows(node)),
    )?;
    let router = node.segment.router().0.to_string();
    appctl(&["ovs/route/add", &format!("{}/24", node.segment.ipv4(0)), "eth0"])?;
    appctl(&["ovs/route/add", "0.0.0.0/0", "eth0", &router])?;
    meet(plan, node)
}

/// Tells the switch who is reached on the wire: else the first packets of a tunnel would be lost while it asks.
pub(super) fn meet(plan: &Plan, node: &Node) -> Result<()> {
    let near = plan.near(node).map(|peer| peer.ipv4);
    for address in near.chain([node.segment.router().0]) {
        appctl(&["tnl/neigh/set", "br-phy", &address.to_string(), &plan::mac(address)])?;
    }
    Ok(())
}

fn appctl(arguments: &[&str]) -> Result<String> {
    run(std::process::Command::new("ovs-appctl").arg("--timeout=30").args(arguments), None)
}

/// What `br-phy` does, as text for ovs-ofctl.
fn flows(node: &Node) -> String {
    let me = node.ipv4;
    let mut flows = String::new();
    for flow in [
        // What the switch has encapsulated enters this bridge as if it came from eth0: back to the wire.
        format!("priority=100,ip,nw_src={me},actions=IN_PORT"),
        format!("priority=90,arp,arp_spa={me},actions=IN_PORT"),
        // Answers to the switch's own requests, and what is in tunnels: Geneve, VXLAN, GRE.
        format!("priority=90,in_port=1,arp,arp_op=2,arp_tpa={me},actions=LOCAL"),
        format!("priority=90,in_port=1,udp,nw_dst={me},tp_dst=6081,actions=LOCAL"),
        format!("priority=90,in_port=1,udp,nw_dst={me},tp_dst=4789,actions=LOCAL"),
        format!("priority=90,in_port=1,ip,nw_proto=47,nw_dst={me},actions=LOCAL"),
        // The kernel does the rest.
        "priority=0,actions=drop".to_owned(),
    ] {
        let _ = writeln!(flows, "{flow}");
    }
    flows
}
