//! The connection to the API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube::client::{Body, ClientBuilder};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use secrecy::ExposeSecret;
use thiserror::Error;
use tokio::time::timeout;
use tower::util::MapRequestLayer;
use types::ObjectName;

use crate::kinds::Watched;
use crate::token::TokenFile;
use crate::wire::Wire;

/// Why no client can be created.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {0}: {1}")]
    Kubeconfig(PathBuf, #[source] kube::config::KubeconfigError),
    /// No kubeconfig was given, and this is not a Pod with a ServiceAccount.
    #[error("no kubeconfig and no ServiceAccount: {0}; set clientConnection.kubeconfig")]
    NoAccount(#[source] kube::config::InClusterError),
    /// `kubeAPIServerOverride` is not a URL.
    #[error("kubeAPIServerOverride: `{0}` is not a URL such as https://10.0.0.1:6443")]
    Override(String),
    /// The token file cannot be read.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// TLS cannot be set up.
    #[error("cannot create a client for the Kubernetes API: {0}")]
    Client(#[source] Box<kube::Error>),
}

/// A failed request for an object.
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

    /// Whether a retry may succeed without any other action: not if the API server rejects the request itself.
    pub fn is_transient(&self) -> bool {
        // Request timeout, conflict, too many requests.
        const RETRY: [u16; 3] = [408, 409, 429];
        match &*self.source {
            kube::Error::Api(status) => !(400..500).contains(&status.code) || RETRY.contains(&status.code),
            _ => true,
        }
    }

    /// Whether the account lacks the right to ask.
    pub fn is_forbidden(&self) -> bool {
        matches!(&*self.source, kube::Error::Api(status) if status.code == 403)
    }
}

/// Timeouts of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// For the answer to a request.
    pub answer: Duration,
    /// Of a watch request, in whole seconds. The watch is requested again after it, which shows that the server still answers.
    pub renew: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { answer: Duration::from_secs(10), renew: Duration::from_secs(30) }
    }
}

/// Why the client has no token.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The token file cannot be read.
    #[error("token {0}: {1}")]
    File(PathBuf, #[source] std::io::Error),
    /// The client authenticates in another way, for example by certificate.
    #[error("the kubeconfig has neither `token` nor `tokenFile` for its user")]
    None,
}

/// A client for the API server.
#[derive(Clone)]
pub struct Client {
    pub(crate) kube: kube::Client,
    pub(crate) timeouts: Timeouts,
    auth: AuthInfo,
    server: String,
}

impl Client {
    /// A client from a kubeconfig, or from the ServiceAccount of the Pod without one.
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
        let server = config.cluster_url.host().unwrap_or_default().to_owned();
        let file = if auth.token.is_none() { config.auth_info.token_file.take() } else { None };
        let builder = ClientBuilder::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))?;
        let kube = match file {
            Some(path) => {
                let token = Arc::new(TokenFile::open(Path::new(&path), Instant::now())?);
                let authorize = move |mut request: http::Request<Body>| {
                    request.headers_mut().insert(http::header::AUTHORIZATION, token.header(Instant::now()));
                    request
                };
                builder.with_layer(&MapRequestLayer::new(authorize)).build()
            }
            None => builder.build(),
        };
        Ok(Self { kube, timeouts: Timeouts::default(), auth, server })
    }

    /// The host of the API server's address: a name, or an address, which has brackets if it is one of IPv6.
    pub fn server_host(&self) -> &str {
        &self.server
    }

    /// The same client with these timeouts.
    #[must_use]
    pub fn with_timeouts(self, timeouts: Timeouts) -> Self {
        Self { timeouts, ..self }
    }

    /// Limits a request to [`Timeouts::answer`].
    pub(crate) async fn in_time<T>(&self, answer: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        let limit = self.timeouts.answer;
        let late = || format!("the Kubernetes API did not answer within {} s", limit.as_secs_f64());
        timeout(limit, answer).await.unwrap_or_else(|_| Err(kube::Error::Service(late().into())))
    }

    /// Gets an object; the namespace is empty for cluster-scoped kinds.
    pub async fn get<T: Watched>(&self, name: &ObjectName) -> Result<Option<T>, RequestError> {
        let found = self.in_time(self.api::<T>(&name.namespace).get_opt(&name.name)).await;
        Ok(found.map_err(|error| RequestError::new(T::KIND, &name.to_string(), error))?.map(|wire| wire.object))
    }

    /// Whether the API server has the kind: custom resources may not be installed.
    pub async fn serves<T: Watched>(&self) -> Result<bool, RequestError> {
        let version = format!("{}/{}", T::GROUP, T::VERSION);
        match self.in_time(self.kube.list_api_group_resources(&version)).await {
            Ok(list) => Ok(list.resources.iter().any(|resource| resource.name == T::PLURAL)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(RequestError::new("APIResourceList", &version, error)),
        }
    }

    /// Lists the objects of a kind in a namespace.
    pub async fn all<T: Watched>(&self, namespace: &str) -> Result<Vec<T>, RequestError> {
        let found = self.in_time(self.api::<T>(namespace).list(&ListParams::default())).await;
        let found = found.map_err(|error| RequestError::new(T::PLURAL, namespace, error))?;
        Ok(found.items.into_iter().map(|wire| wire.object).collect())
    }

    /// The current token of this client, for authentication with other servers.
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

    /// Sets or removes an annotation of a cluster-scoped object.
    pub async fn annotate<T: Watched>(&self, name: &str, key: &str, value: Option<&str>) -> Result<(), RequestError> {
        let patch = Patch::Merge(serde_json::json!({"metadata": {"annotations": {key: value}}}));
        let patched = self.in_time(self.api::<T>("").patch(name, &PatchParams::default(), &patch)).await;
        patched.map(drop).map_err(|error| RequestError::new(T::KIND, name, error))
    }
}

/// The API of a kind, in one namespace or in all.
pub(crate) fn api<T: Watched>(kube: kube::Client, namespace: &str) -> Api<Wire<T>> {
    match namespace {
        "" => Api::all_with(kube, &()),
        namespace => Api::namespaced_with(kube, namespace, &()),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_request_that_the_server_rejects_is_not_retried_but_an_overloaded_server_is_asked_again() {
        let is_transient = |code| {
            let status = Status { code, ..Status::failure("rejected", "Test") };
            RequestError::new("Node", "n1", kube::Error::Api(Box::new(status))).is_transient()
        };
        assert_eq!([400, 403, 404, 422].map(is_transient), [false; 4]);
        assert_eq!([408, 409, 429, 500, 503].map(is_transient), [true; 5]);
    }
}
