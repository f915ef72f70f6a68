//! Connects the Pods of a Node.
//!
//! *Role.* Flags, configuration, and the wiring of the crates that do the work.
//!
//! *Invariants.* What the configuration says and cannot be done is an error at the start. Nothing is read from the environment
//! but `NODE_NAME`, `POD_NAMESPACE`, `RUST_LOG` and what the Kubernetes client looks at. OVSDB remembers the Pods, the switch their flows: an
//! agent that is killed and started again sends nothing where nothing changed. When it stops, the Node goes on working.
//!
//! *Not here.* Decisions (crate `node`), and whatever touches the kernel, the switch or a server (the rim crates).

mod bridge;
mod cni;
mod config;
mod control;
mod engine;
mod install_cni;
mod ports;
mod rest;
mod run;
mod services;
mod sources;
mod transport;
mod upkeep;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use config::Config;
use install_cni::{Change, Installation};

#[derive(Parser)]
#[command(
    name = "antrea-agent",
    version,
    about = "Connects the Pods of a Node",
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
    /// Put the CNI plugin and its network configuration where container runtimes look for them
    InstallCni(InstallCni),
}

#[derive(Args)]
struct ConfigFile {
    /// The configuration file, antrea-agent.conf; without one, everything has its default
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Args)]
struct InstallCni {
    #[command(flatten)]
    config: ConfigFile,
    /// The program antrea-cni; the one beside this program if not given
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// The container runtime's directory for plugins
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    bin_dir: PathBuf,
    /// The container runtime's directory for network configurations
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    conf_dir: PathBuf,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command.unwrap_or(Command::Run(cli.run)) {
        Command::Run(file) => file.load().and_then(|(config, notes)| run::run(&config, &notes)),
        Command::Config(file) => file.load().and_then(|(config, notes)| print_config(&config, &notes)),
        Command::InstallCni(install) => install.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "antrea-agent: {error:#}");
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
        writeln!(std::io::stderr(), "antrea-agent: {note}")?;
    }
    writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(config)?)?;
    Ok(())
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
            bin_dir: &self.bin_dir,
            conf_dir: &self.conf_dir,
            socket: &config.cni_socket,
        };
        for change in installation.install()? {
            let (what, path) = match &change {
                Change::Written(path) => ("written", path),
                Change::Kept(path) => ("already there", path),
                Change::Removed(path) => ("removed", path),
            };
            writeln!(std::io::stdout(), "{}: {what}", path.display())?;
        }
        Ok(())
    }
}
