//! TLS of the server, and of its connections to backends.

use std::sync::Arc;

use base64::Engine as _;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme};

use crate::auth::{Authority, Identity};

type Failed = Box<dyn std::error::Error + Send + Sync>;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// The TLS configuration of the server: clients may present a certificate of the CA, or none.
pub(crate) fn server(authority: &Authority, names: &[String]) -> Result<ServerConfig, Failed> {
    let identity = authority.server("kube-apiserver", names)?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes())?)?;
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).allow_unauthenticated().build()?;
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config = config.with_client_cert_verifier(verifier).with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The TLS configuration for a backend with a CA (PEM in base64), or without verification; presents `identity`.
pub(crate) fn client(ca: &str, insecure: bool, identity: &Identity) -> Result<ClientConfig, Failed> {
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    if insecure {
        let verifier = Arc::new(NoVerification(provider()));
        return Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_client_auth_cert(chain, key)?);
    }
    let mut roots = RootCertStore::empty();
    let pem = base64::engine::general_purpose::STANDARD.decode(ca)?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate?)?;
    }
    Ok(config.with_root_certificates(roots).with_client_auth_cert(chain, key)?)
}

/// The TLS configuration for kubelets, which have certificates of the CA.
pub(crate) fn to_kubelets(authority: &Authority, identity: &Identity) -> Result<ClientConfig, Failed> {
    client(&base64::engine::general_purpose::STANDARD.encode(&authority.pem), false, identity)
}

/// Accepts any certificate, for APIServices with `insecureSkipTLSVerify`.
#[derive(Debug)]
struct NoVerification(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
