//! The Nodes of a lab: those that it begins with, those that join it, and those that leave.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use testkit::Netns;
use testkit::process::{kill_with_parent, log_tail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, watch};

use super::accounts;
use super::control_plane::ControlPlane;
use super::requests::Request;
use super::underlay::Underlay;
use crate::plan::{Network, Node, Plan};
use crate::program::current_exe;
use crate::progress::{News, step};
use crate::request::Wish;
use crate::state::{Home, Lab};

/// The Nodes that run, and all that one needs to run.
pub(crate) struct Nodes<'a> {
    home: &'a Home,
    underlay: &'a Underlay,
    control_plane: &'a ControlPlane,
    client: kube::Client,
    lab: Lab,
    /// Those who follow it know of the others.
    plans: watch::Sender<Plan>,
    processes: &'a mut BTreeMap<String, Child>,
    told: mpsc::UnboundedSender<(String, News)>,
    news: mpsc::UnboundedReceiver<(String, News)>,
}

impl<'a> Nodes<'a> {
    pub(crate) fn new(
        home: &'a Home,
        underlay: &'a Underlay,
        control_plane: &'a ControlPlane,
        client: kube::Client,
        lab: Lab,
        processes: &'a mut BTreeMap<String, Child>,
    ) -> Self {
        let (told, news) = mpsc::unbounded_channel();
        let plans = watch::Sender::new(lab.plan.clone());
        if lab.plan.network == Network::Antrea {
            tokio::spawn(accounts::renew(client.clone(), home.clone(), plans.subscribe()));
        }
        Self { home, underlay, control_plane, client, lab, plans, processes, told, news }
    }

    /// Starts all that are planned, and waits until they are ready.
    pub(crate) async fn start_all(&mut self) -> Result<()> {
        let nodes = self.lab.plan.nodes.clone();
        for node in &nodes {
            self.start(node).await.with_context(|| node.name.clone())?;
        }
        step(format!("{} Nodes are starting", nodes.len()));
        let mut ready = 0;
        while ready < nodes.len() {
            match self.news().await {
                (_, News::Step(what)) => step(what),
                (_, News::Ready) => ready += 1,
                (node, News::Failed(why)) => bail!("{node} does not come up: {why}"),
            }
        }
        Ok(())
    }

    /// Writes down that everything is up.
    pub(crate) fn say_ready(&mut self) -> Result<()> {
        self.lab.ready = true;
        self.home.write(&self.lab)
    }

    /// What a Node tells next.
    pub(crate) async fn news(&mut self) -> (String, News) {
        match self.news.recv().await {
            Some(news) => news,
            // We hold a sender ourselves.
            None => std::future::pending().await,
        }
    }

    /// Does what somebody asks for, and says how it went.
    pub(crate) async fn answer(&mut self, mut request: Request) {
        let outcome = match request.wish.clone() {
            Wish::Join => self.join(&mut request).await,
            Wish::Leave(node) => self.leave(&node).await,
        };
        let answer = match outcome {
            Ok(()) => News::Ready,
            Err(error) => News::Failed(format!("{error:#}")),
        };
        request.tell(&answer).await;
    }

    async fn join(&mut self, request: &mut Request) -> Result<()> {
        let node = self.lab.plan.next_node().context("the lab has all the Nodes that it can have")?;
        self.change(|plan| plan.nodes.push(node.clone()))?;
        let joined = self.bring_up(&node, request).await;
        if joined.is_err()
            && let Err(error) = self.remove(&node).await
        {
            tracing::warn!("what is left of {}: {error:#}", node.name);
        }
        joined
    }

    async fn bring_up(&mut self, node: &Node, request: &mut Request) -> Result<()> {
        self.underlay.route_to(&self.lab.plan, node)?;
        self.start(node).await?;
        loop {
            match self.news().await {
                (name, news) if name != node.name => tracing::warn!("{name}: {news:?}"),
                (_, News::Ready) => return Ok(()),
                (name, News::Failed(why)) => bail!("{name} does not come up: {why}"),
                (_, step) => request.tell(&step).await,
            }
        }
    }

    async fn leave(&mut self, name: &str) -> Result<()> {
        let plan = &self.lab.plan;
        let Some(node) = plan.node(name).cloned() else {
            let names: Vec<_> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
            bail!("there is no Node {name}: there are {}", names.join(", "));
        };
        if plan.nodes.len() == 1 {
            bail!("{name} is the last Node: `antrea-lab down` ends the lab");
        }
        self.remove(&node).await
    }

    /// Takes a Node away, as far as it is there: the machine, then what the cluster knows of it.
    async fn remove(&mut self, node: &Node) -> Result<()> {
        let name = node.name.as_str();
        self.home.end_node(name);
        if let Some(mut process) = self.processes.remove(name) {
            // It may have been started and not have a first process yet.
            let _ = process.start_kill();
            let _ = process.wait().await;
        }
        self.underlay.disconnect(&self.lab.plan, node)?;
        self.change(|plan| plan.nodes.retain(|other| other.name != name))?;
        self.forget(name).await?;
        fs::remove_dir_all(self.home.node(name)).with_context(|| format!("the files of {name}"))
    }

    /// First the Node, so that nothing is put there any more; then its Pods, whose end nobody is there to confirm.
    async fn forget(&self, node: &str) -> Result<()> {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        gone(Api::<NodeObject>::all(self.client.clone()).delete(node, &now).await)?;
        gone(Api::<Lease>::namespaced(self.client.clone(), "kube-node-lease").delete(node, &now).await)?;
        let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
        for pod in Api::<Pod>::all(self.client.clone()).list(&there).await? {
            let namespace = pod.metadata.namespace.unwrap_or_default();
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
            gone(pods.delete(&pod.metadata.name.unwrap_or_default(), &now).await)?;
        }
        Ok(())
    }

    /// Another plan, which is written down and told to all Nodes.
    fn change(&mut self, change: impl FnOnce(&mut Plan)) -> Result<()> {
        change(&mut self.lab.plan);
        self.plans.send_replace(self.lab.plan.clone());
        self.home.write(&self.lab)
    }

    async fn start(&mut self, node: &Node) -> Result<()> {
        let netns = Netns::new()?;
        self.underlay.connect(node, &netns)?;
        let directory = self.home.node(&node.name);
        fs::create_dir_all(&directory)?;
        accounts::equip(&self.client, self.control_plane, self.home, &self.lab.plan, node).await?;
        let log_path = directory.join("kubelet.log");
        let log = fs::File::create(&log_path)?;
        let mut command = netns.command(current_exe()?);
        command.args(["internal", "node", "--home"]).arg(self.home.path()).args(["--node", &node.name]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        kill_with_parent(&mut command);
        let mut child = Command::from(command).kill_on_drop(true).spawn().context("cannot start a process")?;
        let stdin = child.stdin.take().context("no standard input")?;
        tokio::spawn(tell_plans(stdin, self.plans.subscribe()));
        let stdout = child.stdout.take().context("no standard output")?;
        let (name, told) = (node.name.clone(), self.told.clone());
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = told.send((name.clone(), News::read(&line)));
            }
            let _ = told.send((name, News::Failed(format!("its processes have ended: {}", log_tail(&log_path)))));
        });
        self.processes.insert(node.name.clone(), child);
        Ok(())
    }
}

/// Tells a Node the plan, and each that follows, until the Node ends.
async fn tell_plans(mut stdin: ChildStdin, mut plans: watch::Receiver<Plan>) {
    loop {
        let Ok(line) = serde_json::to_string(&*plans.borrow_and_update()) else { return };
        if stdin.write_all(format!("{line}\n").as_bytes()).await.is_err() || plans.changed().await.is_err() {
            return;
        }
    }
}

/// What was to be deleted may have been gone already.
fn gone<T>(outcome: kube::Result<T>) -> kube::Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => outcome.map(drop),
    }
}
