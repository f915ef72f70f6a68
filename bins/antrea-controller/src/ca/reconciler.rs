//! Creates, publishes and rotates the CA in the cluster.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base64::Engine as _;
use k8s::{Client, Outcome, SecretContent};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};
use types::ObjectName;
use types::config_map::ConfigMap;

use super::{CaState, LEAF_LIFETIME};

const NAMESPACE: &str = "kube-system";
const SECRET: &str = "antrea-ca-key";
const CONFIG_MAP: &str = "antrea-ca";
const CERTIFICATE: &str = "ca.crt";
const APPLY_MANIFEST: &str = "apply deploy/kubernetes/antrea-controller.yml";
const RESYNC_INTERVAL: Duration = Duration::from_secs(15);
/// First and largest delay after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(20));

pub(crate) struct CaReconciler {
    client: Client,
    leads: watch::Receiver<bool>,
}

impl CaReconciler {
    pub(crate) fn new(client: Client, leads: watch::Receiver<bool>) -> Self {
        Self { client, leads }
    }

    /// Reads the CA, or creates it if there is none. Retries until it succeeds.
    pub(crate) async fn first(&self) -> Arc<CaState> {
        let mut backoff = BACKOFF.0;
        loop {
            match self.obtain().await {
                Ok((_, state)) => return Arc::new(state),
                Err(error) => {
                    warn!("waiting for the CA in Secret {NAMESPACE}/{SECRET}: {error:#}");
                }
            }
            sleep_until(Instant::now() + backoff).await;
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }

    /// Reconciles the CA in a loop, and sends every change to `state`. Only the leader publishes and rotates.
    pub(crate) async fn run(self, state: watch::Sender<Arc<CaState>>) {
        let mut leads = self.leads.clone();
        loop {
            let known = Arc::clone(&state.borrow());
            match self.reconcile(&known).await {
                Ok(Some(new)) => {
                    info!("loaded a new CA from Secret {NAMESPACE}/{SECRET}");
                    state.send_replace(Arc::new(new));
                }
                Ok(None) => {}
                Err(error) => warn!("cannot reconcile the CA; retrying: {error:#}"),
            }
            tokio::select! {
                () = sleep_until(Instant::now() + RESYNC_INTERVAL) => {}
                // A new leader reconciles at once.
                Ok(()) = leads.changed() => {}
            }
        }
    }

    async fn reconcile(&self, known: &CaState) -> Result<Option<CaState>> {
        let (secret, mut current) = self.obtain().await?;
        if *self.leads.borrow() {
            // Before any rotation: the replica that created the next CA may have failed to publish it.
            if let Err(error) = self.publish(&current).await {
                warn!("CA rotation postponed: cannot publish the next CA certificate: {error:#}");
                return Ok((current != *known).then_some(current));
            }
            if let Some(rotated) = current.rotate(now())? {
                // Fails if another leader has rotated in the meantime.
                let written = self.client.write_secret(&named(SECRET), &secret, rotated.to_data()?).await?;
                if written == Outcome::Conflict {
                    return Ok(None);
                }
                current = rotated;
                self.publish(&current).await?;
            }
        }
        Ok((current != *known).then_some(current))
    }

    /// Reads the CA and its Secret, or creates the CA. The Secret is part of the manifest, and empty at first: a role that can create
    /// one Secret can create any.
    async fn obtain(&self) -> Result<(SecretContent, CaState)> {
        for _ in 0..2 {
            let secret = self.client.secret(&named(SECRET)).await?.with_context(|| missing("Secret", SECRET))?;
            if !secret.data.is_empty() {
                let damaged = || {
                    format!(
                        "Secret {NAMESPACE}/{SECRET} cannot be parsed; to get a new CA, delete it and {APPLY_MANIFEST}"
                    )
                };
                let state = CaState::from_data(&secret.data).with_context(damaged)?;
                return Ok((secret, state));
            }
            let new = CaState::new(now())?;
            if self.client.write_secret(&named(SECRET), &secret, new.to_data()?).await? == Outcome::Written {
                info!("created a CA in Secret {NAMESPACE}/{SECRET}");
                self.publish(&new).await?;
            }
            // Written here or by another replica; read it again.
        }
        anyhow::bail!("Secret {NAMESPACE}/{SECRET} was emptied while the CA was created")
    }

    /// Publishes the CA certificates for agents and for the API server.
    async fn publish(&self, state: &CaState) -> Result<()> {
        let bundle = state.bundle();
        let missing = || missing("ConfigMap", CONFIG_MAP);
        let published = self.client.get::<ConfigMap>(&named(CONFIG_MAP)).await?.with_context(missing)?;
        if published.data.get(CERTIFICATE) != Some(&bundle) {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE, "labels": {"app": "antrea"}},
                "data": {CERTIFICATE: bundle},
            });
            self.client.apply(&map).await?;
        }
        let encoded = base64::engine::general_purpose::STANDARD.encode(&bundle);
        let service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1beta2.controlplane.antrea.io"},
            "spec": {"caBundle": encoded},
        });
        if let Err(error) = self.client.apply(&service).await {
            // Agents do not need it.
            warn!("cannot update caBundle of APIService v1beta2.controlplane.antrea.io: {error}");
        }
        Ok(())
    }
}

fn missing(kind: &str, name: &str) -> String {
    format!("{kind} {NAMESPACE}/{name} not found; {APPLY_MANIFEST}")
}

fn named(name: &str) -> ObjectName {
    ObjectName { namespace: NAMESPACE.to_owned(), name: name.to_owned() }
}

/// The time, since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A serving certificate is replaced at this age.
pub(crate) const RENEW_LEAF: Duration = Duration::from_secs(LEAF_LIFETIME.as_secs() / 2);
