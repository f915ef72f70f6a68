//! The way to the API server.

use std::path::{Path, PathBuf};

use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use thiserror::Error;

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

/// A client of the API server.
#[derive(Clone)]
pub struct Client {
    pub(crate) kube: kube::Client,
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
        let kube = kube::Client::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))?;
        Ok(Self { kube })
    }

    /// The object of a kind that is in no namespace, if it is there.
    pub async fn get<T: Watched>(&self, name: &str) -> Result<Option<T>, RequestError> {
        let api: Api<Wire<T>> = Api::all(self.kube.clone());
        let found = api.get_opt(name).await;
        let found =
            found.map_err(|error| RequestError { kind: T::KIND, name: name.to_owned(), source: Box::new(error) })?;
        Ok(found.map(|wire| wire.object))
    }

    /// Sets an annotation of an object of a kind that is in no namespace, or takes it away.
    pub async fn annotate<T: Watched>(&self, name: &str, key: &str, value: Option<&str>) -> Result<(), RequestError> {
        let api: Api<Wire<T>> = Api::all(self.kube.clone());
        let patch = Patch::Merge(serde_json::json!({"metadata": {"annotations": {key: value}}}));
        let patched = api.patch(name, &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| RequestError {
            kind: T::KIND,
            name: name.to_owned(),
            source: Box::new(error),
        })
    }
}
