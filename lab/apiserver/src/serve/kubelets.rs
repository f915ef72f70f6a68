//! Forwards requests for the logs, commands and ports of Pods to the kubelets of their Nodes.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::target::{Place, Target};
use super::{Asked, Body, State, proxy};
use crate::failure::Failure;
use crate::value::{at, items, text};

/// Maximum size of an error message of a kubelet.
const MAX_MESSAGE: usize = 50_000;
/// Headers of an upgrade that clients and kubelets negotiate.
const NEGOTIATED: [&str; 5] = [
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-accept",
    "x-stream-protocol-version",
];
/// Options of logs, which kubelets know under the same names.
const LOG_OPTIONS: [&str; 7] =
    ["follow", "previous", "timestamps", "sinceSeconds", "sinceTime", "tailLines", "limitBytes"];

type Dialing = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Opens the connections to kubelets.
#[derive(Clone)]
pub struct Dialer(Arc<dyn Fn(SocketAddr) -> Dialing + Send + Sync>);

impl Dialer {
    /// Opens connections with a function, for Nodes that are not reachable from the network namespace of the server.
    pub fn new<F>(dial: impl Fn(SocketAddr) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<TcpStream>> + Send + 'static,
    {
        Self(Arc::new(move |address| Box::pin(dial(address))))
    }
}

impl Default for Dialer {
    /// Connects from the network namespace of the server.
    fn default() -> Self {
        Self::new(TcpStream::connect)
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

/// How kubelets are reached.
pub(crate) struct Kubelets {
    dialer: Dialer,
    tls: TlsConnector,
}

impl Kubelets {
    pub(crate) fn new(dialer: Dialer, config: ClientConfig) -> Self {
        Self { dialer, tls: TlsConnector::from(Arc::new(config)) }
    }
}

/// The subresources of Pods that kubelets serve.
pub(super) const SUBRESOURCES: [&str; 4] = ["attach", "exec", "log", "portforward"];

/// The Pod of a request that its kubelet serves.
pub(super) fn target(asked: &Asked) -> Option<&Place> {
    match &asked.target {
        Target::Resource(place)
            if place.group.is_empty()
                && place.resource == "pods"
                && !place.name.is_empty()
                && place.rest.is_empty()
                && SUBRESOURCES.contains(&place.subresource.as_str()) =>
        {
            Some(place)
        }
        _ => None,
    }
}

/// Forwards a request to the kubelet of the Pod's Node.
pub(super) async fn forward(
    state: &Arc<State>,
    asked: &Asked,
    place: &Place,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let logs = place.subresource == "log";
    if asked.method != Method::GET && (logs || asked.method != Method::POST) {
        return Err(Failure::method_not_allowed(crate::failure::Of { group: "", resource: "" }, ""));
    }
    if !logs && asked.verb != "create" {
        // A WebSocket is opened with GET, and that must not be enough to run a command.
        super::authorize_as(state, asked, "create")?;
    }
    let pods = state.core.builtin("", "pods")?;
    let pod = state.core.get(&pods, &place.namespace, &place.name)?.value();
    let path = path(asked, place, &pod)?;
    let node = text(&pod, "spec.nodeName");
    if node.is_empty() {
        if logs {
            return Ok(super::answer::bytes(200, "text/plain", ""));
        }
        return Err(Failure::bad_request(format!("pod {} does not have a host assigned", place.name)));
    }
    let address = address(state, node)?;
    let sent = send(&state.kubelets, address, &path, asked).await;
    let response =
        sent.map_err(|error| Failure::internal(format!("cannot reach the kubelet of {node} at {address}: {error}")))?;
    if logs { log(response).await } else { Ok(upgraded(state, request, response)) }
}

/// The path and query at the kubelet.
fn path(asked: &Asked, place: &Place, pod: &Value) -> Result<String, Failure> {
    let Place { namespace, name, subresource, .. } = place;
    if subresource == "portforward" {
        return Ok(format!("/portForward/{namespace}/{name}"));
    }
    let container = container(asked.query.get("container"), pod)?;
    let mut query: Vec<(&str, &str)> = Vec::new();
    if subresource == "log" {
        let given = LOG_OPTIONS.into_iter().map(|name| (name, asked.query.get(name)));
        query.extend(given.filter(|(_, value)| !value.is_empty()));
        let query = encode(&query);
        return Ok(format!("/containerLogs/{namespace}/{name}/{container}?{query}"));
    }
    for (ours, theirs) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if asked.query.flag(ours) {
            query.push((theirs, "1"));
        }
    }
    query.extend(asked.query.all("command").map(|word| ("command", word)));
    Ok(format!("/{subresource}/{namespace}/{name}/{container}?{}", encode(&query)))
}

/// The container that a request names, or the only one.
fn container<'a>(named: &'a str, pod: &'a Value) -> Result<&'a str, Failure> {
    let names = |path| items(pod, path).iter().map(|container| text(container, "name"));
    let main: Vec<_> = names("spec.containers").collect();
    let all: Vec<_> = names("spec.initContainers").chain(main.iter().copied()).collect();
    let pod = text(pod, "metadata.name");
    match (named, main.as_slice()) {
        ("", [only]) => Ok(only),
        ("", _) => Err(Failure::bad_request(format!(
            "a container name must be specified for pod {pod}, choose one of: [{}]",
            all.join(" ")
        ))),
        (named, _) if all.contains(&named) => Ok(named),
        _ => Err(Failure::bad_request(format!("container {named} is not valid for pod {pod}"))),
    }
}

/// The address of a Node's kubelet, as the Node reports it.
fn address(state: &State, node: &str) -> Result<SocketAddr, Failure> {
    let object = state.core.find("", "nodes", "", node).unwrap_or_default();
    let internal = items(&object, "status.addresses").iter().filter(|address| text(address, "type") == "InternalIP");
    let address: Option<IpAddr> = internal.filter_map(|address| text(address, "address").parse().ok()).next();
    let port =
        at(&object, "status.daemonEndpoints.kubeletEndpoint.Port").as_u64().and_then(|port| u16::try_from(port).ok());
    match (address, port) {
        (Some(address), Some(port)) => Ok(SocketAddr::new(address, port)),
        _ => Err(Failure::internal(format!("node {node} reports no address and port of its kubelet"))),
    }
}

async fn send(
    kubelets: &Kubelets,
    address: SocketAddr,
    path: &str,
    asked: &Asked,
) -> Result<Response<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
    let mut request = Request::builder().method(asked.method.clone()).uri(path).body(Full::new(Bytes::new()))?;
    request.headers_mut().insert(HOST, HeaderValue::from_str(&address.to_string())?);
    copy_negotiated(&asked.headers, request.headers_mut());
    let stream = (kubelets.dialer.0)(address).await?;
    stream.set_nodelay(true)?;
    let stream = kubelets.tls.connect(ServerName::from(address.ip()), stream).await?;
    Ok(proxy::exchange(stream, request).await?)
}

/// Copies the headers with which client and kubelet agree on a protocol.
fn copy_negotiated(from: &http::HeaderMap, to: &mut http::HeaderMap) {
    let names = NEGOTIATED.into_iter().map(HeaderName::from_static).chain([CONNECTION, UPGRADE]);
    for name in names {
        for value in from.get_all(&name) {
            to.append(name.clone(), value.clone());
        }
    }
}

/// The log, or the error of the kubelet as a `Status`.
async fn log(response: Response<Incoming>) -> Result<Response<Body>, Failure> {
    let (parts, body) = response.into_parts();
    if parts.status.is_success() {
        let mut response = Response::new(Body::Foreign(body));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        return Ok(response);
    }
    let message =
        Limited::new(body, MAX_MESSAGE).collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let message = String::from_utf8_lossy(&message).trim().to_owned();
    Err(match parts.status {
        StatusCode::BAD_REQUEST => Failure::bad_request(message),
        StatusCode::NOT_FOUND => Failure::new(404, "NotFound", message),
        StatusCode::UNPROCESSABLE_ENTITY => Failure::new(422, "Invalid", message),
        _ => Failure::internal(message),
    })
}

/// Confirms the upgrade to the client, and then copies bytes both ways; any other response is passed on.
fn upgraded(state: &Arc<State>, request: Request<Incoming>, mut response: Response<Incoming>) -> Response<Body> {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().remove(CONNECTION);
        return response.map(Body::Foreign);
    }
    let mut confirmation = Response::new(Body::Full(Bytes::new()));
    *confirmation.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    copy_negotiated(response.headers(), confirmation.headers_mut());
    let mut ending = state.ending.clone();
    tokio::spawn(async move {
        let copy = async {
            let (client, kubelet) = tokio::try_join!(hyper::upgrade::on(request), hyper::upgrade::on(response))?;
            tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(kubelet)).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        };
        tokio::select! {
            copied = copy => if let Err(error) = copied {
                tracing::debug!(%error, "a connection to a kubelet ended");
            },
            () = crate::server::ended(&mut ending) => {}
        }
    });
    confirmation
}

fn encode(pairs: &[(&str, &str)]) -> String {
    let word = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        let encoded =
            text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
        encoded.collect::<String>()
    };
    pairs.iter().map(|(name, value)| format!("{}={}", word(name), word(value))).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::super::query::Query;
    use super::*;
    use serde_json::json;

    #[test]
    fn any_text_survives_a_query() {
        let words = ["sh", "-c", "echo 'a+b=c&d' | cat; exit 7 # é\n"];
        let pairs: Vec<_> = words.iter().map(|word| ("command", *word)).collect();
        let query = Query::parse(&encode(&pairs));
        assert_eq!(query.all("command").collect::<Vec<_>>(), words);
    }

    #[test]
    fn the_only_container_is_chosen_and_others_must_be_named() {
        let pod = |names: &[&str]| {
            let containers: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
            json!({"metadata": {"name": "p"}, "spec": {"containers": containers, "initContainers": [{"name": "init"}]}})
        };
        let message = |named, names: &[&str]| container(named, &pod(names)).unwrap_err().message;
        assert_eq!(container("", &pod(&["a"])).unwrap(), "a");
        assert_eq!(container("init", &pod(&["a"])).unwrap(), "init");
        assert_eq!(message("", &["a", "b"]), "a container name must be specified for pod p, choose one of: [init a b]");
        assert_eq!(message("c", &["a"]), "container c is not valid for pod p");
    }
}
