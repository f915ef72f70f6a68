//! Where the controller is: its replicas and its authority, as Kubernetes has them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use delta::StableKey;
use k8s::{Client, Notice, Only};
use tokio::sync::watch;
use types::ObjectName;
use types::config_map::ConfigMap;
use types::service::{EndpointSlice, SERVICE_NAME_LABEL, Service};

/// The controller's Service.
pub(super) const SERVICE: &str = "antrea";
/// The name of its port.
const PORT: &str = "api";
/// Where the certificate of its authority is.
pub(super) const CONFIG_MAP: &str = "antrea-ca";
const CERTIFICATE: &str = "ca.crt";

/// Where the controller is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Places {
    /// Whether Kubernetes has been asked.
    pub(super) is_known: bool,
    /// Whether the cluster has a controller, running or not.
    pub(super) is_deployed: bool,
    /// Its replicas that are ready, in order.
    pub(super) addresses: Vec<SocketAddr>,
    /// Who vouches for them.
    pub(super) authorities: Option<String>,
}

impl Places {
    /// The replicas, beginning with the one that a Node should try first.
    pub(super) fn addresses_for(&self, node: &str) -> impl Iterator<Item = SocketAddr> {
        let count = self.addresses.len();
        let first = usize::try_from(node.stable_hash() % (count.max(1) as u64)).unwrap_or_default();
        self.addresses.iter().copied().cycle().skip(first).take(count)
    }
}

/// Follows where the controller is.
pub(super) fn find(client: &Client, namespace: &str) -> watch::Receiver<Places> {
    let (places, found) = watch::channel(Places::default());
    let only = Only { namespace: namespace.to_owned(), ..Only::default() };
    let mut slices =
        client.watch::<EndpointSlice>(&Only { labels: format!("{SERVICE_NAME_LABEL}={SERVICE}"), ..only.clone() });
    let mut services = client.watch::<Service>(&Only { fields: format!("metadata.name={SERVICE}"), ..only.clone() });
    let mut maps = client.watch::<ConfigMap>(&Only { fields: format!("metadata.name={CONFIG_MAP}"), ..only });
    tokio::spawn(async move {
        let mut known: BTreeMap<ObjectName, EndpointSlice> = BTreeMap::new();
        let (mut has_service, mut synced) = (false, [false; 3]);
        let mut now = Places::default();
        loop {
            tokio::select! {
                notice = services.next() => match notice {
                    Notice::Set(_) => has_service = true,
                    Notice::Gone(_) => has_service = false,
                    Notice::Synced => synced[0] = true,
                },
                notice = slices.next() => match notice {
                    Notice::Set(slice) => _ = known.insert(slice.metadata.object_name(), slice),
                    Notice::Gone(name) => _ = known.remove(&name),
                    Notice::Synced => synced[1] = true,
                },
                notice = maps.next() => match notice {
                    Notice::Set(mut map) => now.authorities = map.data.remove(CERTIFICATE),
                    Notice::Gone(_) => now.authorities = None,
                    Notice::Synced => synced[2] = true,
                },
            }
            now.is_known = synced == [true; 3];
            // Whatever of it is there, somebody meant there to be one.
            now.is_deployed = has_service || !known.is_empty() || now.authorities.is_some();
            now.addresses = addresses(known.values());
            places.send_if_modified(|places| std::mem::replace(places, now.clone()) != now);
            if places.is_closed() {
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

    fn places(count: u8) -> Places {
        let addresses = (1..=count).map(|n| SocketAddr::from(([192, 0, 2, n], 10349))).collect();
        Places { addresses, ..Places::default() }
    }

    #[test]
    fn every_node_tries_every_replica_and_they_do_not_all_begin_with_one() {
        let places = places(3);
        let mut firsts: BTreeMap<SocketAddr, usize> = BTreeMap::new();
        for node in 0..300 {
            let order: Vec<SocketAddr> = places.addresses_for(&format!("node-{node}")).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, places.addresses);
            *firsts.entry(order[0]).or_default() += 1;
        }
        assert!(firsts.len() == 3 && firsts.values().all(|count| (60..140).contains(count)), "{firsts:?}");
        assert_eq!(self::places(0).addresses_for("a").count(), 0);
    }

    #[test]
    fn only_replicas_that_are_ready_and_can_be_reached_count() {
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
