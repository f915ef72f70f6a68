//! The agent of a Node: connects Pods, load-balances Services, enforces NetworkPolicies.
//!
//! *Role.* Flags, configuration, and the wiring of the crates that do the work.
//!
//! *Invariants.* An invalid or unsupported configuration is an error at the start. The only environment variables are
//! `NODE_NAME`, `POD_NAMESPACE`, `RUST_LOG` and those of the Kubernetes client. OVSDB has the Pods, the switch their flows: a
//! restarted agent sends nothing if nothing has changed. Pods keep their network while no agent runs.
//!
//! *Not here.* Decisions (crate `node`), and I/O with the kernel, the switch or a server (the rim crates).

mod blocking;
mod cleanup;
mod cni;
mod config;
mod conntrack;
mod control;
mod control_path;
mod database;
mod desired;
mod engine;
mod flow_restore;
mod host_reconciler;
mod install_cni;
mod kernel_module;
mod rest;
mod run;
mod services;
mod sources;
mod startup;
mod takeover;
mod transport;
mod tunnels;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use telemetry::daemon::Daemon;

use cleanup::Cleanup;
use config::Config;
use install_cni::{Change, Installation};

pub(crate) const DAEMON: Daemon = Daemon { name: "antrea-agent", role: "agent" };

#[derive(Parser)]
#[command(
    name = "antrea-agent",
    version,
    about = "The Antrea agent of a Node: Pod networking, Services and NetworkPolicies on Open vSwitch",
    args_conflicts_with_subcommands = true
)]
struct Cli {
    #[command(flatten)]
    run: ConfigFile,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the agent (the default command)
    Run(ConfigFile),
    /// Print the effective configuration as JSON
    Config(ConfigFile),
    /// Install the CNI plugin and its network configuration for the container runtime
    InstallCni(InstallCni),
    /// Remove everything that antrea-rs has left on this Node; refused while an agent runs
    Cleanup(CleanupArgs),
}

#[derive(Args)]
struct ConfigFile {
    /// Configuration file (antrea-agent.conf); defaults apply without it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Args)]
struct InstallCni {
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    cni: CniDirectories,
    /// Path of the program antrea-cni; by default in the directory of this program
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// Load the kernel module openvswitch, if the Node has it
    #[arg(long)]
    load_module: bool,
}

#[derive(Args)]
struct CniDirectories {
    /// Directory with the plugins bandwidth, loopback and portmap that are installed where the Node has none
    #[arg(long, value_name = "DIR")]
    chained: Option<PathBuf>,
    /// CNI plugin directory of the container runtime
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    bin_dir: PathBuf,
    /// CNI configuration directory of the container runtime
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    conf_dir: PathBuf,
}

#[derive(Args)]
struct CleanupArgs {
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    cni: CniDirectories,
    /// Directory of the sockets of agent and antrea-ovs
    #[arg(long, value_name = "DIR", default_value = "/var/run/antrea")]
    run_dir: PathBuf,
    /// Directory of the database of antrea-ovs
    #[arg(long, value_name = "DIR", default_value = "/var/lib/antrea")]
    state_dir: PathBuf,
    /// Only list what would be removed
    #[arg(long)]
    dry_run: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command.unwrap_or(Command::Run(cli.run)) {
        Command::Run(file) => file.load().and_then(|(config, notes)| run::run(&config, &notes)),
        Command::Config(file) => file.load().and_then(|(config, notes)| Ok(DAEMON.print_config(&config, &notes)?)),
        Command::InstallCni(install) => install.run(),
        Command::Cleanup(cleanup) => cleanup.run(),
    };
    DAEMON.exit(outcome)
}

impl ConfigFile {
    fn load(&self) -> anyhow::Result<(Config, Vec<String>)> {
        Ok(Config::load(self.config.as_deref())?)
    }
}

impl InstallCni {
    fn run(self) -> anyhow::Result<()> {
        let (config, _) = self.config.load()?;
        let plugin = match self.plugin {
            Some(plugin) => plugin,
            None => std::env::current_exe()?.with_file_name("antrea-cni"),
        };
        let installation = Installation {
            plugin: &plugin,
            chained: self.cni.chained.as_deref(),
            bin_dir: &self.cni.bin_dir,
            conf_dir: &self.cni.conf_dir,
            socket: &config.cni_socket,
        };
        let mut output = std::io::stdout();
        for change in installation.install()? {
            let (what, path) = match &change {
                Change::Written(path) => ("written", path),
                Change::Kept(path) => ("already there", path),
                Change::Foreign(path) => ("left alone: the Node has its own", path),
                Change::Removed(path) => ("removed", path),
            };
            writeln!(output, "{}: {what}", path.display())?;
        }
        if self.load_module {
            writeln!(output, "{}", kernel_module::load(config.ovs_datapath_type))?;
        }
        Ok(())
    }
}

impl CleanupArgs {
    fn run(self) -> anyhow::Result<()> {
        let (config, _) = self.config.load()?;
        let cleanup = Cleanup {
            config: &config,
            chained: self.cni.chained.as_deref(),
            bin_dir: &self.cni.bin_dir,
            conf_dir: &self.cni.conf_dir,
            run_dir: &self.run_dir,
            state_dir: &self.state_dir,
        };
        cleanup.run(self.dry_run, &mut std::io::stdout())
    }
}
