//! The rim of the controller's stream: discovers replicas, connects, receives batches, sends reports, and reads policies from disk
//! or from the Kubernetes API when the brain asks for them.

mod discovery;
mod snapshot_file;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::control::client::{Credentials, Following, follow};
use k8s::Client;
use node::{ControllerEvent, Discovery, Event};
use policy::Waiting;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tracing::{debug, warn};
use types::ObjectName;
use types::control::Report;
use types::network_policy::NetworkPolicy;
use types::pod::Pod;

use crate::engine::Engine;
use discovery::Discovered;
pub(crate) use discovery::SERVICE;
pub(crate) use snapshot_file::SnapshotFile;

/// Reports that wait to be sent; a controller that does not take them is disconnected.
const MAX_REPORTS: usize = 64;

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error("ConfigMap {0}/{name}: data has no `ca.crt` yet", name = discovery::CONFIG_MAP)]
    NoCa(String),
    #[error(transparent)]
    Token(#[from] k8s::TokenError),
    #[error(transparent)]
    Stream(#[from] api::control::client::Error),
}

/// The rim of the controller's stream.
#[derive(Clone)]
pub(crate) struct Control {
    client: Client,
    engine: Engine,
    /// Name of this Node.
    node: String,
    /// Namespace of the controller's Service and ConfigMap.
    namespace: String,
    snapshot_file: SnapshotFile,
    discovered: watch::Receiver<Discovered>,
    stream: Arc<Mutex<Option<Stream>>>,
    /// Whether the missing permission to read Pods has been logged.
    forbidden_logged: Arc<AtomicBool>,
}

/// The current attempt to connect, or the established stream.
struct Stream {
    attempt: u64,
    task: AbortHandle,
    reports: mpsc::Sender<Vec<Report>>,
}

impl Control {
    /// Starts to discover the controller.
    pub(crate) fn start(
        client: Client,
        engine: Engine,
        node: &str,
        namespace: String,
        snapshot_file: SnapshotFile,
    ) -> Self {
        let discovered = discovery::find(&client, &namespace);
        tokio::spawn(announce(discovered.clone(), engine.clone(), snapshot_file.exists()));
        tokio::spawn(snapshot_file.clone().run(engine.clone()));
        let (node, stream, forbidden_logged) = (node.to_owned(), Arc::default(), Arc::default());
        Self { client, engine, node, namespace, snapshot_file, discovered, stream, forbidden_logged }
    }

    fn stream(&self) -> MutexGuard<'_, Option<Stream>> {
        // The value stays consistent even if a thread panics while it holds the lock.
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects to a replica, instead of an earlier attempt.
    pub(crate) fn connect(&self, attempt: u64, address: SocketAddr) {
        let (reports, outgoing) = mpsc::channel(MAX_REPORTS);
        let this = self.clone();
        let task = tokio::spawn(async move {
            let reason = match this.open(address).await {
                Ok(following) => this.run(attempt, following, outgoing).await,
                Err(error) => error.to_string(),
            };
            this.engine.send(Event::Controller(ControllerEvent::Disconnected { attempt, reason })).await;
        });
        let before = self.stream().replace(Stream { attempt, task: task.abort_handle(), reports });
        if let Some(before) = before {
            before.task.abort();
        }
    }

    pub(crate) fn disconnect(&self, reason: &str) {
        debug!(reason, "ending the stream of antrea-controller");
        if let Some(stream) = self.stream().take() {
            stream.task.abort();
        }
    }

    async fn open(&self, address: SocketAddr) -> Result<Following, ConnectError> {
        let missing = || ConnectError::NoCa(self.namespace.clone());
        let ca_bundle = self.discovered.borrow().ca_bundle.clone().ok_or_else(missing)?;
        let token = self.client.token().await?;
        let server_name = format!("{}.{}.svc", discovery::SERVICE, self.namespace);
        let credentials = Credentials { ca_bundle, token, server_name };
        Ok(follow(address, &credentials, &self.node).await?)
    }

    /// Receives batches and sends reports until the stream ends; returns the reason.
    async fn run(&self, attempt: u64, mut following: Following, mut outgoing: mpsc::Receiver<Vec<Report>>) -> String {
        self.engine.deliver(Event::Controller(ControllerEvent::Connected { attempt })).await;
        let reporter = following.reporter();
        let batches = async {
            loop {
                let batch = match following.next().await {
                    Ok(batch) => batch,
                    Err(error) => return error.to_string(),
                };
                let (snapshot, changes) = (batch.snapshot, batch.changes.len());
                debug!(snapshot, changes, "received a batch from antrea-controller");
                // The next batch is read when this one is taken: the controller merges changes meanwhile.
                self.engine.deliver(Event::Controller(ControllerEvent::Batch { attempt, batch })).await;
            }
        };
        let reports = async {
            while let Some(reports) = outgoing.recv().await {
                if let Err(error) = reporter.report(reports).await {
                    return error.to_string();
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            reason = batches => reason,
            reason = reports => reason,
        }
    }

    pub(crate) fn report(&self, reports: Vec<Report>) {
        let mut stream = self.stream();
        let Some(current) = &*stream else { return };
        if current.reports.try_send(reports).is_err() {
            let (attempt, engine) = (current.attempt, self.engine.clone());
            current.task.abort();
            *stream = None;
            let reason = "it does not take reports".to_owned();
            tokio::spawn(async move {
                engine.send(Event::Controller(ControllerEvent::Disconnected { attempt, reason })).await;
            });
        }
    }

    pub(crate) fn restore_snapshot(&self) {
        let (file, engine) = (self.snapshot_file.clone(), self.engine.clone());
        tokio::spawn(async move {
            engine.send(Event::Controller(ControllerEvent::Restored(file.load().await))).await;
        });
    }

    pub(crate) fn save_snapshot(&self) {
        self.snapshot_file.changed();
    }

    pub(crate) fn read_policies(&self, pod: ObjectName, uid: String) {
        let this = self.clone();
        tokio::spawn(async move {
            let outcome = this.read(&pod, uid).await;
            this.engine.send(Event::Controller(ControllerEvent::ReadPolicies { pod, outcome })).await;
        });
    }

    /// Reads a waiting Pod and the policies of its namespace.
    async fn read(&self, pod: &ObjectName, uid: String) -> Result<(Waiting, Vec<NetworkPolicy>), String> {
        let waiting = match self.client.get::<Pod>(pod).await {
            Ok(Some(object)) => Waiting::Read(Box::new(object)),
            Ok(None) => return Err("the Kubernetes API has no such Pod".to_owned()),
            Err(error) if error.is_forbidden() => {
                if !self.forbidden_logged.swap(true, Ordering::Relaxed) {
                    warn!(
                        "while antrea-controller is not available, every policy of a new Pod's namespace that may select the \
                         Pod isolates it: the agent has no permission to read Pods; deploy/kubernetes/optional/read-pods.yml grants it"
                    );
                }
                Waiting::Unread { pod: pod.clone(), uid }
            }
            Err(error) => return Err(error.to_string()),
        };
        let policies = self.client.all::<NetworkPolicy>(&pod.namespace).await.map_err(|error| error.to_string())?;
        Ok((waiting, policies))
    }
}

/// Passes what is discovered to the brain, until the agent stops.
async fn announce(mut discovered: watch::Receiver<Discovered>, engine: Engine, has_snapshot: bool) {
    loop {
        let Discovered { is_synced, is_deployed, addresses, .. } = discovered.borrow_and_update().clone();
        let discovery = Discovery { is_synced, is_deployed, has_snapshot, addresses };
        engine.send(Event::Controller(ControllerEvent::Discovered(discovery))).await;
        if discovered.changed().await.is_err() {
            return;
        }
    }
}
