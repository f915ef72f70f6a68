//! Creates, publishes and rotates the CA in the cluster.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use k8s::{Client, Outcome, RequestError, SecretContent};
use reconcile::{Latest, Pass, Settings, Target};
use serde_json::json;
use tokio::sync::watch;
use tracing::info;
use types::ObjectName;
use types::config_map::ConfigMap;

use super::CaState;

const NAMESPACE: &str = "kube-system";
const SECRET: &str = "antrea-ca-key";
const CONFIG_MAP: &str = "antrea-ca";
const CERTIFICATE: &str = "ca.crt";
const APPLY_MANIFEST: &str = "apply deploy/kubernetes/antrea-controller.yml";
/// A replica loads a CA that the leader has rotated within the period.
const SETTINGS: Settings = Settings {
    period: Some(Duration::from_secs(15)),
    backoff: (Duration::from_millis(200), Duration::from_secs(20)),
    ..Settings::ON_CHANGE
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum CaError {
    #[error("{kind} {NAMESPACE}/{name} not found; {APPLY_MANIFEST}")]
    Missing { kind: &'static str, name: &'static str },
    #[error("Secret {NAMESPACE}/{SECRET} cannot be parsed: {0}; to get a new CA, delete it and {APPLY_MANIFEST}")]
    Damaged(#[source] serde_json::Error),
    #[error("Secret {NAMESPACE}/{SECRET} was emptied while the CA was created")]
    Emptied,
    #[error("cannot encode the CA: {0}")]
    Encode(#[source] serde_json::Error),
    #[error("cannot create a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("cannot publish the CA certificates, which postpones a rotation: {0}")]
    Publish(#[source] Box<CaError>),
    /// Agents do not need it.
    #[error("cannot update caBundle of APIService v1beta2.controlplane.antrea.io: {0}")]
    CaBundle(#[source] RequestError),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// The certificates in the ConfigMap.
    Published,
    /// The CA in the Secret.
    Rotated,
    /// The CA that this replica uses.
    Loaded,
}

type CaPass = Pass<Change, CaError>;

pub(crate) struct CaReconciler {
    client: Client,
}

impl CaReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Reads the CA, or creates it if there is none. Retries until it succeeds.
    pub(crate) async fn first(&self) -> Arc<CaState> {
        Arc::new(reconcile::retry("CA", SETTINGS.backoff, || self.obtain()).await.1)
    }

    /// Reconciles the CA until the program stops, and sends every change to `state`. Only the leader publishes and rotates.
    pub(crate) async fn run(self, leads: watch::Receiver<bool>, state: watch::Sender<Arc<CaState>>) {
        reconcile::run(SharedCa { reconciler: self, state }, Latest::new(leads), SETTINGS).await;
    }

    /// Reads the CA and its Secret, or creates the CA. The Secret is part of the manifest, and empty at first: a role that can create
    /// one Secret can create any.
    async fn obtain(&self) -> Result<(SecretContent, CaState), CaError> {
        for _ in 0..2 {
            let missing = CaError::Missing { kind: "Secret", name: SECRET };
            let secret = self.client.secret(&named(SECRET)).await?.ok_or(missing)?;
            if !secret.data.is_empty() {
                let state = CaState::from_data(&secret.data).map_err(CaError::Damaged)?;
                return Ok((secret, state));
            }
            let new = CaState::new(now())?;
            if self.write(&secret, &new).await? == Outcome::Written {
                info!("created a CA in Secret {NAMESPACE}/{SECRET}");
                self.publish(&new.bundle()).await?;
            }
            // Written here or by another replica; read it again.
        }
        Err(CaError::Emptied)
    }

    async fn write(&self, old: &SecretContent, new: &CaState) -> Result<Outcome, CaError> {
        let data = new.to_data().map_err(CaError::Encode)?;
        Ok(self.client.write_secret(&named(SECRET), old, data).await?)
    }

    /// Publishes and rotates the CA, as far as it is due.
    async fn lead(&self, secret: &SecretContent, mut current: CaState, pass: &mut CaPass) -> Result<CaState, CaError> {
        let mut published = self.published().await.map_err(|error| CaError::Publish(Box::new(error)))?;
        while let Some(step) = next_step(&current, published.as_deref(), now())? {
            match step {
                Step::Publish(bundle) => {
                    self.publish(&bundle).await.map_err(|error| CaError::Publish(Box::new(error)))?;
                    let is_rotated = pass.scheduled.contains(&Change::Rotated);
                    if is_rotated { &mut pass.scheduled } else { &mut pass.changes }.push(Change::Published);
                    published = Some(bundle);
                }
                // An expired CA is rotated twice: agents get some time to load the new certificates in between.
                Step::Rotate(_) if pass.scheduled.contains(&Change::Rotated) => break,
                Step::Rotate(rotated) => {
                    // Fails if another leader has rotated in the meantime.
                    if self.write(secret, &rotated).await? == Outcome::Conflict {
                        pass.incomplete = true;
                        return Ok(current);
                    }
                    pass.scheduled.push(Change::Rotated);
                    current = *rotated;
                }
            }
        }
        if let Err(error) = self.publish_ca_bundle(&current.bundle()).await {
            pass.failures.push(CaError::CaBundle(error));
        }
        Ok(current)
    }

    /// The certificates that agents trust.
    async fn published(&self) -> Result<Option<String>, CaError> {
        let missing = CaError::Missing { kind: "ConfigMap", name: CONFIG_MAP };
        let mut map = self.client.get::<ConfigMap>(&named(CONFIG_MAP)).await?.ok_or(missing)?;
        Ok(map.data.remove(CERTIFICATE))
    }

    async fn publish(&self, bundle: &str) -> Result<(), CaError> {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE, "labels": {"app": "antrea"}},
            "data": {CERTIFICATE: bundle},
        });
        Ok(self.client.apply(&map).await?)
    }

    /// Publishes the certificates for the API server.
    async fn publish_ca_bundle(&self, bundle: &str) -> Result<(), RequestError> {
        let encoded = base64::engine::general_purpose::STANDARD.encode(bundle);
        let service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1beta2.controlplane.antrea.io"},
            "spec": {"caBundle": encoded},
        });
        self.client.apply(&service).await
    }
}

/// What the leader does next.
#[derive(PartialEq)]
enum Step {
    /// Publishes these CA certificates.
    Publish(String),
    /// Replaces the CA in the Secret.
    Rotate(Box<CaState>),
}

/// The next step of the leader; `None` if nothing is due. Certificates are published before any rotation: the replica that
/// created the next CA may have failed to publish it.
fn next_step(current: &CaState, published: Option<&str>, now: Duration) -> Result<Option<Step>, rcgen::Error> {
    let bundle = current.bundle();
    if published != Some(bundle.as_str()) {
        return Ok(Some(Step::Publish(bundle)));
    }
    Ok(current.rotate(now)?.map(|rotated| Step::Rotate(Box::new(rotated))))
}

/// The CA in the cluster, and that of this replica.
struct SharedCa {
    reconciler: CaReconciler,
    state: watch::Sender<Arc<CaState>>,
}

impl Target for SharedCa {
    /// Whether this replica leads.
    type Desired = bool;
    type Change = Change;
    type Failure = CaError;

    fn name(&self) -> &'static str {
        "CA"
    }

    async fn reconcile(&mut self, leads: bool) -> CaPass {
        let (secret, stored) = match self.reconciler.obtain().await {
            Ok(obtained) => obtained,
            Err(error) => return Pass::failed(error),
        };
        let mut pass = Pass::default();
        let mut current = stored.clone();
        if leads {
            match self.reconciler.lead(&secret, stored, &mut pass).await {
                Ok(led) => current = led,
                Err(error) => pass.failures.push(error),
            }
        }
        // Also after a failure of the leader: this replica must sign with the stored CA.
        if self.state.send_if_modified(|known| {
            let is_new = **known != current;
            if is_new {
                *known = Arc::new(current);
            }
            is_new
        }) {
            info!("loaded a new CA from Secret {NAMESPACE}/{SECRET}");
            pass.scheduled.push(Change::Loaded);
        }
        pass
    }
}

fn named(name: &str) -> ObjectName {
    ObjectName { namespace: NAMESPACE.to_owned(), name: name.to_owned() }
}

/// The time, since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    #[test]
    fn certificates_are_published_before_and_after_a_rotation() {
        let current = CaState::new(NOW).unwrap();
        let bundle = current.bundle();
        let late = NOW + super::super::CA_LIFETIME;
        assert!(next_step(&current, None, late).unwrap() == Some(Step::Publish(bundle.clone())));
        assert!(next_step(&current, Some("changed by hand"), NOW).unwrap() == Some(Step::Publish(bundle.clone())));
        assert!(next_step(&current, Some(&bundle), NOW).unwrap().is_none());
        let Some(Step::Rotate(rotated)) = next_step(&current, Some(&bundle), late).unwrap() else {
            panic!("the CA expires");
        };
        assert!(next_step(&rotated, Some(&bundle), late).unwrap() == Some(Step::Publish(rotated.bundle())));
    }
}
