//! Looks after the authority in the cluster: made once, published, replaced in time.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base64::Engine as _;
use k8s::{Client, Kept, Outcome};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};
use types::ObjectName;
use types::config_map::ConfigMap;

use super::{Authorities, LEAF_LIFE};

const NAMESPACE: &str = "kube-system";
const SECRET: &str = "antrea-ca-key";
const CONFIG_MAP: &str = "antrea-ca";
const CERTIFICATE: &str = "ca.crt";
/// How often it is looked whether the authority is still the one that is known here.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How long to wait after a failure at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(20));

/// Looks after the authority.
pub(crate) struct Keeper {
    client: Client,
    leads: watch::Receiver<bool>,
}

impl Keeper {
    pub(crate) fn new(client: Client, leads: watch::Receiver<bool>) -> Self {
        Self { client, leads }
    }

    /// The authority of the cluster, which is made if there is none; tries until it has it.
    pub(crate) async fn first(&self) -> Arc<Authorities> {
        let mut pause = PAUSES.0;
        loop {
            match self.obtain().await {
                Ok((_, authorities)) => return Arc::new(authorities),
                Err(error) => {
                    warn!("waiting for the authority of certificates in Secret {NAMESPACE}/{SECRET}: {error:#}");
                }
            }
            sleep_until(Instant::now() + pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Follows the authority, replaces it in time if this replica writes, and tells of every change, for ever.
    pub(crate) async fn keep(self, authorities: watch::Sender<Arc<Authorities>>) {
        let mut leads = self.leads.clone();
        loop {
            let known = Arc::clone(&authorities.borrow());
            match self.look(&known).await {
                Ok(Some(new)) => {
                    info!("the authority of certificates has changed");
                    authorities.send_replace(Arc::new(new));
                }
                Ok(None) => {}
                Err(error) => warn!("cannot look after the authority of certificates, and will try again: {error:#}"),
            }
            tokio::select! {
                () = sleep_until(Instant::now() + LOOK_EVERY) => {}
                // Whoever begins to write sees at once what there is to write.
                Ok(()) = leads.changed() => {}
            }
        }
    }

    async fn look(&self, known: &Authorities) -> Result<Option<Authorities>> {
        let (kept, mut current) = self.obtain().await?;
        if *self.leads.borrow() {
            // Whoever will sign is known before: it may be that the replica that made it could not say so.
            if let Err(error) = self.publish(&current).await {
                warn!("nobody new signs before it is known, and that cannot be said: {error:#}");
                return Ok((current != *known).then_some(current));
            }
            if let Some(turned) = current.turn(now())? {
                // In place of what was turned, and of nothing else: another leader may have turned it in the meantime.
                let written = self.client.write_secret(&named(SECRET), &kept, turned.to_data()?).await?;
                if written == Outcome::TooLate {
                    return Ok(None);
                }
                current = turned;
                self.publish(&current).await?;
            }
        }
        Ok((current != *known).then_some(current))
    }

    /// The authority, and what it was read from. The Secret is a part of the deployment, and empty before the first replica comes:
    /// who may make one Secret may make any.
    async fn obtain(&self) -> Result<(Kept, Authorities)> {
        for _ in 0..2 {
            let kept = self.client.secret(&named(SECRET)).await?.with_context(|| missing("Secret", SECRET))?;
            if !kept.data.is_empty() {
                let damaged = || {
                    format!(
                        "Secret {NAMESPACE}/{SECRET} is damaged; delete it and apply the manifest again, and a new authority is made"
                    )
                };
                let authorities = Authorities::from_data(&kept.data).with_context(damaged)?;
                return Ok((kept, authorities));
            }
            let new = Authorities::new(now())?;
            if self.client.write_secret(&named(SECRET), &kept, new.to_data()?).await? == Outcome::Written {
                info!("made an authority of certificates, in Secret {NAMESPACE}/{SECRET}");
                self.publish(&new).await?;
            }
            // Written here or by another replica that was first, it is read next.
        }
        anyhow::bail!("Secret {NAMESPACE}/{SECRET} comes and goes")
    }

    /// Tells everybody whom to believe.
    async fn publish(&self, authorities: &Authorities) -> Result<()> {
        let bundle = authorities.bundle();
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
            // Agents do without it.
            warn!("the API server does not learn whom to believe: {error}");
        }
        Ok(())
    }
}

/// What to do about an object that is not there.
fn missing(kind: &str, name: &str) -> String {
    format!("{kind} {NAMESPACE}/{name} is missing; deploy/kubernetes/antrea-controller.yml has it, to be filled here")
}

fn named(name: &str) -> ObjectName {
    ObjectName { namespace: NAMESPACE.to_owned(), name: name.to_owned() }
}

/// The time, since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// When a replica's own certificate is to be replaced, after it was made.
pub(crate) const RENEW_LEAF: Duration = Duration::from_secs(LEAF_LIFE.as_secs() / 2);
