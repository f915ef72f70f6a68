//! The supervisor of a lab: builds the underlay, starts the control plane and the Nodes, and cleans up.
//!
//! The kernel kills its children when it ends, and all processes of a Node end with the Node's init process. So however the
//! supervisor ends, only the directory of the lab remains.

mod accounts;
mod control_plane;
mod controllers;
mod forward;
mod install;
mod nodes;
mod real;
mod requests;
mod scheduler;
mod underlay;

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result};
use testkit::Netns;
use testkit::process::kill_with_parent;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::plan::{Kubelet, Kubernetes, Network, Plan};
use crate::program::current_exe;
use crate::progress::{Progress, step};
use crate::state::{Home, Lab, start_time};
use control_plane::ControlPlane;
use nodes::Nodes;
use requests::Requests;
use underlay::Underlay;

const DNS: &str = include_str!("../manifests/dns.yaml");

/// Runs a lab until a signal ends it.
pub(crate) async fn run(plan: Plan) -> Result<()> {
    let home = Home::of(&plan.name);
    let lab = create_home(&home, plan)?;
    let mut processes = BTreeMap::new();
    let outcome = run_lab(&home, lab, &mut processes).await;
    // First the init processes of the Nodes, so that their parents end by themselves; then the remaining children, because the
    // directory with the PIDs may have been removed.
    home.end_nodes();
    for mut process in processes.into_values() {
        let _ = process.kill().await;
    }
    if let Err(error) = &outcome {
        tracing::error!("{error:#}");
        Progress::Failed(format!("{error:#}")).print();
    }
    home.remove()?;
    outcome
}

/// Creates the lab's directory; of concurrent supervisors, only one succeeds.
fn create_home(home: &Home, plan: Plan) -> Result<Lab> {
    let pid = std::process::id();
    let lab = Lab {
        plan,
        pid,
        started: start_time(pid).context("cannot read /proc/self/stat")?,
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
        return Err(error).with_context(|| format!("the lab `{}` is being started by another process", lab.plan.name));
    }
    nix::unistd::dup2_stderr(&log)?;
    Ok(lab)
}

async fn run_lab(home: &Home, mut lab: Lab, processes: &mut BTreeMap<String, Child>) -> Result<()> {
    let mut signals = Signals::new()?;
    let plan = lab.plan.clone();
    let underlay = Underlay::build(&plan).context("the underlay")?;
    lab.namespaces = underlay.named().map(|(name, netns)| (name.to_owned(), netns.path())).to_vec();
    home.write(&lab)?;
    step("underlay created: two subnets for Nodes, a router, and the outside");
    let control_plane = ControlPlane::start(&plan, home, &underlay).await.context("the Kubernetes API")?;
    step(format!("Kubernetes API ready at {}", control_plane.url));
    install_programs(home, &plan)?;
    let client = crate::client::connect(&home.kubeconfig()).await?;
    accounts::create(&client, &plan).await?;
    if plan.controllers > 0 {
        controllers::start(&client, &control_plane, home, &plan, &underlay).await.context("the controllers")?;
    }
    if plan.kubernetes == Kubernetes::Embedded {
        tokio::spawn(scheduler::run(client.clone()));
    }
    let _outside = outside_server(&underlay.outside, home)?;
    let mut nodes = Nodes::new(home, &underlay, &control_plane, client.clone(), lab, processes);
    let up = async {
        nodes.start_all().await?;
        if plan.kubelet == Kubelet::Real && plan.network == Network::Antrea {
            install::install(&client, &plan).await.context("the installation of antrea-rs")?;
        }
        crate::client::apply(&client, DNS, |_| true).await.context("the cluster's DNS")?;
        Requests::listen(home)
    };
    let mut requests = tokio::select! {
        up = up => up?,
        () = signals.any() => return Ok(()),
    };
    nodes.record_ready()?;
    Progress::Ready.print();
    loop {
        tokio::select! {
            news = nodes.news() => tracing::warn!("{news:?}"),
            request = requests.next() => tokio::select! {
                () = nodes.answer(request) => {}
                () = signals.any() => return Ok(()),
            },
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

/// Copies the programs that Nodes run, and their images, into directories that they see.
fn install_programs(home: &Home, plan: &Plan) -> Result<()> {
    let to = home.programs();
    fs::create_dir(&to)?;
    let agent = plan.runs_programs().then_some(["antrea-agent", "antrea-cni"]);
    let controller = (plan.controllers > 0).then_some("antrea-controller");
    for name in agent.into_iter().flatten().chain(controller) {
        let program = plan.programs.join(name);
        fs::copy(&program, to.join(name)).with_context(|| {
            format!("{} is missing: `cargo build -p {name}`, or use `--network bridge`", program.display())
        })?;
    }
    let kube_proxy = plan.has_kube_proxy().then_some("kube-proxy");
    let kubelet = (plan.kubelet == Kubelet::Real).then_some("kubelet");
    for name in kube_proxy.into_iter().chain(kubelet) {
        let program = testkit::kubernetes::program(name);
        fs::copy(&program, to.join(name))
            .with_context(|| format!("{} is missing: run `make kubernetes`", program.display()))?;
    }
    fs::create_dir(home.images())?;
    for image in &plan.images {
        let name = image.file_name().with_context(|| format!("{} is not a file", image.display()))?;
        fs::copy(image, home.images().join(name)).with_context(|| format!("cannot copy {}", image.display()))?;
    }
    Ok(())
}

/// Starts the server outside of the cluster.
fn outside_server(outside: &Netns, home: &Home) -> Result<Child> {
    let mut server = outside.command(current_exe()?);
    server.args(["internal", "serve", "--http", "80", "--udp", "80"]).stdin(Stdio::null());
    let log = fs::File::create(home.path().join("outside.log"))?;
    server.stdout(log.try_clone()?).stderr(log);
    kill_with_parent(&mut server);
    Command::from(server).kill_on_drop(true).spawn().context("cannot start the server outside")
}
