//! `up`: starts a lab.

mod planning;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use types::network::{Datapath, Mode, Tunnel};

use super::{call, say};
use crate::cli::LabName;
use crate::plan::{self, Kubelet, Kubernetes, MAX_CONTROLLERS, MAX_NODES, Network, Plan, Services};
use crate::program::current_exe;
use crate::progress::Progress;
use crate::state::Home;

/// Options of a new lab.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    lab: LabName,
    /// Number of Nodes in the lab
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_NODES)))]
    nodes: u16,
    /// How packets between Pods on different Nodes are sent
    #[arg(long, value_parser = choice(MODES), default_value = "encap")]
    mode: Mode,
    /// Tunnel protocol between Nodes
    #[arg(long, value_parser = choice(TUNNELS), default_value = "geneve")]
    tunnel: Tunnel,
    /// Datapath of the Nodes' switches; by default `userspace`, or `kernel` if OVS_DATAPATH is `system`
    #[arg(long, value_parser = choice(DATAPATHS))]
    datapath: Option<Datapath>,
    /// Implementation of the Kubernetes API
    #[arg(long, value_enum, default_value = "embedded")]
    kubernetes: Kubernetes,
    /// Implementation of the kubelet; `real` needs `--kubernetes real`
    #[arg(long, value_enum, default_value = "lab")]
    kubelet: Kubelet,
    /// Image archives for containerd, with `--kubelet real`; by default those that `make image` writes
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
    /// Directory of antrea-agent, antrea-cni and antrea-controller; by default that of this program
    #[arg(long, value_name = "DIRECTORY")]
    programs: Option<PathBuf>,
    /// Network plugin of the Pods; by default `antrea` if its programs are there, else `bridge`
    #[arg(long, value_enum)]
    network: Option<Network>,
    /// Implementation of Services: antrea-agent, kube-proxy, or both
    #[arg(long, value_enum, default_value = "antrea")]
    services: Services,
    /// Number of antrea-controller replicas; by default 1 if the program is there, else 0
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=i64::from(MAX_CONTROLLERS)))]
    controllers: Option<u16>,
    /// Record the events of the agents, for `antctl replay`
    #[arg(long)]
    record: bool,
    /// Return when the lab is up, and leave it running
    #[arg(long)]
    detach: bool,
}

/// A value of an option, by its name, with its help.
type Choice<T> = (&'static str, &'static str, T);

/// The modes in which Nodes of a lab work, with their names on the command line.
const MODES: &[Choice<Mode>] = &[
    ("encap", "Through a tunnel between the Nodes", Mode::Encap),
    ("noencap", "Without a tunnel; the router has routes to the Pod CIDRs", Mode::NoEncap),
    ("hybrid", "Without a tunnel within a subnet, through a tunnel between subnets", Mode::Hybrid),
];

/// The datapaths, with their names on the command line.
const DATAPATHS: &[Choice<Datapath>] = &[
    ("userspace", "In ovs-vswitchd, on any kernel", Datapath::Netdev),
    ("kernel", "The openvswitch module, as in production", Datapath::System),
];

/// The tunnels of both datapaths.
const TUNNELS: &[Choice<Tunnel>] =
    &[("geneve", "", Tunnel::Geneve), ("vxlan", "", Tunnel::Vxlan), ("gre", "", Tunnel::Gre)];

/// Parses an option with these values: clap cannot derive that for a type of another crate.
fn choice<T: Copy + Send + Sync + 'static>(choices: &'static [Choice<T>]) -> impl TypedValueParser<Value = T> {
    let shown = choices.iter().map(|(name, help, _)| {
        let value = PossibleValue::new(*name);
        if help.is_empty() { value } else { value.help(*help) }
    });
    PossibleValuesParser::new(shown).try_map(|given| {
        let chosen = choices.iter().find(|(name, ..)| *name == given);
        chosen.map(|(_, _, value)| *value).ok_or("not one of the possible values")
    })
}

/// Required programs, and the Debian package of each.
const NEEDED: [(&str, &str); 6] = [
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("ethtool", "ethtool"),
    ("ovs-vswitchd", "openvswitch-switch"),
    ("ovsdb-server", "openvswitch-switch"),
    ("nsenter", "util-linux"),
];

/// Starts a lab, and prints the progress.
pub(crate) async fn run(options: Options) -> Result<ExitCode> {
    let begun = Instant::now();
    if let Some(why) = plan::invalid_name(&options.lab.name) {
        bail!(why);
    }
    check_machine()?;
    let home = Home::of(&options.lab.name);
    make_room(&home, &options.lab.name)?;
    let mut child = start(&options, &planning::plan_of(&options)?)?;
    let stdout = child.stdout.take().context("no standard output")?;
    let mut lines = BufReader::new(stdout).lines();
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut ends = signal(SignalKind::terminate())?;
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line?,
            _ = interrupts.recv() => return end(child, 130).await,
            _ = ends.recv() => return end(child, 143).await,
        };
        match line.as_deref().map(Progress::read) {
            Some(Progress::Step(what)) => say(format!("[{:5.1} s] {what}", begun.elapsed().as_secs_f64())),
            Some(Progress::Ready) => break,
            Some(Progress::Failed(why)) => {
                let _ = child.wait().await;
                bail!(why);
            }
            None => {
                let status = child.wait().await?;
                bail!("the lab has ended with {status}");
            }
        }
    }
    say(format!("[{:5.1} s] the lab `{}` is up", begun.elapsed().as_secs_f64(), options.lab.name));
    hints(&home, &options);
    if options.detach {
        return Ok(ExitCode::SUCCESS);
    }
    say("Ctrl-C ends it.");
    tokio::select! {
        status = child.wait() => match status? {
            status if status.success() => {
                say("the lab was ended by someone else");
                Ok(ExitCode::SUCCESS)
            }
            status => bail!("the lab has crashed ({status}): {} may say why", home.log().display()),
        },
        _ = interrupts.recv() => end(child, 0).await,
        _ = ends.recv() => end(child, 0).await,
    }
}

async fn end(mut child: Child, code: u8) -> Result<ExitCode> {
    if let Some(pid) = child.id() {
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM)?;
    }
    child.wait().await?;
    say("the lab is gone");
    Ok(ExitCode::from(code))
}

fn hints(home: &Home, options: &Options) {
    say(format!("  {}", call("status", &options.lab.name)));
    say(format!("  export KUBECONFIG={}", home.kubeconfig().display()));
    if options.record {
        say(format!("  antctl replay {}", home.recording("node-1").join("events.jsonl").display()));
    }
    if options.detach {
        say(format!("  {}", call("down", &options.lab.name)));
    }
}

fn check_machine() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("a lab creates namespaces and mounts, which requires root: use sudo");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths: Vec<_> = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).collect();
    for (program, package) in NEEDED {
        if !paths.iter().any(|directory| directory.join(program).is_file()) {
            bail!("{program} is missing: `make setup`, or apt-get install {package}");
        }
    }
    if !std::fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("overlay") {
        bail!("the kernel has no overlay file system: modprobe overlay");
    }
    Ok(())
}

/// Removes the leftovers of a crashed lab; fails if the lab is running.
fn make_room(home: &Home, name: &str) -> Result<()> {
    match home.read() {
        Ok(Some(lab)) if lab.is_alive() => {
            bail!("the lab `{name}` is up already: `antrea-lab down --name {name}` ends it");
        }
        _ => {
            if home.remove()? {
                say(format!("removed what is left of a lab `{name}` that has crashed"));
            }
        }
    }
    Ok(())
}

fn start(options: &Options, plan: &Plan) -> Result<Child> {
    let mut command = std::process::Command::new(current_exe()?);
    command.args(["internal", "supervise"]).arg(serde_json::to_string(plan)?);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).current_dir("/");
    let detach = options.detach;
    #[expect(unsafe_code, reason = "between fork and exec; the closure makes two system calls")]
    unsafe {
        command.pre_exec(move || {
            // Ctrl-C is handled here; if this process is killed, the supervisor still has to clean up.
            setsid()?;
            if !detach {
                set_pdeathsig(Signal::SIGTERM)?;
            }
            Ok(())
        });
    }
    Command::from(command).spawn().context("cannot start the lab's process")
}
