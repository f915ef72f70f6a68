//! What the controller says of policies: who says it, what is reported back, and what is done while nobody does.
//!
//! One task has the stream, so that what is presumed of Pods while there is none comes before the snapshot that the next one
//! begins with, and is replaced by it.

mod discovery;
mod memory;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use api::control::client::{Credentials, Following, Reporter, follow};
use delta::StableKey;
use k8s::Client;
use node::Event;
use ovs::backoff::Backoff;
use tokio::sync::watch;
use tracing::{debug, info, warn};
use types::ObjectName;
use types::control::Report;
use types::network_policy::NetworkPolicy;
use types::pod::Pod;

use crate::engine::Engine;
use discovery::Places;
pub(crate) use memory::Memory;

/// How long the controller may be silent at the start before what it said last is enforced.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a stream may be away before Pods are judged without it.
const ABSENCE: Duration = Duration::from_secs(1);
/// A stream that lasted this long was a good one.
const STEADY: Duration = Duration::from_secs(10);
/// How long what was enforced is gathered before it is reported.
const GATHER: Duration = Duration::from_millis(50);

/// Follows the controller.
pub(crate) struct Control {
    pub(crate) client: Client,
    pub(crate) engine: Engine,
    /// This Node.
    pub(crate) node: String,
    /// Where the controller's Service and ConfigMap are.
    pub(crate) namespace: String,
    pub(crate) memory: Memory,
    /// The controller that is followed.
    pub(crate) followed: watch::Sender<Option<SocketAddr>>,
}

impl Control {
    /// Follows the controller for ever.
    pub(crate) async fn run(self) {
        let mut places = discovery::find(&self.client, &self.namespace);
        let remembered = self.memory.is_there();
        tokio::spawn(remember(self.engine.clone(), self.memory.clone()));
        tokio::spawn(self.memory.clone().keep(self.engine.clone()));
        let mut backoff =
            Backoff::new(Duration::from_millis(100), Duration::from_secs(10)).seeded(self.node.stable_hash());
        loop {
            let following = tokio::select! {
                following = self.connect(&mut places, &mut backoff, remembered) => following,
                () = self.stand_in() => return,
            };
            let (address, following) = following;
            info!(%address, "following antrea-controller");
            self.followed.send_replace(Some(address));
            let since = Instant::now();
            let reason = self.converse(address, following, &mut places).await;
            self.followed.send_replace(None);
            warn!(%address, reason, "antrea-controller is no longer followed; what it said stays enforced");
            if since.elapsed() >= STEADY {
                backoff.reset();
            } else {
                // It was let in and could not stay: to come again at once would not help, and many do.
                let pause = tokio::time::sleep_until((Instant::now() + backoff.next_delay()).into());
                tokio::select! {
                    () = pause => {}
                    () = self.stand_in() => return,
                }
            }
        }
    }

    /// A stream from any of the replicas. Each Node begins with another one, so that all have about as many.
    async fn connect(
        &self,
        places: &mut watch::Receiver<Places>,
        backoff: &mut Backoff,
        remembered: bool,
    ) -> (SocketAddr, Following) {
        loop {
            let here = places.borrow_and_update().clone();
            if here.is_deployed {
                self.engine.tell(Event::Policed).await;
            } else if here.is_known && !remembered {
                self.engine.tell(Event::Unpoliced).await;
            }
            for address in here.addresses_for(&self.node) {
                match self.try_one(address, &here).await {
                    Ok(following) => return (address, following),
                    Err(error) if backoff.is_news() => warn!(error, "trying again"),
                    Err(error) => debug!(error, "trying again"),
                }
            }
            let wake = match here.addresses.is_empty() {
                true => None,
                false => Some(Instant::now() + backoff.next_delay()),
            };
            tokio::select! {
                () = sleep_until(wake) => {}
                changed = places.changed() => if changed.is_err() { std::future::pending().await },
            }
        }
    }

    async fn try_one(&self, address: SocketAddr, here: &Places) -> Result<Following, String> {
        let Some(authorities) = here.authorities.clone() else {
            return Err(format!("ConfigMap {}/{}: waiting for its `ca.crt`", self.namespace, discovery::CONFIG_MAP));
        };
        let token = self.client.token().await.map_err(|error| error.to_string())?;
        let server_name = format!("{}.{}.svc", discovery::SERVICE, self.namespace);
        let credentials = Credentials { authorities, token, server_name };
        follow(address, &credentials, &self.node).await.map_err(|error| error.to_string())
    }

    /// Takes what a controller says until it says no more; why that is.
    async fn converse(
        &self,
        address: SocketAddr,
        mut following: Following,
        places: &mut watch::Receiver<Places>,
    ) -> String {
        let reporter = following.reporter();
        let batches = async {
            loop {
                let batch = match following.next().await {
                    Ok(batch) => batch,
                    Err(error) => return error.to_string(),
                };
                debug!(snapshot = batch.snapshot, changes = batch.changes.len(), "antrea-controller says");
                if let Err(error) = self.engine.enforce(batch).await {
                    return error.to_string();
                }
                self.memory.changed();
            }
        };
        let replaced = async {
            let gone = |places: &Places| !places.addresses.is_empty() && !places.addresses.contains(&address);
            let waited = places.wait_for(gone).await.map(|_| ());
            match waited {
                Ok(()) => "it is no longer among its Service's endpoints".to_owned(),
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            reason = batches => reason,
            reason = self.report(reporter) => reason,
            reason = replaced => reason,
        }
    }

    /// Reports what is enforced, all of it first and then what changes; why it cannot.
    async fn report(&self, reporter: Reporter) -> String {
        let mut progress = self.engine.progress();
        let mut told: BTreeMap<ObjectName, Report> = BTreeMap::new();
        let mut reported = 0;
        loop {
            if progress.wait_for(|progress| progress.enforced != reported).await.is_err() {
                return stopped();
            }
            // What the brain holds now may be ahead of the switch.
            let look = |brain: &node::Brain| (brain.policy_version(), brain.reports());
            let Ok((version, reports)) = self.engine.look(look).await else { return stopped() };
            let enforced = progress.wait_for(|progress| progress.enforced >= version).await.map(|now| now.enforced);
            match enforced {
                Ok(enforced) if enforced == version => reported = version,
                Ok(_) => continue,
                Err(_) => return stopped(),
            }
            let now: BTreeMap<ObjectName, Report> =
                reports.into_iter().map(|report| (report.policy.clone(), report)).collect();
            let news = now.iter().filter(|(policy, report)| told.get(*policy) != Some(*report));
            let news: Vec<Report> = news.map(|(_, report)| report.clone()).collect();
            if let Err(error) = reporter.report(news).await {
                return error.to_string();
            }
            told = now;
            tokio::time::sleep_until((Instant::now() + GATHER).into()).await;
        }
    }

    /// While nobody is followed: finds out for Pods that wait which policies they have. Ends with the agent only.
    async fn stand_in(&self) {
        tokio::time::sleep_until((Instant::now() + ABSENCE).into()).await;
        let mut progress = self.engine.progress();
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            if progress.wait_for(|progress| progress.held > 0 && progress.ready).await.is_err() {
                return;
            }
            let held = |brain: &node::Brain| brain.held().map(|interface| interface.pod.clone()).collect::<Vec<_>>();
            let Ok(held) = self.engine.look(held).await else { return };
            for pod in held {
                let complaint = match self.judge(&pod).await {
                    Ok(Some(policies)) => {
                        warn!(%pod, policies, "antrea-controller is away; judged by the policies of its namespace");
                        continue;
                    }
                    Ok(None) => "the Kubernetes API does not know it".to_owned(),
                    Err(error) => error.to_string(),
                };
                if backoff.is_news() {
                    warn!(%pod, complaint, "antrea-controller is away, and this Pod waits");
                }
            }
            tokio::time::sleep_until((Instant::now() + backoff.next_delay()).into()).await;
        }
    }

    /// Has the engine judge a Pod that the controller has not seen, if it exists; the number of policies in its namespace.
    async fn judge(&self, pod: &ObjectName) -> Result<Option<usize>, impl Display> {
        let Some(object) = self.client.get::<Pod>(pod).await? else { return Ok(None) };
        let policies = self.client.all::<NetworkPolicy>(&pod.namespace).await?;
        let count = policies.len();
        self.engine.presume(object, policies).await;
        self.memory.changed();
        Ok::<_, k8s::RequestError>(Some(count))
    }
}

/// Enforces what the controller said last, if it stays silent at the start.
async fn remember(engine: Engine, memory: Memory) {
    let mut progress = engine.progress();
    let heard = progress.wait_for(|progress| progress.enforced > 0);
    if tokio::time::timeout(SILENCE, heard).await.is_ok() {
        return;
    }
    if let Some(batch) = memory.recall().await {
        info!(changes = batch.changes.len(), "antrea-controller is silent; what it said last is enforced");
        if let Err(error) = engine.enforce_remembered(batch).await {
            warn!(%error, "what is remembered of policies cannot be used");
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
