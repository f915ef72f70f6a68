//! A small kubelet: runs the Pods that are bound to its Node.
//!
//! One task watches the Pods and starts a worker for each; the worker is the only owner of the state of its Pod.

mod capacity;
mod cni;
mod container_env;
pub(crate) mod image;
mod lifecycle;
mod pod;
mod pod_table;
mod probes;
mod retry;
mod run;
mod sandbox;
mod server;
mod status;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::{Timestamp, Unit};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use pod_table::PodTable;
pub(crate) use server::Credentials;

use crate::plan::{self, Network, Node, Plan};
use crate::state::Home;

/// Interval of the Node's heartbeat; after four missed ones, the real control plane marks the Node as not ready.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The context that all Pods of the Node share.
pub(crate) struct Context {
    pub(crate) client: kube::Client,
    pub(crate) node: Node,
    pub(crate) home: Home,
    /// Whether Pods compute checksums: the userspace datapath of Open vSwitch takes a missing checksum for an invalid one.
    pub(crate) checksums: bool,
    /// The Pods, for the server.
    pub(crate) pods: PodTable,
}

/// The kubelet of a Node.
pub(crate) struct Kubelet {
    context: Arc<Context>,
}

impl Kubelet {
    /// Connects to the API, and creates the Node object, which is not ready yet.
    pub(crate) async fn register(home: &Home, plan: &Plan, node: &Node) -> Result<Self> {
        let client = crate::client::connect(&home.kubelet_kubeconfig(&node.name)).await?;
        let checksums = plan.network == Network::Antrea;
        let (node_plan, home, pods) = (node.clone(), home.clone(), PodTable::default());
        let context = Arc::new(Context { client, node: node_plan, home, checksums, pods });
        server::start(context.clone()).await.context("the kubelet's server")?;
        retry::retry(&format!("register Node {}", node.name), retry::START, || context.register()).await?;
        Ok(Self { context })
    }

    /// Marks the Node as ready for Pods.
    pub(crate) async fn ready(&self) -> Result<()> {
        let context = &self.context;
        let what = format!("write the status of Node {}", context.node.name);
        retry::retry(&what, retry::START, || context.set_ready(true, "KubeletReady", "the network is up")).await
    }

    /// Runs Pods until the watch ends with an error.
    pub(crate) async fn run(self) -> Result<()> {
        let api: Api<core::Pod> = Api::all(self.context.client.clone());
        let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", self.context.node.name));
        let mut events = watcher(api, mine).default_backoff().boxed();
        let (ended, mut ends) = mpsc::unbounded_channel();
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        let mut pods = Pods { context: self.context, workers: BTreeMap::new(), ended };
        let mut listed = Vec::new();
        loop {
            tokio::select! {
                event = events.try_next() => match event {
                    Ok(Some(watcher::Event::Apply(pod))) => pods.update(pod),
                    Ok(Some(watcher::Event::Delete(pod))) => pods.gone(&uid(&pod)),
                    Ok(Some(watcher::Event::Init)) => listed.clear(),
                    Ok(Some(watcher::Event::InitApply(pod))) => {
                        listed.push(uid(&pod));
                        pods.update(pod);
                    }
                    Ok(Some(watcher::Event::InitDone)) => {
                        let lost: Vec<_> = pods.workers.keys().filter(|uid| !listed.contains(uid)).cloned().collect();
                        lost.iter().for_each(|uid| pods.gone(uid));
                    }
                    Ok(None) => anyhow::bail!("the watch of Pods has ended"),
                    Err(error) => tracing::warn!("watch of Pods: {error}"),
                },
                Some(uid) = ends.recv() => drop(pods.workers.remove(&uid)),
                _ = heartbeat.tick() => {
                    let context = pods.context.clone();
                    tokio::spawn(async move { context.renew_lease().await });
                }
            }
        }
    }
}

/// The state of a Pod object in the API.
#[derive(Clone, Debug)]
pub(crate) enum PodObject {
    Present(Box<core::Pod>),
    /// The object was deleted.
    Deleted,
}

struct Pods {
    context: Arc<Context>,
    workers: BTreeMap<String, watch::Sender<PodObject>>,
    ended: mpsc::UnboundedSender<String>,
}

impl Pods {
    fn update(&mut self, pod: core::Pod) {
        let uid = uid(&pod);
        if let Some(worker) = self.workers.get(&uid) {
            worker.send_replace(PodObject::Present(Box::new(pod)));
            return;
        }
        let (sender, receiver) = watch::channel(PodObject::Present(Box::new(pod.clone())));
        let (context, ended) = (self.context.clone(), self.ended.clone());
        self.workers.insert(uid.clone(), sender);
        tokio::spawn(async move {
            pod::run_pod(context, pod, receiver).await;
            let _ = ended.send(uid);
        });
    }

    fn gone(&mut self, uid: &str) {
        if let Some(worker) = self.workers.get(uid) {
            worker.send_replace(PodObject::Deleted);
        }
    }
}

fn uid(pod: &core::Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

impl Context {
    async fn register(&self) -> Result<()> {
        let nodes: Api<core::Node> = Api::all(self.client.clone());
        let name = self.node.name.as_str();
        let labels = [("kubernetes.io/hostname", name), ("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "amd64")];
        let cidrs: Vec<_> = self.node.pod_cidrs.iter().map(ToString::to_string).collect();
        let node = core::Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                ..ObjectMeta::default()
            },
            spec: Some(core::NodeSpec {
                pod_cidr: cidrs.first().cloned(),
                pod_cidrs: Some(cidrs),
                ..core::NodeSpec::default()
            }),
            status: None,
        };
        match nodes.create(&PostParams::default(), &node).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            result => drop(result?),
        }
        self.set_ready(false, "KubeletNotReady", "the network is not up yet").await
    }

    async fn renew_lease(&self) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-node-lease");
        let name = self.node.name.as_str();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": MicroTime(Timestamp::now())},
        });
        let params = PatchParams::apply("kubelet").force();
        if let Err(error) = leases.patch(name, &params, &Patch::Apply(&lease)).await {
            tracing::warn!("cannot renew the lease of the Node: {error}");
        }
    }

    async fn set_ready(&self, ready: bool, reason: &str, message: &str) -> Result<()> {
        let nodes: Api<core::Node> = Api::all(self.client.clone());
        let now = Timestamp::now().round(Unit::Second)?;
        let room = capacity::capacity()?;
        let condition = json!({
            "type": "Ready", "status": if ready { "True" } else { "False" }, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let status = json!({"status": {
            "conditions": [condition],
            "addresses": [
                {"type": "InternalIP", "address": self.node.ipv4},
                {"type": "InternalIP", "address": self.node.ipv6},
                {"type": "Hostname", "address": self.node.name},
            ],
            "capacity": room, "allocatable": room,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": server::PORT}},
            // The real API server then forwards WebSockets as they are.
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": kernel.trim(), "osImage": "antrea-lab",
                "containerRuntimeVersion": concat!("antrea-lab://", env!("CARGO_PKG_VERSION")),
                "kubeletVersion": concat!("v1.36.0-antrea-lab-", env!("CARGO_PKG_VERSION")),
                "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": std::env::consts::ARCH,
            },
        }});
        let patched = nodes.patch_status(&self.node.name, &PatchParams::default(), &Patch::Merge(&status)).await;
        patched.map(drop).context("the Node's status")
    }

    /// Addresses of the Node, IPv4 first.
    pub(crate) fn addresses(&self) -> Vec<String> {
        vec![self.node.ipv4.to_string(), self.node.ipv6.to_string()]
    }

    /// Directory of the files of a Pod in the directory of the lab.
    pub(crate) fn directory(&self, namespace: &str, pod: &str) -> PathBuf {
        self.home.pod(&self.node.name, namespace, pod)
    }

    /// Host and port of the Kubernetes API for Pods.
    pub(crate) fn api(&self) -> (String, String) {
        (plan::API.to_string(), plan::API_PORT.to_string())
    }

    /// Writes an event about a Pod. Errors are only logged, because the status contains the same information.
    pub(crate) async fn event(&self, pod: &core::Pod, kind: &str, reason: &str, message: &str) {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let events: Api<core::Event> = Api::namespaced(self.client.clone(), namespace);
        let now = Timestamp::now();
        let time = Time(now);
        let event = core::Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:x}", pod.metadata.name.as_deref().unwrap_or_default(), now.as_nanosecond())),
                ..ObjectMeta::default()
            },
            involved_object: core::ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: pod.metadata.name.clone(),
                namespace: Some(namespace.to_owned()),
                uid: pod.metadata.uid.clone(),
                ..core::ObjectReference::default()
            },
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            source: Some(core::EventSource { component: Some("kubelet".into()), host: Some(self.node.name.clone()) }),
            first_timestamp: Some(time.clone()),
            last_timestamp: Some(time),
            count: Some(1),
            ..core::Event::default()
        };
        if let Err(error) = events.create(&PostParams::default(), &event).await {
            tracing::warn!("cannot write an event: {error}");
        }
    }
}
