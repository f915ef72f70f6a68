//! A whole cluster on one machine: `antrea-lab up`.
//!
//! *Role.* Every Node is a set of namespaces on an underlay with a router and an outside, with its own Open vSwitch, network
//! and kubelet; Pods are processes in namespaces; the Kubernetes API is embedded. The network is used as on any Node: it gets
//! its configuration, a kubeconfig and a CNI call for each Pod, and has no idea that it is in a lab.
//!
//! *Invariants.* Nothing on the host changes but the lab's directory, and labs side by side share nothing. All processes of a
//! lab die with its supervisor, whatever ends it, and with them all namespaces and mounts; the directory that may be left is
//! removed by the next `up` or `down`.
//!
//! *Not here.* Anything that a network does: see `node::network` for the seam.

mod accepting;
mod check;
mod client;
mod commands;
mod container;
mod kubelet;
mod mounts;
mod node;
mod plan;
mod progress;
mod request;
mod servers;
mod state;
mod supervisor;
mod system;

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::state::Home;

#[derive(Parser)]
#[command(name = "antrea-lab", version, about = "A whole cluster on one machine, gone without trace after `down`")]
#[command(arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Which lab.
#[derive(Args, Clone, Debug)]
pub(crate) struct Which {
    /// The name of the lab
    #[arg(long, default_value = "lab")]
    name: String,
}

#[derive(Subcommand)]
enum Command {
    /// Start a lab, and end it with Ctrl-C; with --detach, leave it running
    Up(commands::up::Options),
    /// End a lab, or remove what a crashed one has left
    Down(Which),
    /// One more Node joins a lab that runs
    Join(Which),
    /// A Node leaves a lab that runs, with its Pods
    Leave(commands::membership::Leaver),
    /// Show Nodes and Pods
    Status(Which),
    /// Run a command in a Pod
    Exec(commands::exec::Options),
    /// Run a command in a Node, or in `router`, `fabric`, `control` or `outside`; without one, a shell
    Node(commands::node::Options),
    /// Print what a Pod has printed
    Logs(commands::logs::Options),
    /// Bring a small shop into the lab, and show what there is to see
    Demo(Which),
    /// Try who reaches whom with real packets, and draw it
    Check(commands::check::Options),
    /// What the lab starts itself with
    #[command(subcommand, hide = true)]
    Internal(Internal),
}

#[derive(Subcommand)]
enum Internal {
    /// The process of a lab
    Supervise {
        /// What to build, as JSON
        plan: String,
    },
    /// The first process of a Node
    Node(Place),
    /// The kubelet of a Node
    Kubelet(Place),
    /// A container, as standard input describes it
    Container,
    /// A server that tells its name
    Serve {
        /// The port of an HTTP server
        #[arg(long)]
        http: Option<u16>,
        /// The port of a UDP server
        #[arg(long)]
        udp: Option<u16>,
        /// The addresses of the UDP server; all otherwise, and then answers may come from another one than was asked
        #[arg(long, value_delimiter = ',')]
        udp_at: Vec<IpAddr>,
    },
    /// The cluster's DNS
    Dns {
        /// Where it listens
        #[arg(long, default_value_t = 53)]
        port: u16,
    },
    /// Tries what standard input lists
    Probe,
    /// Waits for its end
    Pause,
}

#[derive(Args)]
struct Place {
    /// The lab's directory
    #[arg(long)]
    home: PathBuf,
    /// The Node's name
    #[arg(long)]
    node: String,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "antrea-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Command::Up(options) => asynchronous(commands::up::run(options)),
        Command::Down(which) => commands::down::run(&which).map(done),
        Command::Join(which) => commands::membership::join(&which).map(done),
        Command::Leave(leaver) => commands::membership::leave(leaver).map(done),
        Command::Status(which) => asynchronous(commands::status::run(which)).map(done),
        Command::Exec(options) => commands::exec::run(options),
        Command::Node(options) => commands::node::run(options),
        Command::Logs(options) => commands::logs::run(&options).map(done),
        Command::Demo(which) => asynchronous(commands::demo::run(which)).map(done),
        Command::Check(options) => asynchronous(commands::check::run(options)).map(done),
        Command::Internal(internal) => self::internal(internal),
    }
}

fn internal(command: Internal) -> Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Internal::Node(place) => node::init::become_node(&Home::at(place.home), &place.node).map(done),
        Internal::Container => Ok(ExitCode::from(u8::try_from(container::run()?).unwrap_or(128))),
        Internal::Supervise { plan } => {
            log();
            let plan = serde_json::from_str(&plan).context("cannot read the plan")?;
            asynchronous(supervisor::run(plan)).map(done)
        }
        Internal::Kubelet(place) => {
            log();
            asynchronous(async { node::run(Home::at(place.home), &place.node).await }).map(done)
        }
        Internal::Serve { http, udp, udp_at } => {
            let http = async move {
                match http {
                    Some(port) => servers::http::serve(port).await,
                    None => std::future::pending().await,
                }
            };
            let udp = async move {
                match udp {
                    Some(port) => servers::udp::serve(port, udp_at).await,
                    None => std::future::pending().await,
                }
            };
            let both = async { tokio::try_join!(http, udp) };
            asynchronous(servers::until_told(both)).map(done)
        }
        Internal::Dns { port } => {
            log();
            asynchronous(servers::until_told(servers::dns::serve(port))).map(done)
        }
        Internal::Probe => {
            let probes: Vec<_> = serde_json::from_reader(std::io::stdin())?;
            let outcomes = asynchronous(async { Ok(check::trial::all(&probes).await) })?;
            commands::say(serde_json::to_string(&outcomes)?);
            Ok(ExitCode::SUCCESS)
        }
        Internal::Pause => asynchronous(servers::until_told(std::future::pending::<Result<()>>())).map(done),
    }
}

/// Logs go to standard error; `RUST_LOG` says how much.
fn log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}

/// All children are started by this one thread: the kernel kills them when it ends.
fn asynchronous<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}
