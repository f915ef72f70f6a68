//! The Node's Open vSwitch, and what its userspace datapath needs to terminate tunnels at the Node's address.
//!
//! The Node's address is on the kernel's `eth0`, as on any machine. `eth0` is also a port of the bridge `br-phy`, which passes
//! tunnel packets between the wire and the switch's tunnel ports. The kernel, which receives every packet as well, drops them
//! with nftables. A restarted ovs-vswitchd has no flows, so they are installed again.
//!
//! With the kernel's datapath none of this is needed: tunnel packets arrive at sockets of the kernel.
//!
//! The switch gets static routes, not those of the kernel: after each change of a kernel route it would read all of them
//! again, and lose tunnel packets meanwhile.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testkit::process::run;
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::Instant;
use types::network::Datapath;

use super::daemon::{self, Backoff, Program};
use crate::plan::{self, Node, Plan};

const DATABASE: &str = "/etc/openvswitch/conf.db";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const SOCKET: &str = "/run/openvswitch/db.sock";
/// Starting takes less than a second on an idle machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts both daemons, and restarts them when they end. Returns when the switch is usable.
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
    tokio::spawn(daemon::supervise(server, child, async || Ok(())));

    vsctl(&["--no-wait", "init", "--", "set", "Open_vSwitch", ".", &format!("external_ids:hostname={}", node.name)])?;
    let remote = format!("unix:{SOCKET}");
    let vswitchd = match plans.borrow().datapath {
        Datapath::Netdev => program("ovs-vswitchd", &["--disable-system", "--disable-system-route", &remote]),
        Datapath::System | Datapath::Windows => without_outage(program("ovs-vswitchd", &[&remote])),
    };
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
        // Runs programs that wait for the switch.
        tokio::task::spawn_blocking(move || set_up_tunnels(&plan, &node)).await?
    };
    started().await?;
    tokio::spawn(daemon::supervise(vswitchd, child, started));
    Ok(())
}

/// As production starts ovs-vswitchd: it keeps the kernel's flows until antrea-agent has installed its own.
fn without_outage(vswitchd: Program) -> Program {
    let wait = "ovs-vsctl --no-wait set Open_vSwitch . other_config:flow-restore-wait=true";
    let script = format!("{wait}; exec {} {}", vswitchd.name.display(), vswitchd.arguments.join(" "));
    Program { name: "sh".into(), arguments: vec!["-c".to_owned(), script], ..vswitchd }
}

async fn until_it_answers(server: &Program, child: &mut Child) -> Result<()> {
    let (deadline, mut backoff) = (Instant::now() + START_TIMEOUT, Backoff::default());
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
    run(std::process::Command::new("ovs-vsctl").arg("--timeout=30").args(arguments), None)
}

/// Drops tunnel packets in the kernel, which would answer them with "port unreachable".
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
    // The switch terminates tunnels only on a bridge that has an address.
    let lines = "addr replace 169.254.1.1/32 dev br-phy\nlink set br-phy up";
    run(std::process::Command::new("ip").args(["-batch", "-"]), Some(lines)).map(drop)
}

/// Installs flows, routes and neighbors, which ovs-vswitchd loses when it restarts.
fn set_up_tunnels(plan: &Plan, node: &Node) -> Result<()> {
    // Waits until the bridge exists.
    vsctl(&["set", "bridge", "br-phy", "external_ids:lab=up"])?;
    run(
        std::process::Command::new("ovs-ofctl").args(["--timeout=30", "add-flows", "br-phy", "-"]),
        Some(&flows(node)),
    )?;
    let router = node.segment.router().0.to_string();
    appctl(&["ovs/route/add", &format!("{}/24", node.segment.ipv4(0)), "eth0"])?;
    appctl(&["ovs/route/add", "0.0.0.0/0", "eth0", &router])?;
    add_neighbors(plan, node)
}

/// Adds static neighbor entries: without them, the first packets of a tunnel are lost while the switch resolves the address.
pub(super) fn add_neighbors(plan: &Plan, node: &Node) -> Result<()> {
    let near = plan.near(node).map(|peer| peer.ipv4);
    for address in near.chain([node.segment.router().0]) {
        appctl(&["tnl/neigh/set", "br-phy", &address.to_string(), &plan::mac(address)])?;
    }
    Ok(())
}

fn appctl(arguments: &[&str]) -> Result<String> {
    run(std::process::Command::new("ovs-appctl").arg("--timeout=30").args(arguments), None)
}

/// Flows of `br-phy`, as text for ovs-ofctl.
fn flows(node: &Node) -> String {
    let me = node.ipv4;
    let mut flows = String::new();
    for flow in [
        // Encapsulated packets of the switch enter this bridge with in_port eth0: send them to the wire.
        format!("priority=100,ip,nw_src={me},actions=IN_PORT"),
        format!("priority=90,arp,arp_spa={me},actions=IN_PORT"),
        // ARP replies to the switch, and tunnel packets: Geneve, VXLAN, GRE.
        format!("priority=90,in_port=1,arp,arp_op=2,arp_tpa={me},actions=LOCAL"),
        format!("priority=90,in_port=1,udp,nw_dst={me},tp_dst=6081,actions=LOCAL"),
        format!("priority=90,in_port=1,udp,nw_dst={me},tp_dst=4789,actions=LOCAL"),
        format!("priority=90,in_port=1,ip,nw_proto=47,nw_dst={me},actions=LOCAL"),
        // The kernel handles all other packets.
        "priority=0,actions=drop".to_owned(),
    ] {
        let _ = writeln!(flows, "{flow}");
    }
    flows
}
