//! Questions over HTTP: on loopback, and those of load balancers.

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

/// Connections at a time; further ones wait.
const CONNECTIONS: usize = 64;
/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait after a failure to accept, which is a lack of file descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    status: StatusCode,
    kind: &'static str,
    header: Option<(&'static str, String)>,
    body: String,
}

impl Answer {
    /// It is so, or it is not so because.
    pub fn health(problem: Result<(), String>) -> Self {
        match problem {
            Ok(()) => Self::text(StatusCode::OK, "ok\n".to_owned()),
            Err(problem) => Self::text(StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
        }
    }

    /// A JSON document.
    pub fn json(body: String) -> Self {
        Self { status: StatusCode::OK, kind: "application/json", header: None, body }
    }

    /// The same, and that nobody should come here now.
    #[must_use]
    pub fn unavailable(self) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, ..self }
    }

    /// The same with a header.
    #[must_use]
    pub fn with_header(self, name: &'static str, value: String) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    /// Metrics, as Prometheus reads them.
    pub fn metrics(body: String) -> Self {
        Self { status: StatusCode::OK, kind: "text/plain; version=0.0.4; charset=utf-8", header: None, body }
    }

    fn text(status: StatusCode, body: String) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", header: None, body }
    }
}

/// Has the answers.
pub trait Answers: Send + Sync + 'static {
    /// Whether a path is open to everybody on the machine.
    fn is_open(&self, path: &str) -> bool {
        matches!(path, "/healthz" | "/livez" | "/readyz")
    }

    /// The answer to a GET of a path (with its query, if it has one); nothing if there is no such path.
    fn get(&self, path: &str, query: &str) -> impl Future<Output = Option<Answer>> + Send;
}

/// Why the server does not serve.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The port is taken.
    #[error("cannot listen on 127.0.0.1:{0}: {1}; set apiPort to another port")]
    Listen(u16, #[source] io::Error),
    /// An address that everybody may ask at is taken, or not of this host.
    #[error("cannot listen on {0}: {1}")]
    ListenAt(SocketAddr, #[source] io::Error),
    /// The token cannot be written.
    #[error("token {path}: {source}", path = path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A server: on loopback for those who have its token, or elsewhere for everybody.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    token: Option<String>,
}

impl Server {
    /// Takes a port of 127.0.0.1 (any, if 0), and writes a fresh token to a file that only its owner can read.
    pub async fn bind(port: u16, token_file: &Path) -> Result<Self, ServeError> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(|error| ServeError::Listen(port, error))?;
        let token = write_token(token_file)
            .map_err(|error| ServeError::Token { path: token_file.to_owned(), source: error })?;
        Ok(Self { listener, token: Some(token) })
    }

    /// Takes an address at which everybody may ask everything.
    pub async fn open(address: SocketAddr) -> Result<Self, ServeError> {
        let listener = TcpListener::bind(address).await.map_err(|error| ServeError::ListenAt(address, error))?;
        Ok(Self { listener, token: None })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers for ever.
    pub async fn serve(self, answers: impl Answers) {
        let shared = Arc::new((answers, self.token));
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "cannot accept a connection to the API; trying again");
                    let next_try = tokio::time::Instant::now() + PAUSE;
                    tokio::time::sleep_until(next_try).await;
                    continue;
                }
            };
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let answer = service_fn(|request| answer(&shared.0, shared.1.as_deref(), request));
                let mut server = http1::Builder::new();
                let connection = server
                    .timer(TokioTimer::new())
                    .header_read_timeout(PATIENCE)
                    .serve_connection(TokioIo::new(stream), answer);
                if let Err(error) = connection.await {
                    debug!(%error, "a connection to the API ended");
                }
                drop(place);
            });
        }
    }
}

async fn answer<A: Answers>(
    answers: &A,
    token: Option<&str>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, http::Error> {
    let path = request.uri().path();
    let plain = |status: StatusCode, text: &str| Answer::text(status, format!("{text}\n"));
    let answer = if request.method() != Method::GET {
        plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is understood here")
    } else if !answers.is_open(path) && !token.is_none_or(|token| is_authorised(&request, token)) {
        plain(
            StatusCode::UNAUTHORIZED,
            "needs the header `Authorization: Bearer TOKEN`, with the token of the agent's token file",
        )
    } else {
        let found = answers.get(path, request.uri().query().unwrap_or_default()).await;
        found.unwrap_or_else(|| plain(StatusCode::NOT_FOUND, "there is nothing here"))
    };
    let mut response = Response::builder().status(answer.status).header(CONTENT_TYPE, answer.kind);
    if answer.status == StatusCode::UNAUTHORIZED {
        response = response.header(WWW_AUTHENTICATE, "Bearer");
    }
    if let Some((name, value)) = answer.header {
        response = response.header(name, value);
    }
    response.body(Full::new(answer.body.into()))
}

fn is_authorised(request: &Request<Incoming>, token: &str) -> bool {
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(given) = given.and_then(|value| value.strip_prefix("Bearer ")) else { return false };
    // As long for a token that is nearly right as for one that is not right at all.
    given.len() == token.len() && given.bytes().zip(token.bytes()).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
}

/// Writes a token that nobody can guess.
fn write_token(path: &Path) -> io::Result<String> {
    let mut random = [0; 32];
    io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, &mut random)?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    // A reader finds the old token or the new one, never half of one.
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(token.as_bytes())?;
    fs::rename(&temporary, path)?;
    Ok(token)
}

#[cfg(test)]
mod tests;
