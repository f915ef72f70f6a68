//! The process that a lab consists of, as far as it is no Node: builds everything, and ends everything when it ends.
//!
//! All of its children die with it, and their children with them, since a Node's first process takes its Node along. So
//! whatever ends the supervisor leaves nothing but a directory.

mod accounts;
mod control_plane;
mod controllers;
mod forward;
mod real;
mod scheduler;
mod underlay;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::plan::{self, Kubernetes, Node, Plan};
use crate::progress::{News, step};
use crate::state::{Home, Lab, started};
use crate::system::{Netns, die_with_parent, last_words, myself};
use control_plane::ControlPlane;
use underlay::Underlay;

const DNS: &str = include_str!("../manifests/dns.yaml");

/// Runs a lab until a signal ends it.
pub(crate) async fn run(plan: Plan) -> Result<()> {
    let home = Home::of(&plan.name);
    let lab = claim(&home, plan)?;
    let mut nodes = Vec::new();
    let outcome = live(&home, lab, &mut nodes).await;
    // First the Nodes' first processes, so that those who wait for them end by themselves.
    home.end_nodes();
    for mut node in nodes {
        let _ = node.wait().await;
    }
    if let Err(error) = &outcome {
        tracing::error!("{error:#}");
        News::Failed(format!("{error:#}")).tell();
    }
    home.remove()?;
    outcome
}

/// Makes the lab's directory, which only one can do.
fn claim(home: &Home, plan: Plan) -> Result<Lab> {
    let pid = std::process::id();
    let lab = Lab {
        plan,
        pid,
        started: started(pid).context("cannot read /proc/self/stat")?,
        namespaces: Vec::new(),
        ready: false,
    };
    let base = home.path().parent().context("the lab has no directory")?;
    fs::create_dir_all(base).with_context(|| format!("cannot make {} (are you root?)", base.display()))?;
    let new = Home::at(base.join(format!(".{}.{pid}", lab.plan.name)));
    fs::create_dir(new.path())?;
    new.write(&lab)?;
    let log = fs::File::create(new.log())?;
    if let Err(error) = fs::rename(new.path(), home.path()) {
        new.remove()?;
        return Err(error).with_context(|| format!("the lab `{}` is being started by someone else", lab.plan.name));
    }
    nix::unistd::dup2_stderr(&log)?;
    Ok(lab)
}

async fn live(home: &Home, mut lab: Lab, nodes: &mut Vec<Child>) -> Result<()> {
    let mut signals = Signals::new()?;
    let plan = lab.plan.clone();
    let underlay = Underlay::build(&plan).context("the underlay")?;
    lab.namespaces = underlay.named().map(|(name, netns)| (name.to_owned(), netns.path())).to_vec();
    home.write(&lab)?;
    step("the underlay is there: two subnets for Nodes, a router, and the outside");
    let control_plane = ControlPlane::start(&plan, home, &underlay).await.context("the Kubernetes API")?;
    step(format!("the Kubernetes API answers at {}", control_plane.url));
    install_programs(home, &plan)?;
    let client = crate::client::connect(&home.kubeconfig()).await?;
    if plan.network == plan::Network::Antrea {
        accounts::give(&client, home, &plan).await?;
        controllers::start(&client, home, &plan, &underlay).await.context("the controllers")?;
    }
    if plan.kubernetes == Kubernetes::Embedded {
        tokio::spawn(scheduler::run(client.clone()));
    }
    let _outside = outside_server(&underlay.outside, home)?;
    let (sender, mut news) = mpsc::unbounded_channel();
    for node in &plan.nodes {
        nodes.push(start_node(home, &underlay, node, sender.clone()).with_context(|| node.name.clone())?);
    }
    step(format!("{} Nodes are starting", nodes.len()));
    let up = async {
        let mut ready = 0;
        while ready < plan.nodes.len() {
            match news.recv().await {
                Some((_, News::Step(what))) => step(what),
                Some((_, News::Ready)) => ready += 1,
                Some((node, News::Failed(why))) => bail!("{node} does not come up: {why}"),
                None => bail!("all Nodes have ended"),
            }
        }
        crate::client::apply(&client, DNS, |_| true).await.context("the cluster's DNS")
    };
    tokio::select! {
        up = up => up?,
        () = signals.any() => return Ok(()),
    }
    lab.ready = true;
    home.write(&lab)?;
    News::Ready.tell();
    loop {
        tokio::select! {
            Some((node, news)) = news.recv() => tracing::warn!("{node}: {news:?}"),
            () = signals.any() => return Ok(()),
        }
    }
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Copies the programs that Nodes run to where they see them.
fn install_programs(home: &Home, plan: &Plan) -> Result<()> {
    if plan.network != plan::Network::Antrea {
        return Ok(());
    }
    let (from, to) = (myself()?, home.path().join("bin"));
    fs::create_dir(&to)?;
    let controller = (plan.controllers > 0).then_some("antrea-controller");
    for name in ["antrea-agent", "antrea-cni"].into_iter().chain(controller) {
        let program = from.with_file_name(name);
        fs::copy(&program, to.join(name)).with_context(|| {
            format!("{} is missing: `cargo build -p {name}`, or use `--network bridge`", program.display())
        })?;
    }
    Ok(())
}

/// Somebody outside who answers.
fn outside_server(outside: &Netns, home: &Home) -> Result<Child> {
    let mut server = outside.command(myself()?);
    server.args(["internal", "serve", "--http", "80", "--udp", "80"]).stdin(Stdio::null());
    let log = fs::File::create(home.path().join("outside.log"))?;
    server.stdout(log.try_clone()?).stderr(log);
    die_with_parent(&mut server);
    Command::from(server).kill_on_drop(true).spawn().context("cannot start the server outside")
}

fn start_node(
    home: &Home,
    underlay: &Underlay,
    node: &Node,
    news: mpsc::UnboundedSender<(String, News)>,
) -> Result<Child> {
    let netns = Netns::new()?;
    underlay.connect(node, &netns)?;
    let directory: PathBuf = home.node(&node.name);
    fs::create_dir_all(&directory)?;
    let log_path = directory.join("kubelet.log");
    let log = fs::File::create(&log_path)?;
    let mut command = netns.command(myself()?);
    command.args(["internal", "node", "--home"]).arg(home.path()).args(["--node", &node.name]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    die_with_parent(&mut command);
    let mut child = Command::from(command).kill_on_drop(true).spawn().context("cannot start a process")?;
    let stdout = child.stdout.take().context("no standard output")?;
    let name = node.name.clone();
    tokio::spawn(async move {
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let _ = news.send((name.clone(), News::read(&line)));
        }
        let _ = news.send((name, News::Failed(format!("its processes have ended: {}", last_words(&log_path)))));
    });
    Ok(child)
}
