//! The port: TLS, agents' streams, and whatever else is asked there.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tonic::body::Body;
use tower_service::Service as _;

use super::service::Service;
use super::visits::{Visit, Visits};
use super::{Controller, Patience};
use crate::control::MOST_BYTES;
use crate::control::wire::control_server::{ControlServer, SERVICE_NAME};

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
        let service = ControlServer::new(Service::new(controller, patience)).max_decoding_message_size(MOST_BYTES);
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
    service: ControlServer<Service<C>>,
    rest: Arc<R>,
    patience: Patience,
    visit: Visit,
}

impl<C: Controller, R: Rest> Talk<C, R> {
    async fn run(self, stream: TcpStream, from: SocketAddr, acceptor: TlsAcceptor) {
        let patience = self.patience.handshake;
        let _ = stream.set_nodelay(true);
        let stream = match timeout(patience, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(%from, %error, "a client that does not speak TLS with us"),
            Err(_) => return tracing::debug!(%from, "a client that did not end its handshake"),
        };
        let shown: Arc<[CertificateDer<'static>]> = stream
            .get_ref()
            .1
            .peer_certificates()
            .unwrap_or_default()
            .iter()
            .map(|it| it.clone().into_owned())
            .collect();
        let asked = Notify::new();
        let answer = service_fn(|mut request: Request<Incoming>| {
            asked.notify_one();
            request.extensions_mut().insert(self.visit.clone());
            let (mut service, rest, shown) = (self.service.clone(), Arc::clone(&self.rest), Arc::clone(&shown));
            async move {
                let is_stream = request.uri().path().trim_start_matches('/').starts_with(SERVICE_NAME);
                if is_stream {
                    return service.call(request).await;
                }
                Ok::<_, Infallible>(rest.answer(request, &shown).await.map(Body::new))
            }
        });
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(patience);
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_PATIENCE)
            .max_concurrent_streams(MOST_STREAMS)
            .max_send_buf_size(SEND_BUFFER);
        let asks_nothing = async {
            if timeout(patience, asked.notified()).await.is_ok() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            ended = http.serve_connection(TokioIo::new(stream), answer) => {
                if let Err(error) = ended {
                    tracing::debug!(%from, %error, "a connection ended");
                }
            }
            () = asks_nothing => tracing::debug!(%from, "a client that asked nothing"),
        }
    }
}
