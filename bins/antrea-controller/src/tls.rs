//! TLS of the API port: a serving certificate of the shared CA, and client certificates of the API server's proxy.

use std::sync::Arc;
use std::time::Duration;

use k8s::{Client, WatchEvent, WatchFilter};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tracing::{info, warn};
use types::config_map::ConfigMap;

use crate::ca::{CaState, is_renewal_due, now};

/// Interval of comparing the serving certificate with the wall clock, which may jump.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// Of attempts to issue a serving certificate.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Why there is no serving certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("cannot sign the serving certificate: {0}")]
    Sign(#[from] rcgen::Error),
    #[error("cannot decode the serving certificate: {0}")]
    Decode(#[from] pem::Error),
    #[error("cannot use the serving certificate: {0}")]
    Tls(#[from] tokio_rustls::rustls::Error),
}

/// How the API server's proxy authenticates, and passes on its users.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FrontProxy {
    /// The CA of its client certificates, as PEM; the proxy is not accepted while this is empty.
    ca: String,
    /// Allowed common names; all if empty.
    pub(crate) names: Vec<String>,
    pub(crate) user_headers: Vec<String>,
    pub(crate) group_headers: Vec<String>,
    pub(crate) extra_prefixes: Vec<String>,
}

impl FrontProxy {
    fn of(map: &ConfigMap) -> Self {
        let list = |key: &str| -> Vec<String> {
            map.data.get(key).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
        };
        Self {
            ca: map.data.get("requestheader-client-ca-file").cloned().unwrap_or_default(),
            names: list("requestheader-allowed-names"),
            user_headers: list("requestheader-username-headers"),
            group_headers: list("requestheader-group-headers"),
            extra_prefixes: list("requestheader-extra-headers-prefix"),
        }
    }
}

/// Watches the configuration of the proxy in the cluster.
pub(crate) async fn follow_front_proxy(client: Client, proxy: watch::Sender<Arc<FrontProxy>>) {
    let filter = WatchFilter {
        namespace: "kube-system".to_owned(),
        fields: "metadata.name=extension-apiserver-authentication".to_owned(),
        ..WatchFilter::default()
    };
    let mut watch = client.watch::<ConfigMap>(&filter);
    loop {
        let now = match watch.next().await {
            WatchEvent::Applied(map) => FrontProxy::of(&map),
            WatchEvent::Deleted(_) => FrontProxy::default(),
            WatchEvent::Synced => continue,
        };
        proxy.send_if_modified(|known| {
            let changed = **known != now;
            *known = Arc::new(now);
            changed
        });
    }
}

/// A TLS configuration with a new serving certificate.
pub(crate) fn server_config(ca: &CaState, proxy: &FrontProxy) -> Result<ServerConfig, CertificateError> {
    let leaf = ca.signing.sign(now())?;
    let chain = vec![CertificateDer::from_pem_slice(leaf.certificate.as_bytes())?];
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes())?;
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config = match verifier(proxy) {
        Some(verifier) => builder.with_client_cert_verifier(verifier).with_single_cert(chain, key)?,
        None => builder.with_no_client_auth().with_single_cert(chain, key)?,
    };
    api::control::server::prepare(&mut config);
    Ok(config)
}

/// Issues a new serving certificate when the old one is half expired, and when the CA or the proxy configuration changes.
pub(crate) async fn run(
    mut ca: watch::Receiver<Arc<CaState>>,
    mut proxy: watch::Receiver<Arc<FrontProxy>>,
    config: watch::Sender<Arc<ServerConfig>>,
) {
    let (mut delay, mut signed) = (CHECK_INTERVAL, now());
    loop {
        tokio::select! {
            Ok(()) = ca.changed() => {}
            Ok(()) = proxy.changed() => {}
            () = sleep_until(Instant::now() + delay) => if !is_renewal_due(signed, now()) {
                continue;
            }
        }
        let (known, front, at) = (Arc::clone(&ca.borrow()), Arc::clone(&proxy.borrow()), now());
        match server_config(&known, &front) {
            Ok(new) => {
                info!("issued a new serving certificate");
                config.send_replace(Arc::new(new));
                (delay, signed) = (CHECK_INTERVAL, at);
            }
            Err(error) => {
                warn!("cannot issue a new serving certificate, keeping the old one: {error}");
                // Due, whatever the time.
                (delay, signed) = (RETRY_INTERVAL, Duration::MAX);
            }
        }
    }
}

/// Client certificates are optional, and must be of the proxy's CA.
fn verifier(proxy: &FrontProxy) -> Option<Arc<dyn tokio_rustls::rustls::server::danger::ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(proxy.ca.as_bytes()).filter_map(Result::ok);
    let (known, _) = roots.add_parsable_certificates(certificates);
    let built =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).allow_unauthenticated().build();
    built.ok().filter(|_| known > 0)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
