//! Computes NetworkPolicies and distributes them to the agents on the Nodes.
//!
//! *Role.* Flags, configuration, and the wiring of the crates that do the work: watches feed the brain (crate `policy`), which one
//! task owns; each agent has a stream (crate `api`).
//!
//! *Invariants.* An agent receives the policies of its own Node only, which its token is bound to. All replicas compute the same,
//! since the result depends on the API objects alone; only the leader writes to the cluster. The only environment variables are
//! `POD_NAME`, `POD_IP`, `RUST_LOG` and those of the Kubernetes client.
//!
//! *Not here.* Decisions about policies (crate `policy`), and the protocols (crates `api` and `k8s`).

mod agents;
mod authenticator;
mod ca;
mod config;
mod engine;
mod inputs;
mod node_ipam;
mod peers;
mod policy_events;
mod rest;
mod run;
mod sources;
mod tiers;
mod tls;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use telemetry::daemon::Daemon;

use config::Config;

pub(crate) const DAEMON: Daemon = Daemon { name: "antrea-controller", role: "controller" };

#[derive(Parser)]
#[command(
    name = "antrea-controller",
    version,
    about = "Computes NetworkPolicies and distributes them to the agents on the Nodes",
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
    /// Run the controller (the default command)
    Run(ConfigFile),
    /// Print the effective configuration as JSON
    Config(ConfigFile),
}

#[derive(Args)]
struct ConfigFile {
    /// Configuration file, antrea-controller.conf; all defaults without it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command.unwrap_or(Command::Run(cli.run)) {
        Command::Run(file) => file.load().and_then(|(config, notes)| run::run(&config, &notes)),
        Command::Config(file) => file.load().and_then(|(config, notes)| Ok(DAEMON.print_config(&config, &notes)?)),
    };
    DAEMON.exit(outcome)
}

impl ConfigFile {
    fn load(&self) -> anyhow::Result<(Config, Vec<String>)> {
        Ok(Config::load(self.config.as_deref())?)
    }
}
