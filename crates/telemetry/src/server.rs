//! HTTP server for probes, metrics and diagnostics on loopback, and for health checks of load balancers.
//!
//! Health probes are answered regardless of other clients: a connection carries one request, which has to arrive in time; a
//! new connection closes the oldest one whose client is slow; and only requests other than probes are limited in number.

mod slots;

use std::fmt;
use std::fs::{self, OpenOptions};
use std::future::Future;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use slots::{Phase, Slots};

/// Time limit for a client to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for a connection, from accept to the last byte of the answer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of concurrent requests, health probes excluded; further ones get status 503.
const REQUESTS: usize = 16;
/// Pause after `accept` failed, usually for lack of file descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// Status, content type and body of a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    status: StatusCode,
    kind: &'static str,
    header: Option<(&'static str, String)>,
    body: String,
}

impl Answer {
    /// `200 ok`, or `503` with the problem.
    pub fn health(status: Result<(), impl fmt::Display>) -> Self {
        match status {
            Ok(()) => Self::text(StatusCode::OK, "ok\n".to_owned()),
            Err(problem) => Self::text(StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
        }
    }

    /// A JSON document with status 200.
    pub fn json(body: String) -> Self {
        Self { status: StatusCode::OK, kind: "application/json", header: None, body }
    }

    /// The same answer with status 503.
    #[must_use]
    pub fn unavailable(self) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, ..self }
    }

    /// The same answer with an additional header.
    #[must_use]
    pub fn with_header(self, name: &'static str, value: String) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    /// Metrics in the Prometheus text format.
    pub fn metrics(body: String) -> Self {
        Self { status: StatusCode::OK, kind: "text/plain; version=0.0.4; charset=utf-8", header: None, body }
    }

    fn text(status: StatusCode, body: String) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", header: None, body }
    }
}

/// Request handler of a [`Server`].
pub trait Answers: Send + Sync + 'static {
    /// Whether a path is served without the token.
    fn is_open(&self, path: &str) -> bool {
        matches!(path, "/healthz" | "/livez" | "/readyz")
    }

    /// The answer to a GET of a path and its query, which may be empty; `None` if there is no such path.
    fn get(&self, path: &str, query: &str) -> impl Future<Output = Option<Answer>> + Send;
}

/// The server cannot start.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The loopback port is in use.
    #[error("cannot listen on 127.0.0.1:{0}: {1}; set apiPort to another port")]
    Listen(u16, #[source] io::Error),
    /// The address is in use, or not an address of this host.
    #[error("cannot listen on {0}: {1}")]
    ListenAt(SocketAddr, #[source] io::Error),
    /// The token file cannot be written.
    #[error("token {path}: {source}", path = path.display())]
    Token {
        /// Path of the token file.
        path: PathBuf,
        /// Error of the file system.
        source: io::Error,
    },
}

/// HTTP server: on loopback with a token, or on any address without one.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    token: Option<String>,
}

impl Server {
    /// Listens on a port of 127.0.0.1 (any, if 0), and writes a new token to a file that only its owner can read.
    pub async fn bind(port: u16, token_file: &Path) -> Result<Self, ServeError> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(|error| ServeError::Listen(port, error))?;
        let token = write_token(token_file)
            .map_err(|error| ServeError::Token { path: token_file.to_owned(), source: error })?;
        Ok(Self { listener, token: Some(token) })
    }

    /// Listens on an address, and serves all paths without a token.
    pub async fn open(address: SocketAddr) -> Result<Self, ServeError> {
        let listener = TcpListener::bind(address).await.map_err(|error| ServeError::ListenAt(address, error))?;
        Ok(Self { listener, token: None })
    }

    /// The address that it listens on.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts connections until it is cancelled.
    pub async fn serve(self, answers: impl Answers) {
        let handler = Arc::new(Handler { answers, token: self.token, requests: Semaphore::new(REQUESTS) });
        let slots = Slots::default();
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "cannot accept a connection to the HTTP API; retrying");
                    let next_try = tokio::time::Instant::now() + PAUSE;
                    tokio::time::sleep_until(next_try).await;
                    continue;
                }
            };
            let handler = Arc::clone(&handler);
            slots.open(|slot| {
                let connection = async move {
                    let answer = service_fn(async |request| {
                        slot.enter(Phase::Answering);
                        let response = handler.answer(&request).await;
                        slot.enter(Phase::Writing);
                        response
                    });
                    let mut server = http1::Builder::new();
                    let connection = server
                        .timer(TokioTimer::new())
                        .header_read_timeout(REQUEST_TIMEOUT)
                        .keep_alive(false)
                        .serve_connection(TokioIo::new(stream), answer);
                    match tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => debug!(%error, "HTTP API connection failed"),
                        Err(_) => debug!("closed HTTP API connection after {CONNECTION_TIMEOUT:?}"),
                    }
                };
                tokio::spawn(connection).abort_handle()
            });
        }
    }
}

/// State that all connections share.
struct Handler<A> {
    answers: A,
    token: Option<String>,
    requests: Semaphore,
}

impl<A: Answers> Handler<A> {
    async fn answer(&self, request: &Request<Incoming>) -> Result<Response<Full<Bytes>>, http::Error> {
        let answer = self.find(request).await;
        let mut response = Response::builder().status(answer.status).header(CONTENT_TYPE, answer.kind);
        if answer.status == StatusCode::UNAUTHORIZED {
            response = response.header(WWW_AUTHENTICATE, "Bearer");
        }
        if let Some((name, value)) = answer.header {
            response = response.header(name, value);
        }
        response.body(Full::new(answer.body.into()))
    }

    async fn find(&self, request: &Request<Incoming>) -> Answer {
        let path = request.uri().path();
        let plain = |status: StatusCode, text: &str| Answer::text(status, format!("{text}\n"));
        if request.method() != Method::GET {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is supported");
        }
        // A server without a token serves only health checks for load balancers.
        let token = self.token.as_deref().filter(|_| !self.answers.is_open(path));
        let _permit = match token {
            None => None,
            Some(token) if !is_authorised(request, token) => {
                return plain(
                    StatusCode::UNAUTHORIZED,
                    "needs the header `Authorization: Bearer TOKEN`, with the token of the agent's token file",
                );
            }
            Some(_) => match self.requests.try_acquire() {
                Ok(permit) => Some(permit),
                Err(_) => return plain(StatusCode::SERVICE_UNAVAILABLE, "too many requests at a time; try again"),
            },
        };
        let found = self.answers.get(path, request.uri().query().unwrap_or_default()).await;
        found.unwrap_or_else(|| plain(StatusCode::NOT_FOUND, "no such path"))
    }
}

fn is_authorised(request: &Request<Incoming>, token: &str) -> bool {
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(given) = given.and_then(|value| value.strip_prefix("Bearer ")) else { return false };
    // Constant time: comparing a nearly correct token takes as long as any other.
    given.len() == token.len() && given.bytes().zip(token.bytes()).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
}

/// Writes a new random token.
fn write_token(path: &Path) -> io::Result<String> {
    let mut random = [0; 32];
    io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut random)?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    // Renamed into place: a reader sees the old token or the new one, never a part of one.
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(token.as_bytes())?;
    fs::rename(&temporary, path)?;
    Ok(token)
}

#[cfg(test)]
mod tests;
