//! The kubelet's HTTPS server, which the API server calls for logs, commands and ports of Pods.
//!
//! It accepts one client: the API server, whose certificate it knows.

mod exec;
mod logs;
mod terminal;
mod tls;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use streaming::remote_command::{self, Wants};
use streaming::{Upgrade, port_forward};
use testkit::Netns;
use tokio::net::{TcpListener, TcpStream};

use super::Context;
use super::pod_table::{ContainerView, Phase, PodView};
use crate::accept::or_pause;
use crate::endpoint::End;
use crate::query::{parameter, parameters};
pub(crate) use tls::Credentials;

/// Port of the server, as of any kubelet.
pub(crate) const PORT: u16 = 10250;
/// Timeout of TLS handshakes.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An error response: its status, and the message.
struct Failure(StatusCode, String);

fn failure<T>(status: StatusCode, message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure(status, message.into()))
}

/// Listens on all addresses of the Node; accepts connections until the kubelet ends.
pub(super) async fn start(context: Arc<Context>) -> Result<()> {
    let path = context.home.kubelet_credentials(&context.node.name);
    let acceptor = tls::Acceptor::new(&Credentials::read(&path)?).with_context(|| path.display().to_string())?;
    let bound = TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT))).await;
    let listener = bound.with_context(|| format!("cannot listen at TCP port {PORT}"))?;
    let acceptor = Arc::new(acceptor);
    tokio::spawn(async move {
        loop {
            let Ok((stream, from)) = or_pause(listener.accept().await).await else { continue };
            let (acceptor, context) = (acceptor.clone(), context.clone());
            tokio::spawn(async move {
                if let Err(error) = connection(stream, &acceptor, context).await {
                    tracing::debug!("connection from {from}: {error:#}");
                }
            });
        }
    });
    Ok(())
}

async fn connection(stream: TcpStream, acceptor: &tls::Acceptor, context: Arc<Context>) -> Result<()> {
    stream.set_nodelay(true)?;
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
    let service = service_fn(move |request| {
        let context = context.clone();
        async move {
            let response = respond(&context, request).await;
            Ok::<_, Infallible>(response.unwrap_or_else(|Failure(status, message)| plain(status, message)))
        }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    let served = builder.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    Ok(served.with_upgrades().await?)
}

fn plain(status: StatusCode, message: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(message.into()).boxed_unsync());
    *response.status_mut() = status;
    response
}

async fn respond(context: &Arc<Context>, request: Request<Incoming>) -> Result<Response<Body>, Failure> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let query = request.uri().query().unwrap_or_default().to_owned();
    if !matches!(*request.method(), Method::GET | Method::POST) {
        return failure(StatusCode::METHOD_NOT_ALLOWED, "use GET or POST");
    }
    match parts.as_slice() {
        ["healthz"] => Ok(plain(StatusCode::OK, "ok")),
        ["containerLogs", namespace, pod, container] => logs::serve(context, namespace, pod, container, &query),
        ["exec", namespace, pod, container] => {
            let (_, container) = running(context, namespace, pod, container)?;
            let command: Vec<String> = parameters(&query, "command").collect();
            if command.is_empty() {
                return failure(StatusCode::BAD_REQUEST, "you must specify at least 1 command");
            }
            let process = exec::Process::new(&context.directory(namespace, pod), &container, command);
            let process = process.or_else(|error| failure(StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}")))?;
            let wants = wants(&query)?;
            upgrade(request, remote_command::PROTOCOLS, async move |upgrade, stream| {
                remote_command::serve(&upgrade, stream, wants, |session| process.run(wants, session)).await;
            })
        }
        ["attach", namespace, pod, name] => {
            let (pod_view, container) = running(context, namespace, pod, name)?;
            let log = context.directory(namespace, pod).join(name).join(format!("{}.log", container.run));
            let wants = wants(&query)?;
            upgrade(request, remote_command::PROTOCOLS, async move |upgrade, stream| {
                let attach = |session| logs::attach(log, container, pod_view, session);
                remote_command::serve(&upgrade, stream, wants, attach).await;
            })
        }
        ["portForward", namespace, pod] => {
            let pod_view = find(context, namespace, pod)?.borrow().clone();
            if !pod_view.connected {
                return failure(StatusCode::BAD_REQUEST, format!("pod {namespace}/{pod} has no network"));
            }
            upgrade(request, port_forward::PROTOCOLS, async move |upgrade, stream| {
                port_forward::serve(&upgrade, stream, |port| connect(pod_view.clone(), port)).await;
            })
        }
        _ => failure(StatusCode::NOT_FOUND, format!("there is nothing at {path}")),
    }
}

type Followed = tokio::sync::watch::Receiver<Arc<PodView>>;

fn find(context: &Context, namespace: &str, pod: &str) -> Result<Followed, Failure> {
    let found = context.pods.follow(namespace, pod);
    found.ok_or_else(|| Failure(StatusCode::NOT_FOUND, format!("pod {pod:?} does not exist")))
}

/// A container that runs.
fn running(context: &Context, namespace: &str, pod: &str, name: &str) -> Result<(Followed, ContainerView), Failure> {
    let followed = find(context, namespace, pod)?;
    let container = followed.borrow().container(name).cloned();
    match container {
        Some(container) if matches!(container.phase, Phase::Running(_)) => Ok((followed, container)),
        _ => failure(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("unable to upgrade connection: container not found ({name:?})"),
        ),
    }
}

fn wants(query: &str) -> Result<Wants, Failure> {
    let flag = |name| parameter(query, name).is_some_and(|value| value == "1" || value == "true");
    let tty = flag("tty");
    let wants = Wants { stdin: flag("input"), stdout: flag("output"), stderr: flag("error") && !tty, tty };
    if !(wants.stdin || wants.stdout || wants.stderr) {
        return failure(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr");
    }
    Ok(wants)
}

/// Upgrades the connection to one of the protocols, and then serves it.
fn upgrade<F>(
    mut request: Request<Incoming>,
    protocols: &[(streaming::Transport, &str)],
    serve: impl FnOnce(Upgrade, TokioIo<hyper::upgrade::Upgraded>) -> F + Send + 'static,
) -> Result<Response<Body>, Failure>
where
    F: Future<Output = ()> + Send + 'static,
{
    let upgrade = Upgrade::negotiate(request.headers(), protocols);
    let upgrade = upgrade.map_err(|refusal| Failure(refusal.status, refusal.to_string()))?;
    let response = upgrade.response::<Full<Bytes>>().map(BodyExt::boxed_unsync);
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgraded.await {
            Ok(stream) => serve(upgrade, TokioIo::new(stream)).await,
            Err(error) => tracing::debug!("the client did not upgrade the connection: {error}"),
        }
    });
    Ok(response)
}

/// Connects to a port of a Pod, on its loopback interface.
async fn connect(pod: Arc<PodView>, port: u16) -> std::io::Result<TcpStream> {
    let netns = pod.netns.as_deref().map(Netns::open).transpose().map_err(std::io::Error::other)?;
    let at = |address: IpAddr| End(netns.clone(), SocketAddr::new(address, port));
    let (first, second) = (at(Ipv4Addr::LOCALHOST.into()), at(Ipv6Addr::LOCALHOST.into()));
    match first.connect().await {
        Ok(stream) => Ok(stream),
        Err(error) => second.connect().await.map_err(|_| std::io::Error::other(format!("{error:#}"))),
    }
}
