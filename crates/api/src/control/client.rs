//! The client side of the stream, for agents.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status, Streaming};
use types::control::{Batch, Report};

use super::parts::Assembly;
use super::wire::{self, control_client::ControlClient, from_agent::Kind};
use super::{MAX_MESSAGE_BYTES, encode};
use crate::channel::Channel;

/// For connecting and authenticating.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Keepalive: detects a silent controller.
const PING_INTERVAL: Duration = Duration::from_secs(3);
const PING_TIMEOUT: Duration = Duration::from_secs(4);
/// The HTTP/2 window: bytes in flight to an agent that does not read. The rest stays in the controller, as changes and not as bytes.
const WINDOW: u32 = 256 << 10;
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// Report messages that wait to be sent.
const REPORT_QUEUE: usize = 8;
const MAX_REPORTS_PER_MESSAGE: usize = 512;

/// How an agent and a controller authenticate each other.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The CA certificates of the controller, as PEM.
    pub ca_bundle: String,
    /// The token of the agent, bound to its Node.
    pub token: String,
    /// The DNS name in the controller's certificate.
    pub server_name: String,
}

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The credentials are unusable.
    #[error("credentials for antrea-controller: {field}: {problem}")]
    Credentials {
        /// The field of [`Credentials`].
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// No connection, or the server has no valid certificate.
    #[error("antrea-controller at {address} cannot be reached: {problem}")]
    Unreachable {
        /// The address of the controller.
        address: SocketAddr,
        /// The cause, for the log.
        problem: String,
    },
    /// The controller refuses the token or the request.
    #[error("antrea-controller at {address} refuses this agent: {problem}")]
    Refused {
        /// The address of the controller.
        address: SocketAddr,
        /// The cause, for the log.
        problem: String,
    },
    /// An established stream ended.
    #[error("the stream from antrea-controller at {address} ended: {problem}")]
    StreamEnded {
        /// The address of the controller.
        address: SocketAddr,
        /// The cause, for the log.
        problem: String,
    },
}

/// An open stream from a controller. Dropping it closes it.
#[derive(Debug)]
pub struct Following {
    address: SocketAddr,
    stream: Streaming<wire::Part>,
    assembly: Assembly,
    reports: mpsc::Sender<wire::FromAgent>,
    /// Closes the connection when dropped.
    _connection: JoinSet<()>,
}

/// Sends reports of a Node.
#[derive(Clone, Debug)]
pub struct Reporter {
    address: SocketAddr,
    reports: mpsc::Sender<wire::FromAgent>,
}

/// Opens the stream for a Node from the controller at `address`. Returns within seconds.
pub async fn follow(address: SocketAddr, credentials: &Credentials, node: &str) -> Result<Following, Error> {
    let (connector, name) = (connector(credentials)?, server_name(credentials)?);
    let token = MetadataValue::try_from(format!("Bearer {}", credentials.token.trim()))
        .map_err(|_| invalid("token", "has characters that are not allowed in a token"))?;
    let connecting = connect(address, &connector, name, token, node);
    timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| late(address))?
}

/// Sends a GET of `path` to the controller at `address`. Returns within seconds.
pub async fn get(address: SocketAddr, credentials: &Credentials, path: &str) -> Result<Bytes, Error> {
    let message = http::Request::get(format!("https://{}{path}", credentials.server_name))
        .header(http::header::AUTHORIZATION, format!("Bearer {}", credentials.token.trim()))
        .body(Body::empty())
        .map_err(|error| invalid("token", error))?;
    let (connector, name) = (connector(credentials)?, server_name(credentials)?);
    let request = async {
        let (mut sender, _connection) = handshake(address, &connector, name).await?;
        let lost = |error: hyper::Error| stream_ended(address, error);
        let response = sender.send_request(message).await.map_err(lost)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
        let body = body.map_err(|error| stream_ended(address, error))?.to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        Err(Error::Refused { address, problem: format!("{status}: {}", String::from_utf8_lossy(&body).trim()) })
    };
    timeout(CONNECT_TIMEOUT, request).await.map_err(|_| late(address))?
}

async fn connect(
    address: SocketAddr,
    connector: &TlsConnector,
    name: ServerName<'static>,
    token: MetadataValue<tonic::metadata::Ascii>,
    node: &str,
) -> Result<Following, Error> {
    let (sender, connections) = handshake(address, connector, name).await?;
    let (reports, to_send) = mpsc::channel(REPORT_QUEUE);
    let hello = wire::FromAgent { kind: Some(Kind::Hello(wire::Hello { node: node.to_owned() })) };
    let lost = |_| stream_ended(address, "the connection ended");
    reports.send(hello).await.map_err(lost)?;
    let mut request = Request::new(ReceiverStream::new(to_send));
    request.metadata_mut().insert("authorization", token);
    let origin = http::Uri::from_static("https://antrea-controller");
    let mut client = ControlClient::with_origin(Channel(sender), origin).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let stream = client.follow(request).await.map_err(|status| ended(address, &status))?.into_inner();
    Ok(Following { address, stream, assembly: Assembly::default(), reports, _connection: connections })
}

/// Opens a connection, which is closed when the second value is dropped.
async fn handshake(
    address: SocketAddr,
    connector: &TlsConnector,
    name: ServerName<'static>,
) -> Result<(http2::SendRequest<Body>, JoinSet<()>), Error> {
    let stream = TcpStream::connect(address).await.map_err(|error| unreachable(address, error))?;
    stream.set_nodelay(true).map_err(|error| unreachable(address, error))?;
    let stream = connector.connect(name, stream).await.map_err(|error| unreachable(address, error))?;
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new()).keep_alive_interval(PING_INTERVAL).keep_alive_timeout(PING_TIMEOUT);
    http.initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    let http = http.keep_alive_while_idle(true).handshake(TokioIo::new(stream)).await;
    let (sender, connection) = http.map_err(|error| unreachable(address, error))?;
    let mut connections = JoinSet::new();
    connections.spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%address, %error, "the connection to antrea-controller ended");
        }
    });
    Ok((sender, connections))
}

impl Following {
    /// The next complete batch: first a snapshot, then changes. Cancel safe.
    pub async fn next(&mut self) -> Result<Batch, Error> {
        loop {
            let part = self.stream.message().await.map_err(|status| ended(self.address, &status))?;
            let part = part.ok_or_else(|| stream_ended(self.address, "the controller closed it"))?;
            if let Some(batch) = self.assembly.add(part).map_err(|error| stream_ended(self.address, error))? {
                return Ok(batch);
            }
        }
    }

    /// A handle to send reports.
    pub fn reporter(&self) -> Reporter {
        Reporter { address: self.address, reports: self.reports.clone() }
    }
}

impl Reporter {
    /// Sends reports in order; waits while the controller does not read.
    pub async fn report(&self, reports: Vec<Report>) -> Result<(), Error> {
        for some in reports.chunks(MAX_REPORTS_PER_MESSAGE) {
            let reports = wire::Reports { reports: some.iter().map(encode::report).collect() };
            let message = wire::FromAgent { kind: Some(Kind::Reports(reports)) };
            self.reports.send(message).await.map_err(|_| stream_ended(self.address, "the connection ended"))?;
        }
        Ok(())
    }
}

fn connector(credentials: &Credentials) -> Result<TlsConnector, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(credentials.ca_bundle.as_bytes()) {
        let certificate = certificate.map_err(|error| invalid("ca_bundle", error))?;
        roots.add(certificate).map_err(|error| invalid("ca_bundle", error))?;
    }
    if roots.is_empty() {
        return Err(invalid("ca_bundle", "has no PEM certificate; it must be key `ca.crt` of ConfigMap antrea-ca"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("ca_bundle", error))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn invalid(field: &'static str, problem: impl Display) -> Error {
    Error::Credentials { field, problem: problem.to_string() }
}

fn server_name(credentials: &Credentials) -> Result<ServerName<'static>, Error> {
    let name = ServerName::try_from(credentials.server_name.clone());
    name.map_err(|error| invalid("server_name", format!("`{}`: {error}", credentials.server_name)))
}

fn late(address: SocketAddr) -> Error {
    unreachable(address, format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()))
}

fn unreachable(address: SocketAddr, problem: impl Display) -> Error {
    Error::Unreachable { address, problem: problem.to_string() }
}

fn stream_ended(address: SocketAddr, problem: impl Display) -> Error {
    Error::StreamEnded { address, problem: problem.to_string() }
}

fn ended(address: SocketAddr, status: &Status) -> Error {
    let problem = || format!("{}: {}", status.code(), status.message());
    match status.code() {
        tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => {
            Error::Refused { address, problem: status.message().to_owned() }
        }
        _ => stream_ended(address, problem()),
    }
}
