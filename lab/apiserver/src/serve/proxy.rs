//! Forwards requests for the groups of APIServices to their backends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, HeaderValue};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::target::Target;
use super::{Asked, Body, State};
use crate::auth::Identity;
use crate::core::Core;
use crate::failure::Failure;
use crate::objects::ApiService;
use crate::tls;
use crate::value::{at, items, text};

/// The backend of a group and version.
#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) group: String,
    pub(crate) version: String,
    service: String,
    url: Option<Uri>,
    /// PEM in base64; empty to accept any certificate.
    ca: String,
    insecure: bool,
    identity: Arc<Identity>,
}

/// The addresses of the Services behind APIServices.
pub(crate) struct Backends {
    /// Client certificate of the server.
    identity: Arc<Identity>,
    addresses: Mutex<BTreeMap<String, Uri>>,
    /// The APIServices with backends, read again when they change.
    services: Mutex<(u64, Arc<Vec<ApiService>>)>,
    moved: Notify,
}

const API_SERVICES: &str = "apiregistration.k8s.io/apiservices";

impl Backends {
    pub(crate) fn new(identity: Identity) -> Self {
        let (addresses, services, moved) = Default::default();
        Self { identity: Arc::new(identity), addresses, services, moved }
    }

    /// Sets the address of a Service (`namespace/name`).
    pub(crate) fn set(&self, service: &str, url: Uri) {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).insert(service.to_owned(), url);
        self.moved.notify_one();
    }

    /// Waits until an address is set.
    pub(crate) async fn changed(&self) {
        self.moved.notified().await;
    }

    /// The APIServices with backends.
    pub(crate) fn services(&self, core: &Core) -> Arc<Vec<ApiService>> {
        let latest = core.store.latest(API_SERVICES);
        let mut read = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        if read.0 != latest {
            let mut all = core.read_all::<ApiService>();
            all.retain(|service| service.spec.service.is_some());
            *read = (latest, Arc::new(all));
        }
        read.1.clone()
    }

    /// The backend of an APIService; `None` if it is served locally.
    pub(super) fn backend(&self, service: &ApiService) -> Option<Backend> {
        let spec = &service.spec;
        let to = spec.service.as_ref()?;
        let name = format!("{}/{}", to.namespace, to.name);
        let url = self.addresses.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        Some(Backend {
            group: spec.group.clone(),
            version: spec.version.clone(),
            service: name,
            url,
            ca: spec.ca_bundle.clone(),
            insecure: spec.insecure_skip_tls_verify,
            identity: self.identity.clone(),
        })
    }

    fn all(&self, core: &Core) -> Vec<Backend> {
        self.services(core).iter().filter_map(|service| self.backend(service)).collect()
    }

    /// The backend for the target of a request.
    pub(crate) fn of(&self, core: &Core, target: &Target) -> Option<Backend> {
        let Target::Resource(place) = target else { return None };
        self.serving(core, &place.group, &place.version)
    }

    /// The backend of a group and version.
    pub(crate) fn serving(&self, core: &Core, group: &str, version: &str) -> Option<Backend> {
        self.all(core).into_iter().find(|backend| backend.group == group && backend.version == version)
    }

    /// The groups and versions with backends.
    pub(crate) fn groups(&self, core: &Core) -> Vec<(String, String)> {
        self.all(core).into_iter().map(|backend| (backend.group, backend.version)).collect()
    }
}

impl Backend {
    /// Whether its address was set.
    pub(super) fn has_address(&self) -> bool {
        self.url.is_some()
    }
}

fn unavailable(why: &str) -> Failure {
    tracing::debug!(why, "cannot reach the backend of an APIService");
    Failure::new(503, "ServiceUnavailable", format!("error trying to reach service: {why}"))
}

/// Forwards a request, and returns the backend's response.
pub(super) async fn forward(
    backend: Backend,
    asked: &Asked,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    if !backend.has_address() {
        return Ok(super::answer::plain(503, "service unavailable\n"));
    }
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    parts.headers.remove(AUTHORIZATION);
    parts.headers.remove(HOST);
    // Only this server may set the user: such headers of the client are removed.
    let claimed: Vec<_> = parts.headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
    claimed.iter().for_each(|name| drop(parts.headers.remove(name)));
    parts.version = http::Version::HTTP_11;
    let mut header = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            parts.headers.append(name, value);
        }
    };
    header("x-remote-user", &asked.user.name);
    asked.user.groups.iter().for_each(|group| header("x-remote-group", group));
    let mut response = send(&backend, &path, Request::from_parts(parts, body)).await?;
    // Headers of the connection are not part of the response.
    for name in ["connection", "transfer-encoding", "keep-alive"] {
        response.headers_mut().remove(name);
    }
    Ok(response.map(Body::Foreign))
}

async fn send<B>(backend: &Backend, path: &str, mut request: Request<B>) -> Result<Response<Incoming>, Failure>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let url =
        backend.url.as_ref().ok_or_else(|| unavailable(&format!("no address for service {}", backend.service)))?;
    let (host, secure) = (url.host().unwrap_or_default(), url.scheme_str() == Some("https"));
    let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
    *request.uri_mut() = path.parse().map_err(|_| Failure::bad_request("invalid path"))?;
    if let Ok(value) = HeaderValue::from_str(&format!("{host}:{port}")) {
        request.headers_mut().insert(HOST, value);
    }
    let stream = TcpStream::connect((host, port)).await.map_err(|error| unavailable(&error.to_string()))?;
    if !secure {
        return exchange(stream, request).await.map_err(|error| unavailable(&error.to_string()));
    }
    let (namespace, name) = backend.service.split_once('/').unwrap_or_default();
    let config = tls::client(&backend.ca, backend.insecure, &backend.identity)
        .map_err(|error| unavailable(&error.to_string()))?;
    let name =
        ServerName::try_from(format!("{name}.{namespace}.svc")).map_err(|error| unavailable(&error.to_string()))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = stream.map_err(|error| unavailable(&error.to_string()))?;
    exchange(stream, request).await.map_err(|error| unavailable(&error.to_string()))
}

/// Sends a request on a new connection.
pub(super) async fn exchange<S, B>(stream: S, request: Request<B>) -> hyper::Result<Response<Incoming>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "connection to a backend or kubelet ended");
        }
    });
    sender.send_request(request.map(Box::pin)).await
}

/// The resources of all backends, for aggregated discovery.
pub(super) async fn discover(state: &State) -> Vec<Value> {
    let mut groups = Vec::new();
    for backend in state.backends.all(&state.core) {
        let list = resources(&backend).await.ok();
        let fresh = if list.is_some() { "Current" } else { "Stale" };
        let resources: Vec<_> = items(list.as_ref().unwrap_or(&Value::Null), "resources")
            .iter()
            .filter_map(|row| listed(&backend, row))
            .collect();
        groups.push(json!({
            "metadata": {"name": backend.group},
            "versions": [{"version": backend.version, "resources": resources, "freshness": fresh}],
        }));
    }
    groups
}

fn listed(backend: &Backend, row: &Value) -> Option<Value> {
    let name = text(row, "name");
    let scope = if at(row, "namespaced") == true { "Namespaced" } else { "Cluster" };
    (!name.contains('/')).then(|| {
        json!({
            "resource": name, "scope": scope, "singularResource": at(row, "singularName"), "verbs": at(row, "verbs"),
            "responseKind": {"group": backend.group, "version": backend.version, "kind": at(row, "kind")},
            "shortNames": items(row, "shortNames"),
        })
    })
}

/// The resources of a backend.
pub(super) async fn resources(backend: &Backend) -> Result<Value, Failure> {
    let path = format!("/apis/{}/{}", backend.group, backend.version);
    let answer = tokio::time::timeout(Duration::from_secs(5), fetch(backend, &path)).await;
    answer.unwrap_or_else(|_| Err(unavailable("it does not answer")))
}

async fn fetch(backend: &Backend, path: &str) -> Result<Value, Failure> {
    let mut request = Request::new(Full::new(Bytes::new()));
    for (name, value) in [
        ("x-remote-user", "system:kube-aggregator"),
        ("x-remote-group", "system:masters"),
        ("accept", "application/json"),
    ] {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let response = send(backend, path, request).await?;
    if !response.status().is_success() {
        return Err(unavailable(&format!("it answers {}", response.status())));
    }
    let body = response.into_body().collect().await.map_err(|error| unavailable(&error.to_string()))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| unavailable(&error.to_string()))
}
