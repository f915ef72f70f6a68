//! Discovery of the controller: addresses of its replicas, and its CA certificate.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use k8s::{Client, WatchEvent, WatchFilter};
use tokio::sync::watch;
use types::ObjectName;
use types::config_map::ConfigMap;
use types::service::{EndpointSlice, SERVICE_NAME_LABEL, Service};

/// Name of the controller's Service.
pub(crate) const SERVICE: &str = "antrea";
/// Name of the Service's port.
const PORT: &str = "api";
/// ConfigMap with the CA certificate.
pub(super) const CONFIG_MAP: &str = "antrea-ca";
const CERTIFICATE: &str = "ca.crt";

/// What is known of the controller.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Discovered {
    /// Whether the initial sync is complete.
    pub(super) is_synced: bool,
    /// Whether the cluster has a controller, running or not.
    pub(super) is_deployed: bool,
    /// Addresses of ready replicas, sorted.
    pub(super) addresses: Vec<SocketAddr>,
    /// CA certificates for TLS, as PEM.
    pub(super) ca_bundle: Option<String>,
}

/// Watches the Service, EndpointSlices and ConfigMap of the controller.
pub(super) fn find(client: &Client, namespace: &str) -> watch::Receiver<Discovered> {
    let (discovered, found) = watch::channel(Discovered::default());
    let only = WatchFilter { namespace: namespace.to_owned(), ..WatchFilter::default() };
    let mut slices = client
        .watch::<EndpointSlice>(&WatchFilter { labels: format!("{SERVICE_NAME_LABEL}={SERVICE}"), ..only.clone() });
    let mut services =
        client.watch::<Service>(&WatchFilter { fields: format!("metadata.name={SERVICE}"), ..only.clone() });
    let mut maps = client.watch::<ConfigMap>(&WatchFilter { fields: format!("metadata.name={CONFIG_MAP}"), ..only });
    tokio::spawn(async move {
        let mut known: BTreeMap<ObjectName, EndpointSlice> = BTreeMap::new();
        let (mut has_service, mut synced) = (false, [false; 3]);
        let mut now = Discovered::default();
        loop {
            tokio::select! {
                notice = services.next() => match notice {
                    WatchEvent::Applied(_) => has_service = true,
                    WatchEvent::Deleted(_) => has_service = false,
                    WatchEvent::Synced => synced[0] = true,
                },
                notice = slices.next() => match notice {
                    WatchEvent::Applied(slice) => _ = known.insert(slice.metadata.object_name(), slice),
                    WatchEvent::Deleted(name) => _ = known.remove(&name),
                    WatchEvent::Synced => synced[1] = true,
                },
                notice = maps.next() => match notice {
                    WatchEvent::Applied(mut map) => now.ca_bundle = map.data.remove(CERTIFICATE),
                    WatchEvent::Deleted(_) => now.ca_bundle = None,
                    WatchEvent::Synced => synced[2] = true,
                },
            }
            now.is_synced = synced == [true; 3];
            // Any of these objects means that a controller is deployed.
            now.is_deployed = has_service || !known.is_empty() || now.ca_bundle.is_some();
            now.addresses = addresses(known.values());
            discovered.send_if_modified(|discovered| std::mem::replace(discovered, now.clone()) != now);
            if discovered.is_closed() {
                return;
            }
        }
    });
    found
}

fn addresses<'a>(slices: impl Iterator<Item = &'a EndpointSlice>) -> Vec<SocketAddr> {
    let mut found: Vec<SocketAddr> = slices.flat_map(|slice| slice.ready_addresses(PORT)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ready_replicas_with_an_ip_address_are_used() {
        let slice = |text: &str| serde_json::from_str::<EndpointSlice>(text).unwrap();
        let slices = [
            slice(
                r#"{"addressType": "IPv4", "ports": [{"name": "other", "port": 1}, {"name": "api", "port": 10349}],
                "endpoints": [{"addresses": ["192.0.2.2"]}, {"addresses": ["192.0.2.3"], "conditions": {"ready": false}}]}"#,
            ),
            slice(
                r#"{"addressType": "FQDN", "ports": [{"name": "api", "port": 1}], "endpoints": [{"addresses": ["a.example"]}]}"#,
            ),
            slice(
                r#"{"addressType": "IPv6", "ports": [{"name": "api", "port": 10349}], "endpoints": [{"addresses": ["2001:db8::1"]}]}"#,
            ),
        ];
        let found: Vec<String> = addresses(slices.iter()).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.2:10349", "[2001:db8::1]:10349"]);
    }
}
