//! Tells the Nodes' agents what the policies of the cluster mean for them.
//!
//! *Role.* Flags, configuration, and the wiring of the crates that do the work: watches feed the brain (crate `policy`), whose
//! task alone owns it; agents have a stream each (crate `api`).
//!
//! *Invariants.* An agent is told of its own Node only, and only if its token says which that is. Any number of replicas do the
//! same work and agree, since what they tell follows from the objects alone; what is written to the cluster, one of them writes.
//! Nothing is read from the environment but `POD_NAME`, `POD_IP`, `RUST_LOG` and what the Kubernetes client looks at.
//!
//! *Not here.* Decisions about policies (crate `policy`), and the protocols (crates `api` and `k8s`).

mod authority;
mod complaints;
mod config;
mod door;
mod engine;
mod node_ipam;
mod peers;
mod rest;
mod run;
mod sources;
mod status;
mod tls;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use config::Config;

#[derive(Parser)]
#[command(
    name = "antrea-controller",
    version,
    about = "Tells the Nodes' agents what the policies of the cluster mean for them",
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
    /// Run (what happens without a command, too)
    Run(ConfigFile),
    /// Print the configuration that would be used, as JSON
    Config(ConfigFile),
}

#[derive(Args)]
struct ConfigFile {
    /// The configuration file, antrea-controller.conf; without one, everything has its default
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command.unwrap_or(Command::Run(cli.run)) {
        Command::Run(file) => file.load().and_then(|(config, notes)| run::run(&config, &notes)),
        Command::Config(file) => file.load().and_then(|(config, notes)| print_config(&config, &notes)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "antrea-controller: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl ConfigFile {
    fn load(&self) -> anyhow::Result<(Config, Vec<String>)> {
        Ok(Config::load(self.config.as_deref())?)
    }
}

fn print_config(config: &Config, notes: &[String]) -> anyhow::Result<()> {
    for note in notes {
        writeln!(std::io::stderr(), "antrea-controller: {note}")?;
    }
    writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(config)?)?;
    Ok(())
}
