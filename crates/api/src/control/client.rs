//! The agent's end of the stream.

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
use super::{MOST_BYTES, encode};
use crate::channel::Channel;

/// How long it may take until a controller has let an agent in.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a controller that says nothing is asked whether it is still there, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(3);
const PING_PATIENCE: Duration = Duration::from_secs(4);
/// How much may be on its way to an agent that takes nothing: the rest waits in the controller, as changes and not as bytes.
const WINDOW: u32 = 256 << 10;
/// The most that is read of an answer.
const MOST_ANSWERED: usize = 64 << 20;
/// Reports that wait to be sent; whoever has more waits.
const REPORTS_WAITING: usize = 8;
/// How many reports one message has at most.
const REPORTS_AT_ONCE: usize = 512;

/// How an agent knows the controller, and shows who it is.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Whose certificates are believed: PEM, one or several.
    pub authorities: String,
    /// The token that names the Node.
    pub token: String,
    /// The name that the controller's certificate must have.
    pub server_name: String,
}

/// Why there is no stream, or none any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the agent has to show cannot be used.
    #[error("credentials for antrea-controller: {field}: {problem}")]
    Credentials {
        /// Which part of them.
        field: &'static str,
        /// What is wrong, and what it should be.
        problem: String,
    },
    /// Nobody is there, or nobody who can show that it is a controller.
    #[error("antrea-controller at {address} cannot be reached: {problem}")]
    Unreachable {
        /// Who was asked.
        address: SocketAddr,
        /// Why.
        problem: String,
    },
    /// The controller does not want this agent: its token or what it is allowed to do is not enough.
    #[error("antrea-controller at {address} refuses this agent: {problem}")]
    Refused {
        /// Who was asked.
        address: SocketAddr,
        /// Why.
        problem: String,
    },
    /// The stream was there, and is no more.
    #[error("the stream from antrea-controller at {address} broke off: {problem}")]
    BrokenOff {
        /// Who was asked.
        address: SocketAddr,
        /// Why.
        problem: String,
    },
}

/// A stream from a controller. Dropping it ends it.
#[derive(Debug)]
pub struct Following {
    address: SocketAddr,
    stream: Streaming<wire::Part>,
    assembly: Assembly,
    reports: mpsc::Sender<wire::FromAgent>,
    /// Kept for its end.
    _connection: JoinSet<()>,
}

/// Says what a Node has carried out.
#[derive(Clone, Debug)]
pub struct Reporter {
    address: SocketAddr,
    reports: mpsc::Sender<wire::FromAgent>,
}

/// Follows what the controller at `address` tells a Node. Ends within seconds, one way or the other.
pub async fn follow(address: SocketAddr, credentials: &Credentials, node: &str) -> Result<Following, Error> {
    let (connector, name) = (connector(credentials)?, server_name(credentials)?);
    let token = MetadataValue::try_from(format!("Bearer {}", credentials.token.trim()))
        .map_err(|_| invalid("token", "has characters that no token has"))?;
    let connecting = connect(address, &connector, name, token, node);
    timeout(PATIENCE, connecting).await.map_err(|_| late(address))?
}

/// Asks the controller at `address` for something else than a stream: what it answers to a GET of `path`. Ends within seconds.
pub async fn ask(address: SocketAddr, credentials: &Credentials, path: &str) -> Result<Bytes, Error> {
    let request = http::Request::get(format!("https://{}{path}", credentials.server_name))
        .header(http::header::AUTHORIZATION, format!("Bearer {}", credentials.token.trim()))
        .body(Body::empty())
        .map_err(|error| invalid("token", error))?;
    let (connector, name) = (connector(credentials)?, server_name(credentials)?);
    let asking = async {
        let (mut sender, _connection) = handshake(address, &connector, name).await?;
        let lost = |error: hyper::Error| broken_off(address, error);
        let response = sender.send_request(request).await.map_err(lost)?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST_ANSWERED).collect().await;
        let body = body.map_err(|error| broken_off(address, error))?.to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        Err(Error::Refused { address, problem: format!("{status}: {}", String::from_utf8_lossy(&body).trim()) })
    };
    timeout(PATIENCE, asking).await.map_err(|_| late(address))?
}

async fn connect(
    address: SocketAddr,
    connector: &TlsConnector,
    name: ServerName<'static>,
    token: MetadataValue<tonic::metadata::Ascii>,
    node: &str,
) -> Result<Following, Error> {
    let (sender, connections) = handshake(address, connector, name).await?;
    let (reports, to_send) = mpsc::channel(REPORTS_WAITING);
    let hello = wire::FromAgent { kind: Some(Kind::Hello(wire::Hello { node: node.to_owned() })) };
    let lost = |_| broken_off(address, "the connection ended");
    reports.send(hello).await.map_err(lost)?;
    let mut request = Request::new(ReceiverStream::new(to_send));
    request.metadata_mut().insert("authorization", token);
    let origin = http::Uri::from_static("https://antrea-controller");
    let mut client = ControlClient::with_origin(Channel(sender), origin).max_decoding_message_size(MOST_BYTES);
    let stream = client.follow(request).await.map_err(|status| ended(address, &status))?.into_inner();
    Ok(Following { address, stream, assembly: Assembly::default(), reports, _connection: connections })
}

/// A connection; it ends with the second value.
async fn handshake(
    address: SocketAddr,
    connector: &TlsConnector,
    name: ServerName<'static>,
) -> Result<(http2::SendRequest<Body>, JoinSet<()>), Error> {
    let stream = TcpStream::connect(address).await.map_err(|error| unreachable(address, error))?;
    stream.set_nodelay(true).map_err(|error| unreachable(address, error))?;
    let stream = connector.connect(name, stream).await.map_err(|error| unreachable(address, error))?;
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new()).keep_alive_interval(PING_EVERY).keep_alive_timeout(PING_PATIENCE);
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
    /// The next whole batch: first a snapshot, then what changes. May be given up and asked for again.
    pub async fn next(&mut self) -> Result<Batch, Error> {
        loop {
            let part = self.stream.message().await.map_err(|status| ended(self.address, &status))?;
            let part = part.ok_or_else(|| broken_off(self.address, "the controller has ended it"))?;
            if let Some(batch) = self.assembly.add(part).map_err(|error| broken_off(self.address, error))? {
                return Ok(batch);
            }
        }
    }

    /// Whoever has something to report.
    pub fn reporter(&self) -> Reporter {
        Reporter { address: self.address, reports: self.reports.clone() }
    }
}

impl Reporter {
    /// Sends reports, in their order; waits while the controller takes none.
    pub async fn report(&self, reports: Vec<Report>) -> Result<(), Error> {
        for some in reports.chunks(REPORTS_AT_ONCE) {
            let reports = wire::Reports { reports: some.iter().map(encode::report).collect() };
            let message = wire::FromAgent { kind: Some(Kind::Reports(reports)) };
            self.reports.send(message).await.map_err(|_| broken_off(self.address, "the connection ended"))?;
        }
        Ok(())
    }
}

fn connector(credentials: &Credentials) -> Result<TlsConnector, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(credentials.authorities.as_bytes()) {
        let certificate = certificate.map_err(|error| invalid("authorities", error))?;
        roots.add(certificate).map_err(|error| invalid("authorities", error))?;
    }
    if roots.is_empty() {
        return Err(invalid("authorities", "needs a certificate in PEM; the ConfigMap antrea-ca has it as `ca.crt`"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| invalid("authorities", error))?;
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
    unreachable(address, format!("no answer within {} s", PATIENCE.as_secs()))
}

fn unreachable(address: SocketAddr, problem: impl Display) -> Error {
    Error::Unreachable { address, problem: problem.to_string() }
}

fn broken_off(address: SocketAddr, problem: impl Display) -> Error {
    Error::BrokenOff { address, problem: problem.to_string() }
}

fn ended(address: SocketAddr, status: &Status) -> Error {
    let problem = || format!("{}: {}", status.code(), status.message());
    match status.code() {
        tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => {
            Error::Refused { address, problem: status.message().to_owned() }
        }
        _ => broken_off(address, problem()),
    }
}
