//! What the port shows, and whom it believes: a certificate of the shared authority, and the API server's proxy.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s::{Client, Notice, Only};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tracing::{info, warn};
use types::config_map::ConfigMap;

use crate::authority::{Authorities, RENEW_LEAF, now};

/// How the API server's proxy shows that it is, and says for whom it asks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FrontProxy {
    /// Who signs its certificates, as PEM; it is not believed while this is empty.
    authority: String,
    /// The names in its certificate; any if there are none.
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
            authority: map.data.get("requestheader-client-ca-file").cloned().unwrap_or_default(),
            names: list("requestheader-allowed-names"),
            user_headers: list("requestheader-username-headers"),
            group_headers: list("requestheader-group-headers"),
            extra_prefixes: list("requestheader-extra-headers-prefix"),
        }
    }
}

/// Follows what the API server says about its proxy, for ever.
pub(crate) async fn follow_front_proxy(client: Client, proxy: watch::Sender<Arc<FrontProxy>>) {
    let only = Only {
        namespace: "kube-system".to_owned(),
        fields: "metadata.name=extension-apiserver-authentication".to_owned(),
        ..Only::default()
    };
    let mut watch = client.watch::<ConfigMap>(&only);
    loop {
        let now = match watch.next().await {
            Notice::Set(map) => FrontProxy::of(&map),
            Notice::Gone(_) => FrontProxy::default(),
            Notice::Synced => continue,
        };
        proxy.send_if_modified(|known| {
            let changed = **known != now;
            *known = Arc::new(now);
            changed
        });
    }
}

/// The first configuration; then [`keep`] has it follow.
pub(crate) fn first(authorities: &Authorities, proxy: &FrontProxy) -> Result<ServerConfig> {
    let leaf = authorities.signing.sign(now()).context("a certificate of our own")?;
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

/// Makes a new certificate when the old one has lived for half its time, when the authority changes, or when the proxy does.
pub(crate) async fn keep(
    mut authorities: watch::Receiver<Arc<Authorities>>,
    mut proxy: watch::Receiver<Arc<FrontProxy>>,
    config: watch::Sender<Arc<ServerConfig>>,
) {
    let mut pause = RENEW_LEAF;
    loop {
        tokio::select! {
            Ok(()) = authorities.changed() => {}
            Ok(()) = proxy.changed() => {}
            () = sleep_until(Instant::now() + pause) => {}
        }
        let (known, front) = (Arc::clone(&authorities.borrow()), Arc::clone(&proxy.borrow()));
        match first(&known, &front) {
            Ok(new) => {
                info!("a new certificate of our own");
                config.send_replace(Arc::new(new));
                pause = RENEW_LEAF;
            }
            Err(error) => {
                warn!("no new certificate, and the old one is kept: {error:#}");
                pause = Duration::from_secs(60);
            }
        }
    }
}

/// Clients may show a certificate of the proxy's authority, or none.
fn verifier(proxy: &FrontProxy) -> Option<Arc<dyn tokio_rustls::rustls::server::danger::ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(proxy.authority.as_bytes()).filter_map(Result::ok);
    let (known, _) = roots.add_parsable_certificates(certificates);
    let built =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).allow_unauthenticated().build();
    built.ok().filter(|_| known > 0)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}
