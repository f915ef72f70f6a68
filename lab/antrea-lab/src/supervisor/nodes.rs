//! Starts the Nodes of a lab, adds Nodes, and removes them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node as NodeObject, NodeSpec, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use testkit::Netns;
use testkit::process::{kill_with_parent, log_tail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, watch};

use super::accounts;
use super::control_plane::ControlPlane;
use super::requests::Request;
use super::underlay::Underlay;
use crate::plan::{Kubelet, Node, Plan};
use crate::program::current_exe;
use crate::progress::{Progress, step};
use crate::request::Change;
use crate::state::{Home, Lab};

/// The running Nodes, and what is needed to start another.
pub(crate) struct Nodes<'a> {
    home: &'a Home,
    underlay: &'a Underlay,
    control_plane: &'a ControlPlane,
    client: kube::Client,
    lab: Lab,
    /// The current plan; each Node follows it.
    plans: watch::Sender<Plan>,
    processes: &'a mut BTreeMap<String, Child>,
    sender: mpsc::UnboundedSender<(String, Progress)>,
    news: mpsc::UnboundedReceiver<(String, Progress)>,
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
        let (sender, news) = mpsc::unbounded_channel();
        let plans = watch::Sender::new(lab.plan.clone());
        if lab.plan.runs_programs() {
            tokio::spawn(accounts::renew(client.clone(), home.clone(), plans.subscribe()));
        }
        Self { home, underlay, control_plane, client, lab, plans, processes, sender, news }
    }

    /// Starts all Nodes of the plan, and waits until they are ready.
    pub(crate) async fn start_all(&mut self) -> Result<()> {
        let nodes = self.lab.plan.nodes.clone();
        for node in &nodes {
            self.start(node).await.with_context(|| node.name.clone())?;
        }
        step(format!("{} Nodes are starting", nodes.len()));
        let mut ready = 0;
        while ready < nodes.len() {
            match self.news().await {
                (_, Progress::Step(what)) => step(what),
                (_, Progress::Ready) => ready += 1,
                (node, Progress::Failed(why)) => bail!("{node} does not come up: {why}"),
            }
        }
        Ok(())
    }

    /// Records in the state that all Nodes are ready.
    pub(crate) fn record_ready(&mut self) -> Result<()> {
        self.lab.ready = true;
        self.home.write(&self.lab)
    }

    /// The next progress message of a Node.
    pub(crate) async fn news(&mut self) -> (String, Progress) {
        match self.news.recv().await {
            Some(news) => news,
            // Not reached: `self` has a sender.
            None => std::future::pending().await,
        }
    }

    /// Executes a request, and sends the result.
    pub(crate) async fn answer(&mut self, mut request: Request) {
        let outcome = match request.change.clone() {
            Change::Join => self.join(&mut request).await,
            Change::Leave(node) => self.leave(&node).await,
        };
        let answer = match outcome {
            Ok(()) => Progress::Ready,
            Err(error) => Progress::Failed(format!("{error:#}")),
        };
        request.send(&answer).await;
    }

    async fn join(&mut self, request: &mut Request) -> Result<()> {
        let node = self.lab.plan.next_node().context("the lab has all the Nodes that it can have")?;
        self.change(|plan| plan.nodes.push(node.clone()))?;
        let joined = self.bring_up(&node, request).await;
        if joined.is_err()
            && let Err(error) = self.remove(&node).await
        {
            tracing::warn!("cannot clean up {}: {error:#}", node.name);
        }
        joined
    }

    async fn bring_up(&mut self, node: &Node, request: &mut Request) -> Result<()> {
        self.underlay.route_to(&self.lab.plan, node)?;
        self.start(node).await?;
        loop {
            match self.news().await {
                (name, news) if name != node.name => tracing::warn!("{name}: {news:?}"),
                (_, Progress::Ready) => return Ok(()),
                (name, Progress::Failed(why)) => bail!("{name} does not come up: {why}"),
                (_, step) => request.send(&step).await,
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

    /// Removes a Node, even one that did not start: first its processes, then its objects in the API.
    async fn remove(&mut self, node: &Node) -> Result<()> {
        let name = node.name.as_str();
        self.home.end_node(name);
        if let Some(mut process) = self.processes.remove(name) {
            // It may not have an init process yet.
            let _ = process.start_kill();
            let _ = process.wait().await;
        }
        self.underlay.disconnect(&self.lab.plan, node)?;
        self.change(|plan| plan.nodes.retain(|other| other.name != name))?;
        self.forget(name).await?;
        fs::remove_dir_all(self.home.node(name)).with_context(|| format!("the files of {name}"))
    }

    /// Deletes the Node object, so that no Pod is scheduled there, and then its Pods without grace: it has no kubelet any more.
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

    /// Changes the plan, records it, and sends it to all Nodes.
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
        accounts::write_credentials(&self.client, self.control_plane, self.home, &self.lab.plan, node).await?;
        if self.lab.plan.kubelet == Kubelet::Real {
            self.create_object(node).await.with_context(|| format!("the Node object {}", node.name))?;
        }
        let log_path = directory.join("kubelet.log");
        let log = fs::File::create(&log_path)?;
        let mut command = netns.command(current_exe()?);
        command.args(["internal", "node", "--home"]).arg(self.home.path()).args(["--node", &node.name]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        kill_with_parent(&mut command);
        let mut child = Command::from(command).kill_on_drop(true).spawn().context("cannot start a process")?;
        let stdin = child.stdin.take().context("no standard input")?;
        tokio::spawn(send_plans(stdin, self.plans.subscribe()));
        let stdout = child.stdout.take().context("no standard output")?;
        let (name, sender) = (node.name.clone(), self.sender.clone());
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let _ = sender.send((name.clone(), Progress::read(&line)));
            }
            let _ = sender.send((name, Progress::Failed(format!("its processes have ended: {}", log_tail(&log_path)))));
        });
        self.processes.insert(node.name.clone(), child);
        Ok(())
    }

    /// Creates the Node object with the Pod CIDRs of the plan, which a real kubelet cannot set. It fills in the rest.
    async fn create_object(&self, node: &Node) -> Result<()> {
        let cidrs = node.pod_cidrs.map(|cidr| cidr.to_string());
        let spec =
            NodeSpec { pod_cidr: cidrs.first().cloned(), pod_cidrs: Some(cidrs.to_vec()), ..NodeSpec::default() };
        let metadata = ObjectMeta { name: Some(node.name.clone()), ..ObjectMeta::default() };
        let object = NodeObject { metadata, spec: Some(spec), status: None };
        Api::all(self.client.clone()).create(&PostParams::default(), &object).await?;
        Ok(())
    }
}

/// Sends the plan, and each later one, to a Node until it ends.
async fn send_plans(mut stdin: ChildStdin, mut plans: watch::Receiver<Plan>) {
    loop {
        let Ok(line) = serde_json::to_string(&*plans.borrow_and_update()) else { return };
        if stdin.write_all(format!("{line}\n").as_bytes()).await.is_err() || plans.changed().await.is_err() {
            return;
        }
    }
}

/// The object to delete may not exist.
fn gone<T>(outcome: kube::Result<T>) -> kube::Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        outcome => outcome.map(drop),
    }
}
