//! The port: TLS, agents' streams, and whatever else is asked there.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::NoServerSessionStorage;
use tokio_rustls::server::TlsStream;

use super::activity::{Activity, Answer};
use super::grpc::Told;
use super::service::{PATH, Service};
use super::visits::{Visit, Visits};
use super::{Controller, Patience};

/// Connections at a time: a large cluster's agents, and some more.
const MOST_CONNECTIONS: usize = 16_384;
/// How often a client that says nothing is asked whether it is still there, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_PATIENCE: Duration = Duration::from_secs(10);
/// Requests at a time of one connection; the API server's proxy has many callers.
const MOST_STREAMS: u32 = 128;
/// What is kept of a response beyond what its reader has taken.
const SEND_BUFFER: usize = 32 << 10;
/// How long to wait after a failure to accept, which is a lack of file descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

/// How HTTP/2 is called in a handshake.
const HTTP2: &[u8] = b"h2";

/// Makes a TLS configuration that of a [`Listener`]: what can be spoken, and nothing kept for connections that have ended. Agents
/// come back once in half an hour, with a token to be looked at anyway.
pub fn prepare(config: &mut ServerConfig) {
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
}

/// Answers what is no stream of an agent.
pub trait Rest: Send + Sync + 'static {
    /// The answer to a request of somebody who showed these certificates, which are good as far as the TLS configuration says.
    fn answer(
        &self,
        request: Request<Incoming>,
        shown: &[CertificateDer<'static>],
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;
}

/// Why the port cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; set apiPort to another port")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

/// A port that agents can connect to.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
}

impl Listener {
    /// Takes a port (any, if 0).
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let listener = TcpListener::bind(address).await.map_err(|source| BindError { address, source })?;
        Ok(Self { listener })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `shutdown` is ready; then ends every connection. A new connection has what `tls` has then.
    pub async fn serve<C: Controller, R: Rest>(
        self,
        tls: watch::Receiver<Arc<ServerConfig>>,
        controller: Arc<C>,
        rest: Arc<R>,
        patience: Patience,
        shutdown: impl Future<Output = ()>,
    ) {
        let service = Service::new(controller, patience);
        let visits = Visits::default();
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let mut connections = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return,
                Some(_) = connections.join_next() => {}
                Ok(place) = Arc::clone(&places).acquire_owned() => {
                    let (stream, from) = tokio::select! {
                        () = &mut shutdown => return,
                        stream = accept(&self.listener) => stream,
                    };
                    let Some(visit) = visits.begin(from.ip()) else {
                        tracing::debug!(%from, "too many connections of one address that no agent was let in on");
                        continue;
                    };
                    let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow()));
                    let talk = Talk { service: service.clone(), rest: Arc::clone(&rest), patience, visit };
                    connections.spawn(async move {
                        talk.run(stream, from, acceptor).await;
                        drop(place);
                    });
                }
            }
        }
    }
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; trying again");
                let next_try = Instant::now() + PAUSE;
                sleep_until(next_try).await;
            }
        }
    }
}

/// One connection.
struct Talk<C: Controller, R> {
    service: Service<C>,
    rest: Arc<R>,
    patience: Patience,
    visit: Visit,
}

impl<C: Controller, R: Rest> Talk<C, R> {
    async fn run(self, stream: TcpStream, from: SocketAddr, acceptor: TlsAcceptor) {
        // What is done for a moment only has memory of its own, which an agent's connection does not keep.
        let Some(connection) = Box::pin(self.begin(stream, from, acceptor)).await else { return };
        if let Err(error) = connection.await {
            tracing::debug!(%from, %error, "a connection ended");
        }
    }

    async fn begin(self, stream: TcpStream, from: SocketAddr, acceptor: TlsAcceptor) -> Option<Connection> {
        let _ = stream.set_nodelay(true);
        let stream = match timeout(self.patience.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%from, %error, "a client that does not speak TLS with us");
                return None;
            }
            Err(_) => {
                tracing::debug!(%from, "a client that did not end its handshake");
                return None;
            }
        };
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
        let visitor = Arc::new(Visitor::new(self, &stream));
        let answered = Arc::clone(&visitor);
        let answer = service_fn(move |request| Box::pin(Arc::clone(&answered).answer(request)));
        let stream = TokioIo::new(stream);
        if !is_http2 {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(visitor.talk.patience.handshake);
            let connection = Box::pin(http.serve_connection(stream, answer));
            return Some(Box::pin(visitor.stay(connection, http1::Connection::graceful_shutdown)));
        }
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_PATIENCE)
            .max_concurrent_streams(MOST_STREAMS)
            .max_send_buf_size(SEND_BUFFER);
        let connection = Box::pin(http.serve_connection(stream, answer));
        Some(Box::pin(visitor.stay(connection, http2::Connection::graceful_shutdown)))
    }
}

/// A connection that goes on.
type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// Whoever is connected, and what it asks.
struct Visitor<C: Controller, R> {
    talk: Talk<C, R>,
    /// The certificates that it showed.
    shown: Vec<CertificateDer<'static>>,
    activity: Activity,
}

impl<C: Controller, R: Rest> Visitor<C, R> {
    fn new(talk: Talk<C, R>, stream: &TlsStream<TcpStream>) -> Self {
        let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
        Self { talk, shown: shown.iter().map(|it| it.clone().into_owned()).collect(), activity: Activity::default() }
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Answer<Either<Told, Full<Bytes>>>>, Infallible> {
        let busy = self.activity.begin();
        let answer = if request.uri().path() == PATH {
            match self.talk.service.clone().follow(request, &self.talk.visit).await {
                Ok(told) => told.map(Either::Left),
                Err(status) => status.into_http::<Full<Bytes>>().map(Either::Right),
            }
        } else {
            self.talk.rest.answer(request, &self.shown).await.map(Either::Right)
        };
        Ok(answer.map(|body| busy.body(body)))
    }

    /// Has the connection go on until it ends, or nobody has asked anything on it for long.
    async fn stay<H: Future<Output = hyper::Result<()>>>(
        self: Arc<Self>,
        mut connection: Pin<Box<H>>,
        end: fn(Pin<&mut H>),
    ) -> hyper::Result<()> {
        let Patience { handshake, idle, .. } = self.talk.patience;
        tokio::select! {
            ended = &mut connection => return ended,
            () = self.activity.has_ended(handshake, idle) => end(connection.as_mut()),
        }
        // What was asked at the last moment is answered.
        timeout(handshake, connection).await.unwrap_or(Ok(()))
    }
}
