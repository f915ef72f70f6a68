//! The API port: TLS, streams of agents, and other HTTP requests.

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
use super::grpc::StreamBody;
use super::limits::{AddressLimits, Slot};
use super::service::{PATH, Service};
use super::{Controller, Timeouts};

/// Enough for the agents of a large cluster.
const MAX_CONNECTIONS: usize = 16_384;
/// Keepalive: detects silent clients.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent requests per connection; the API server's proxy multiplexes its clients.
const MAX_STREAMS: u32 = 128;
/// Response bytes that are buffered per request.
const SEND_BUFFER: usize = 32 << 10;
/// After a failure to accept, for lack of file descriptors or memory.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The ALPN protocol of HTTP/2.
const HTTP2: &[u8] = b"h2";

/// Completes a TLS configuration for a [`Listener`]: protocols, and no state for session resumption. Agents reconnect every half an
/// hour and authenticate again anyway.
pub fn prepare(config: &mut ServerConfig) {
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
}

/// Answers requests other than agents' streams.
pub trait Rest: Send + Sync + 'static {
    /// Answers a request of a client with these certificates, which TLS has verified.
    fn answer(
        &self,
        request: Request<Incoming>,
        certificates: &[CertificateDer<'static>],
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;
}

/// The port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; set apiPort to another port")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

/// The listening socket of the API port.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
}

impl Listener {
    /// Listens on an address; port 0 chooses a free one.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let listener = TcpListener::bind(address).await.map_err(|source| BindError { address, source })?;
        Ok(Self { listener })
    }

    /// The local address, with the chosen port.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` completes, then closes all connections. New connections use the latest value of `tls`.
    pub async fn serve<C: Controller, R: Rest>(
        self,
        tls: watch::Receiver<Arc<ServerConfig>>,
        controller: Arc<C>,
        rest: Arc<R>,
        timeouts: Timeouts,
        shutdown: impl Future<Output = ()>,
    ) {
        let service = Service::new(controller, timeouts);
        let limits = AddressLimits::default();
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
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
                    let Some(slot) = limits.acquire(from.ip()) else {
                        tracing::debug!(%from, "too many unauthenticated connections from one address");
                        continue;
                    };
                    let acceptor = TlsAcceptor::from(Arc::clone(&tls.borrow()));
                    let context = ConnectionContext { service: service.clone(), rest: Arc::clone(&rest), timeouts, slot };
                    connections.spawn(async move {
                        context.run(stream, from, acceptor).await;
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
                let next_try = Instant::now() + ACCEPT_RETRY_DELAY;
                sleep_until(next_try).await;
            }
        }
    }
}

/// What a new connection needs.
struct ConnectionContext<C: Controller, R> {
    service: Service<C>,
    rest: Arc<R>,
    timeouts: Timeouts,
    slot: Slot,
}

impl<C: Controller, R: Rest> ConnectionContext<C, R> {
    async fn run(self, stream: TcpStream, from: SocketAddr, acceptor: TlsAcceptor) {
        // Boxed: the memory of the handshake is freed before the connection is served.
        let Some(connection) = Box::pin(self.begin(stream, from, acceptor)).await else { return };
        if let Err(error) = connection.await {
            tracing::debug!(%from, %error, "connection ended");
        }
    }

    async fn begin(self, stream: TcpStream, from: SocketAddr, acceptor: TlsAcceptor) -> Option<Connection> {
        let _ = stream.set_nodelay(true);
        let stream = match timeout(self.timeouts.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%from, %error, "TLS handshake failed");
                return None;
            }
            Err(_) => {
                tracing::debug!(%from, "TLS handshake timed out");
                return None;
            }
        };
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
        let peer = Arc::new(Peer::new(self, &stream));
        let answered = Arc::clone(&peer);
        let answer = service_fn(move |request| Box::pin(Arc::clone(&answered).answer(request)));
        let stream = TokioIo::new(stream);
        if !is_http2 {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(peer.context.timeouts.handshake);
            let connection = Box::pin(http.serve_connection(stream, answer));
            return Some(Box::pin(peer.serve(connection, http1::Connection::graceful_shutdown)));
        }
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_concurrent_streams(MAX_STREAMS)
            .max_send_buf_size(SEND_BUFFER);
        let connection = Box::pin(http.serve_connection(stream, answer));
        Some(Box::pin(peer.serve(connection, http2::Connection::graceful_shutdown)))
    }
}

/// A connection after its handshake.
type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// The client of a connection.
struct Peer<C: Controller, R> {
    context: ConnectionContext<C, R>,
    /// Its certificates, which TLS has verified.
    certificates: Vec<CertificateDer<'static>>,
    activity: Activity,
}

impl<C: Controller, R: Rest> Peer<C, R> {
    fn new(context: ConnectionContext<C, R>, stream: &TlsStream<TcpStream>) -> Self {
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        Self {
            context,
            certificates: certificates.iter().map(|it| it.clone().into_owned()).collect(),
            activity: Activity::default(),
        }
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Answer<Either<StreamBody, Full<Bytes>>>>, Infallible> {
        let busy = self.activity.begin();
        let answer = if request.uri().path() == PATH {
            match self.context.service.clone().follow(request, &self.context.slot).await {
                Ok(stream) => stream.map(Either::Left),
                Err(status) => status.into_http::<Full<Bytes>>().map(Either::Right),
            }
        } else {
            self.context.rest.answer(request, &self.certificates).await.map(Either::Right)
        };
        Ok(answer.map(|body| busy.body(body)))
    }

    /// Serves the connection until it ends or is idle for too long.
    async fn serve<H: Future<Output = hyper::Result<()>>>(
        self: Arc<Self>,
        mut connection: Pin<Box<H>>,
        end: fn(Pin<&mut H>),
    ) -> hyper::Result<()> {
        let Timeouts { handshake, idle, .. } = self.context.timeouts;
        tokio::select! {
            ended = &mut connection => return ended,
            () = self.activity.has_ended(handshake, idle) => end(connection.as_mut()),
        }
        // Open requests are still answered.
        timeout(handshake, connection).await.unwrap_or(Ok(()))
    }
}
