//! A client of either server: a connection with a certificate, and requests over it.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Address of a server, and credentials of its administrator.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) address: SocketAddr,
    tls: TlsConnector,
}

/// A connection for one request at a time.
pub(crate) struct Connection(SendRequest<Full<Bytes>>);

impl Access {
    /// Certificates and the key are in PEM.
    pub(crate) fn new(address: SocketAddr, ca: &str, certificate: &str, key: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        Ok(Self { address, tls: TlsConnector::from(Arc::new(config)) })
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(self.address).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        let stream = self.tls.connect(ServerName::from(self.address.ip()), stream).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // The task ends when the sender is dropped.
        tokio::spawn(connection);
        Ok(Connection(sender))
    }
}

impl Connection {
    pub(crate) async fn open(&mut self, method: &str, path: &str, body: Bytes) -> Result<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "kubernetes")
            .header("content-type", "application/json")
            .body(Full::new(body))?;
        self.0.ready().await?;
        Ok(self.0.send_request(request).await?)
    }

    /// Sends a request that must succeed, and returns the whole body.
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: Bytes) -> Result<Bytes> {
        let response = self.open(method, path, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{method} {path}: {status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }
}
