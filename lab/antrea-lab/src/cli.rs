//! The command line: flags, and the function that each command calls.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::state::Home;
use crate::{check, commands, container, kubelet, node, servers, supervisor};

/// The command line of `antrea-lab`.
#[derive(Parser)]
#[command(
    name = "antrea-lab",
    version,
    about = "A Kubernetes cluster on one machine, removed without a trace by `down`"
)]
#[command(arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Selects a lab by its name.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabName {
    /// Name of the lab
    #[arg(long, default_value = "lab")]
    pub(crate) name: String,
}

#[derive(Subcommand)]
enum Command {
    /// Start a lab; Ctrl-C ends it, unless --detach leaves it running
    Up(commands::up::Options),
    /// End a lab, or remove the leftovers of a crashed one
    Down(LabName),
    /// Add a Node to a running lab
    Join(LabName),
    /// Remove a Node and its Pods from a running lab
    Leave(commands::membership::Leaver),
    /// Show Nodes and Pods
    Status(LabName),
    /// Run a command in a Pod
    Exec(commands::exec::Options),
    /// Run kubectl with the kubeconfig of a lab; options of this program come first
    Kubectl(commands::kubectl::Options),
    /// Run a command in a Node, or in `router`, `fabric`, `control` or `outside`; without one, a shell
    Node(commands::node::Options),
    /// Print the log of a Pod
    Logs(commands::logs::Options),
    /// Deploy a small shop, and show its Pods and their connectivity
    Demo(LabName),
    /// Test connectivity between all Pods, Services, Nodes and the outside, and print the matrix
    Check(commands::check::Options),
    /// Processes that the lab itself starts
    #[command(subcommand, hide = true)]
    Internal(Internal),
}

#[derive(Subcommand)]
enum Internal {
    /// Run the supervisor of a lab
    Supervise {
        /// The plan of the lab, as JSON
        plan: String,
    },
    /// Run the init process of a Node
    Node(NodeProcess),
    /// Run the kubelet of a Node
    Kubelet(NodeProcess),
    /// Run the container that standard input describes
    Container,
    /// Run a server that responds with its host name
    Serve {
        /// Port of the HTTP server
        #[arg(long)]
        http: Option<u16>,
        /// Port of the UDP server
        #[arg(long)]
        udp: Option<u16>,
        /// Addresses of the UDP server. By default all, and then a response may have another source address than requested
        #[arg(long, value_delimiter = ',')]
        udp_at: Vec<IpAddr>,
    },
    /// Run the cluster's DNS server
    Dns {
        /// Port of the DNS server
        #[arg(long, default_value_t = 53)]
        port: u16,
    },
    /// Run the connectivity probes that standard input lists
    Probe,
    /// Run the built-in server of an image: the entry point of images for real kubelets
    Image {
        /// Name of the image
        image: String,
        /// Arguments of the container
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Wait for SIGTERM, as the pause container does
    Pause,
}

/// Selects a Node of a lab by the lab's directory and its name.
#[derive(Args)]
struct NodeProcess {
    /// Directory of the lab
    #[arg(long)]
    home: PathBuf,
    /// Name of the Node
    #[arg(long)]
    node: String,
}

/// Runs a command to its end. Returns the exit code of the program: that of the command in a Pod or Node, if there is one.
pub fn run(cli: Cli) -> Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match cli.command {
        Command::Up(options) => block_on(commands::up::run(options)),
        Command::Down(lab_name) => commands::down::run(&lab_name).map(done),
        Command::Join(lab_name) => commands::membership::join(&lab_name).map(done),
        Command::Leave(leaver) => commands::membership::leave(leaver).map(done),
        Command::Status(lab_name) => block_on(commands::status::run(lab_name)).map(done),
        Command::Exec(options) => commands::exec::run(options),
        Command::Kubectl(options) => commands::kubectl::run(options),
        Command::Node(options) => commands::node::run(options),
        Command::Logs(options) => commands::logs::run(&options).map(done),
        Command::Demo(lab_name) => block_on(commands::demo::run(lab_name)).map(done),
        Command::Check(options) => block_on(commands::check::run(options)).map(done),
        Command::Internal(internal) => self::internal(internal),
    }
}

fn internal(command: Internal) -> Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Internal::Node(process) => node::init::become_node(&Home::at(process.home), &process.node).map(done),
        Internal::Container => Ok(ExitCode::from(u8::try_from(container::run()?).unwrap_or(128))),
        Internal::Supervise { plan } => {
            init_log();
            let plan = serde_json::from_str(&plan).context("cannot read the plan")?;
            block_on(supervisor::run(plan)).map(done)
        }
        Internal::Kubelet(process) => {
            init_log();
            block_on(async { node::run(Home::at(process.home), &process.node).await }).map(done)
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
            block_on(servers::until_terminated(both)).map(done)
        }
        Internal::Dns { port } => {
            init_log();
            block_on(servers::until_terminated(servers::dns::serve(port))).map(done)
        }
        Internal::Probe => {
            let probes: Vec<_> = serde_json::from_reader(std::io::stdin())?;
            let outcomes = block_on(async { Ok(check::trial::all(&probes).await) })?;
            commands::say(serde_json::to_string(&outcomes)?);
            Ok(ExitCode::SUCCESS)
        }
        Internal::Image { image, arguments } => Err(kubelet::image::execute(&image, &arguments)),
        Internal::Pause => block_on(servers::until_terminated(std::future::pending::<Result<()>>())).map(done),
    }
}

/// Logs to standard error at the level of `RUST_LOG`, by default `info`.
fn init_log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}

/// One thread: it starts all children, and the kernel kills a child when the thread that started it ends.
fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}
