//! TLS of the kubelet's server: only the API server can connect.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// The certificates of a kubelet, in PEM, which the supervisor writes.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Credentials {
    pub(crate) certificate: String,
    pub(crate) key: String,
    /// The CA of the client.
    pub(crate) ca: String,
    /// The certificate of the only client, the API server. Others of the same CA belong to kubelets and users.
    pub(crate) client: String,
}

impl Credentials {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let what = || format!("cannot read {}", path.display());
        serde_json::from_slice(&fs::read(path).with_context(what)?).with_context(what)
    }
}

/// Accepts connections of the API server.
pub(super) struct Acceptor {
    tls: TlsAcceptor,
    client: CertificateDer<'static>,
}

impl Acceptor {
    pub(super) fn new(credentials: &Credentials) -> Result<Self> {
        let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).context("not a certificate");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&credentials.ca)?)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
        let key = PrivateKeyDer::from_pem_slice(credentials.key.as_bytes()).context("not a private key")?;
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_client_cert_verifier(verifier);
        let mut config = config.with_single_cert(vec![certificate(&credentials.certificate)?], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { tls: TlsAcceptor::from(Arc::new(config)), client: certificate(&credentials.client)? })
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
        let stream = self.tls.accept(stream).await?;
        let presented = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        if presented != Some(&self.client) {
            bail!("the certificate of the client is not that of the API server");
        }
        Ok(stream)
    }
}
