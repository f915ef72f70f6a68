//! The stream from the controller: discovery of replicas, batches of policies, status reports, and operation without a controller.
//!
//! One task owns the stream, so that local evaluations during an outage always come before the snapshot of the next stream, which
//! replaces them.

mod discovery;
mod snapshot_file;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use api::control::client::{Credentials, Following, Reporter, follow};
use delta::StableKey;
use k8s::{Client, RequestError};
use node::{Event, Interface};
use ovs::backoff::Backoff;
use policy::Waiting;
use tokio::sync::watch;
use tracing::{debug, info, warn};
use types::ObjectName;
use types::control::Report;
use types::network_policy::NetworkPolicy;
use types::pod::Pod;

use crate::engine::Engine;
use discovery::Discovered;
pub(crate) use discovery::SERVICE;
pub(crate) use snapshot_file::SnapshotFile;

/// After a start, how long to wait for the controller before the snapshot on disk is enforced.
const RESTORE_AFTER: Duration = Duration::from_secs(2);
/// How long an outage lasts before Pods are evaluated locally.
const EVALUATE_AFTER: Duration = Duration::from_secs(1);
/// A stream that lasted this long resets the backoff.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// Minimum time between two status reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);

/// Task of the stream from the controller.
pub(crate) struct Control {
    pub(crate) client: Client,
    pub(crate) engine: Engine,
    /// Name of this Node.
    pub(crate) node: String,
    /// Namespace of the controller's Service and ConfigMap.
    pub(crate) namespace: String,
    pub(crate) snapshot_file: SnapshotFile,
    /// Address of the connected controller.
    pub(crate) connected: watch::Sender<Option<SocketAddr>>,
    /// Whether the missing permission to read Pods has been logged.
    pub(crate) forbidden_logged: AtomicBool,
}

impl Control {
    /// Runs until the agent stops.
    pub(crate) async fn run(self) {
        let mut discovered = discovery::find(&self.client, &self.namespace);
        let has_snapshot = self.snapshot_file.exists();
        tokio::spawn(restore_last_snapshot(self.engine.clone(), self.snapshot_file.clone()));
        tokio::spawn(self.snapshot_file.clone().run(self.engine.clone()));
        let mut backoff =
            Backoff::new(Duration::from_millis(100), Duration::from_secs(10)).seeded(self.node.stable_hash());
        loop {
            let following = tokio::select! {
                following = self.connect(&mut discovered, &mut backoff, has_snapshot) => following,
                () = self.run_without_controller() => return,
            };
            let (address, following) = following;
            info!(%address, "connected to antrea-controller");
            self.connected.send_replace(Some(address));
            let since = Instant::now();
            let reason = self.run_stream(address, following, &mut discovered).await;
            self.connected.send_replace(None);
            warn!(%address, reason, "disconnected from antrea-controller; the last policies stay enforced");
            if since.elapsed() >= STABLE_AFTER {
                backoff.reset();
            } else {
                // The stream broke soon: reconnect with a delay, since many agents may do the same.
                let pause = tokio::time::sleep_until((Instant::now() + backoff.next_delay()).into());
                tokio::select! {
                    () = pause => {}
                    () = self.run_without_controller() => return,
                }
            }
        }
    }

    /// Connects to one of the replicas. Nodes start with different ones, which spreads them evenly.
    async fn connect(
        &self,
        discovered: &mut watch::Receiver<Discovered>,
        backoff: &mut Backoff,
        has_snapshot: bool,
    ) -> (SocketAddr, Following) {
        loop {
            let found = discovered.borrow_and_update().clone();
            if found.is_deployed {
                self.engine.send(Event::Policed).await;
            } else if found.is_synced && !has_snapshot {
                self.engine.send(Event::Unpoliced).await;
            }
            for address in found.addresses_for(&self.node) {
                match self.connect_to(address, &found).await {
                    Ok(following) => return (address, following),
                    Err(error) if backoff.is_news() => warn!(error, "cannot connect to antrea-controller; retrying"),
                    Err(error) => debug!(error, "cannot connect to antrea-controller; retrying"),
                }
            }
            let wake = match found.addresses.is_empty() {
                true => None,
                false => Some(Instant::now() + backoff.next_delay()),
            };
            tokio::select! {
                () = sleep_until(wake) => {}
                changed = discovered.changed() => if changed.is_err() { std::future::pending().await },
            }
        }
    }

    async fn connect_to(&self, address: SocketAddr, found: &Discovered) -> Result<Following, String> {
        let Some(ca_bundle) = found.ca_bundle.clone() else {
            return Err(format!("ConfigMap {}/{}: data has no `ca.crt` yet", self.namespace, discovery::CONFIG_MAP));
        };
        let token = self.client.token().await.map_err(|error| error.to_string())?;
        let server_name = format!("{}.{}.svc", discovery::SERVICE, self.namespace);
        let credentials = Credentials { ca_bundle, token, server_name };
        follow(address, &credentials, &self.node).await.map_err(|error| error.to_string())
    }

    /// Receives batches and sends reports until the stream ends; returns the reason.
    async fn run_stream(
        &self,
        address: SocketAddr,
        mut following: Following,
        discovered: &mut watch::Receiver<Discovered>,
    ) -> String {
        let reporter = following.reporter();
        let batches = async {
            loop {
                let batch = match following.next().await {
                    Ok(batch) => batch,
                    Err(error) => return error.to_string(),
                };
                debug!(
                    snapshot = batch.snapshot,
                    changes = batch.changes.len(),
                    "received a batch from antrea-controller"
                );
                if let Err(error) = self.engine.enforce(batch).await {
                    return error.to_string();
                }
                self.snapshot_file.changed();
            }
        };
        let replaced = async {
            let gone =
                |discovered: &Discovered| !discovered.addresses.is_empty() && !discovered.addresses.contains(&address);
            let waited = discovered.wait_for(gone).await.map(|_| ());
            match waited {
                Ok(()) => "its address is no longer a ready endpoint of its Service".to_owned(),
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            reason = batches => reason,
            reason = self.report(reporter) => reason,
            reason = replaced => reason,
        }
    }

    /// Sends the status of all policies, and then changes; returns why it ended.
    async fn report(&self, reporter: Reporter) -> String {
        let mut progress = self.engine.progress();
        let mut sent: BTreeMap<ObjectName, Report> = BTreeMap::new();
        let mut reported = 0;
        loop {
            if progress.wait_for(|progress| progress.enforced != reported).await.is_err() {
                return stopped();
            }
            // The brain may be ahead of the switch.
            let query = |brain: &node::Brain| (brain.policy_version(), brain.reports());
            let Ok((version, reports)) = self.engine.query(query).await else { return stopped() };
            let enforced = progress.wait_for(|progress| progress.enforced >= version).await.map(|now| now.enforced);
            match enforced {
                Ok(enforced) if enforced == version => reported = version,
                Ok(_) => continue,
                Err(_) => return stopped(),
            }
            let now: BTreeMap<ObjectName, Report> =
                reports.into_iter().map(|report| (report.policy.clone(), report)).collect();
            let news = now.iter().filter(|(policy, report)| sent.get(*policy) != Some(*report));
            let news: Vec<Report> = news.map(|(_, report)| report.clone()).collect();
            if let Err(error) = reporter.report(news).await {
                return error.to_string();
            }
            sent = now;
            tokio::time::sleep_until((Instant::now() + REPORT_INTERVAL).into()).await;
        }
    }

    /// During an outage: evaluates policies for waiting Pods. Ends only when the agent stops.
    async fn run_without_controller(&self) {
        tokio::time::sleep_until((Instant::now() + EVALUATE_AFTER).into()).await;
        let mut progress = self.engine.progress();
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            if progress.wait_for(|progress| progress.held > 0 && progress.ready).await.is_err() {
                return;
            }
            let held = |brain: &node::Brain| brain.held().cloned().collect::<Vec<_>>();
            let Ok(held) = self.engine.query(held).await else { return };
            for interface in held {
                let pod = &interface.pod;
                let reason = match self.evaluate_locally(&interface).await {
                    Ok(Some(policies)) => {
                        warn!(%pod, policies, "antrea-controller is not available; enforcing the policies of the Pod's namespace");
                        continue;
                    }
                    Ok(None) => "the Kubernetes API has no such Pod".to_owned(),
                    Err(error) => error.to_string(),
                };
                if backoff.is_news() {
                    warn!(%pod, reason, "antrea-controller is not available; the Pod waits for its policies");
                }
            }
            tokio::time::sleep_until((Instant::now() + backoff.next_delay()).into()).await;
        }
    }

    /// Evaluates the policies of a waiting Pod's namespace. Returns their number, or `None` if the Pod does not exist.
    async fn evaluate_locally(&self, interface: &Interface) -> Result<Option<usize>, RequestError> {
        let pod = &interface.pod;
        let waiting = match self.client.get::<Pod>(pod).await {
            Ok(Some(object)) => Waiting::Read(Box::new(object)),
            Ok(None) => return Ok(None),
            Err(error) if error.is_forbidden() => {
                if !self.forbidden_logged.swap(true, Ordering::Relaxed) {
                    warn!(
                        "while antrea-controller is not available, every policy of a new Pod's namespace that may select the \
                         Pod isolates it: the agent has no permission to read Pods; deploy/kubernetes/read-pods.yml grants it"
                    );
                }
                Waiting::Unread { pod: pod.clone(), uid: interface.uid.clone() }
            }
            Err(error) => return Err(error),
        };
        let policies = self.client.all::<NetworkPolicy>(&pod.namespace).await?;
        let count = policies.len();
        self.engine.evaluate_locally(waiting, policies).await;
        self.snapshot_file.changed();
        Ok(Some(count))
    }
}

/// After a start without a controller, enforces the snapshot on disk.
async fn restore_last_snapshot(engine: Engine, snapshot_file: SnapshotFile) {
    let mut progress = engine.progress();
    let received = progress.wait_for(|progress| progress.enforced > 0);
    if tokio::time::timeout(RESTORE_AFTER, received).await.is_ok() {
        return;
    }
    if let Some(batch) = snapshot_file.load().await {
        info!(
            changes = batch.changes.len(),
            "antrea-controller is not available; enforcing the policy snapshot on disk"
        );
        if let Err(error) = engine.enforce_restored(batch).await {
            warn!(%error, "cannot enforce the policy snapshot on disk");
        }
    }
}

fn stopped() -> String {
    crate::engine::Stopped.to_string()
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
