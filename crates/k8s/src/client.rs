//! The way to the API server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use secrecy::ExposeSecret;
use thiserror::Error;
use tokio::time::timeout;
use types::ObjectName;

use crate::kinds::Watched;
use crate::wire::Wire;

/// Why there is no way to the API server.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {0}: {1}")]
    Kubeconfig(PathBuf, #[source] kube::config::KubeconfigError),
    /// There is no kubeconfig, and this is no Pod with a ServiceAccount.
    #[error("no kubeconfig was given, and there is no ServiceAccount: {0}; set clientConnection.kubeconfig")]
    NoAccount(#[source] kube::config::InClusterError),
    /// The address that is to be used instead is none.
    #[error("kubeAPIServerOverride: `{0}` is not an address, as https://10.0.0.1:6443 is")]
    Override(String),
    /// TLS cannot be set up.
    #[error("cannot make a client of the Kubernetes API: {0}")]
    Client(#[source] Box<kube::Error>),
}

/// Why an object could not be had.
#[derive(Debug, Error)]
#[error("{kind} {name}: {source}")]
pub struct RequestError {
    kind: &'static str,
    name: String,
    source: Box<kube::Error>,
}

impl RequestError {
    pub(crate) fn new(kind: &'static str, name: &str, error: kube::Error) -> Self {
        Self { kind, name: name.to_owned(), source: Box::new(error) }
    }
}

/// How patient a client is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// With the answer to a request.
    pub answer: Duration,
    /// With a watch: so often it is asked for anew, in whole seconds, which a server that lives answers at once.
    pub renew: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { answer: Duration::from_secs(10), renew: Duration::from_secs(30) }
    }
}

/// Why there is no token.
#[derive(Debug, Error)]
pub enum TokenError {
    /// Its file cannot be read.
    #[error("token {0}: {1}")]
    File(PathBuf, #[source] std::io::Error),
    /// The client is known by something else, such as a certificate.
    #[error("the kubeconfig has neither `token` nor `tokenFile` for its user")]
    None,
}

/// A client of the API server.
#[derive(Clone)]
pub struct Client {
    pub(crate) kube: kube::Client,
    pub(crate) patience: Patience,
    auth: AuthInfo,
}

impl Client {
    /// The client that a kubeconfig describes, or a Pod's ServiceAccount where there is none.
    pub async fn new(kubeconfig: Option<&Path>, server: Option<&str>) -> Result<Self, ConnectError> {
        let mut config = match kubeconfig {
            Some(path) => {
                let invalid = |error| ConnectError::Kubeconfig(path.to_owned(), error);
                let file = Kubeconfig::read_from(path).map_err(invalid)?;
                kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(invalid)?
            }
            None => kube::Config::incluster().map_err(ConnectError::NoAccount)?,
        };
        if let Some(server) = server {
            config.cluster_url = server.parse().map_err(|_| ConnectError::Override(server.to_owned()))?;
        }
        let auth = config.auth_info.clone();
        let kube = kube::Client::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))?;
        Ok(Self { kube, patience: Patience::default(), auth })
    }

    /// The same client, as patient as this.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// An answer in time, or the error that there was none.
    pub(crate) async fn in_time<T>(&self, answer: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        let patience = self.patience.answer;
        let late = || format!("the Kubernetes API has not answered within {} s", patience.as_secs_f64());
        timeout(patience, answer).await.unwrap_or_else(|_| Err(kube::Error::Service(late().into())))
    }

    /// The object of this name, if it is there; of a kind without namespaces, if that is empty.
    pub async fn get<T: Watched>(&self, name: &ObjectName) -> Result<Option<T>, RequestError> {
        let found = self.in_time(self.api::<T>(&name.namespace).get_opt(&name.name)).await;
        Ok(found.map_err(|error| RequestError::new(T::KIND, &name.to_string(), error))?.map(|wire| wire.object))
    }

    /// All objects of a kind in a namespace.
    pub async fn all<T: Watched>(&self, namespace: &str) -> Result<Vec<T>, RequestError> {
        let found = self.in_time(self.api::<T>(namespace).list(&ListParams::default())).await;
        let found = found.map_err(|error| RequestError::new(T::PLURAL, namespace, error))?;
        Ok(found.items.into_iter().map(|wire| wire.object).collect())
    }

    /// The token by which the API server knows this client, as it is now: others may be shown it, too.
    pub async fn token(&self) -> Result<String, TokenError> {
        if let Some(path) = &self.auth.token_file {
            let read = tokio::fs::read_to_string(path).await;
            return read.map(|token| token.trim().to_owned()).map_err(|error| TokenError::File(path.into(), error));
        }
        let token = self.auth.token.as_ref().map(|token| token.expose_secret().to_owned());
        token.ok_or(TokenError::None)
    }

    fn api<T: Watched>(&self, namespace: &str) -> Api<Wire<T>> {
        api(self.kube.clone(), namespace)
    }

    /// Sets an annotation of an object of a kind that is in no namespace, or takes it away.
    pub async fn annotate<T: Watched>(&self, name: &str, key: &str, value: Option<&str>) -> Result<(), RequestError> {
        let patch = Patch::Merge(serde_json::json!({"metadata": {"annotations": {key: value}}}));
        let patched = self.in_time(self.api::<T>("").patch(name, &PatchParams::default(), &patch)).await;
        patched.map(drop).map_err(|error| RequestError::new(T::KIND, name, error))
    }
}

/// The objects of a kind in a namespace, or everywhere.
pub(crate) fn api<T: Watched>(kube: kube::Client, namespace: &str) -> Api<Wire<T>> {
    match namespace {
        "" => Api::all_with(kube, &()),
        namespace => Api::namespaced_with(kube, namespace, &()),
    }
}
