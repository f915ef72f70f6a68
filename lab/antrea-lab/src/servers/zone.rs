//! DNS names of a cluster, computed from its Services and EndpointSlices. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::plan::DOMAIN;

/// The records of a name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) addresses: BTreeSet<IpAddr>,
    /// Port and host of SRV records.
    pub(crate) services: BTreeSet<(u16, String)>,
    pub(crate) alias: Option<String>,
}

/// Records by name, in lower case and without the trailing dot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Zone(BTreeMap<String, Entry>);

impl Zone {
    /// Computes all names of the Services.
    pub(crate) fn new<'a>(
        services: impl Iterator<Item = &'a Service>,
        slices: impl Iterator<Item = &'a EndpointSlice> + Clone,
    ) -> Self {
        let mut zone = Self::default();
        for service in services {
            zone.add(service, slices.clone());
        }
        zone
    }

    fn add<'a>(&mut self, service: &Service, slices: impl Iterator<Item = &'a EndpointSlice>) {
        let (Some(name), Some(namespace), Some(spec)) =
            (&service.metadata.name, &service.metadata.namespace, &service.spec)
        else {
            return;
        };
        let full = format!("{name}.{namespace}.svc.{DOMAIN}");
        let entry = self.0.entry(full.clone()).or_default();
        if spec.type_.as_deref() == Some("ExternalName") {
            entry.alias.clone_from(&spec.external_name);
            return;
        }
        let headless = spec.cluster_ip.as_deref() == Some("None");
        if !headless {
            let addresses = spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip);
            entry.addresses.extend(addresses.filter_map(|address| address.parse::<IpAddr>().ok()));
            for port in spec.ports.iter().flatten() {
                self.name_port(&full, port.name.as_deref(), port.protocol.as_deref(), port.port, &full);
            }
            return;
        }
        let own = slices.filter(|slice| {
            let of = slice.metadata.labels.iter().flatten().find(|(key, _)| *key == "kubernetes.io/service-name");
            slice.metadata.namespace.as_ref() == Some(namespace) && of.is_some_and(|(_, of)| of == name)
        });
        for slice in own {
            let ready =
                slice.endpoints.iter().flatten().filter(|endpoint| {
                    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false)
                });
            for endpoint in ready {
                let addresses: Vec<IpAddr> =
                    endpoint.addresses.iter().filter_map(|address| address.parse().ok()).collect();
                let Some(first) = addresses.first() else { continue };
                let label = endpoint.hostname.clone().unwrap_or_else(|| dashed(*first));
                let host = format!("{label}.{full}");
                for name in [&full, &host] {
                    self.0.entry(name.clone()).or_default().addresses.extend(addresses.clone());
                }
                for port in slice.ports.iter().flatten() {
                    let number = port.port.unwrap_or_default();
                    self.name_port(&full, port.name.as_deref(), port.protocol.as_deref(), number, &host);
                }
            }
        }
    }

    /// Adds an SRV record, such as `_http._tcp.web.shop.svc.cluster.local`.
    fn name_port(&mut self, full: &str, name: Option<&str>, protocol: Option<&str>, port: i32, host: &str) {
        let (Some(name), Ok(port)) = (name.filter(|name| !name.is_empty()), u16::try_from(port)) else { return };
        let protocol = protocol.unwrap_or("TCP").to_lowercase();
        let entry = self.0.entry(format!("_{name}._{protocol}.{full}")).or_default();
        entry.services.insert((port, host.to_owned()));
    }

    /// The records of a name; `None` if it does not exist.
    pub(crate) fn find(&self, name: &str) -> Option<Entry> {
        let name = name.trim_end_matches('.').to_lowercase();
        if let Some(entry) = self.0.get(&name) {
            return Some(entry.clone());
        }
        let address = pod(&name);
        if let Some(address) = address {
            return Some(Entry { addresses: [address].into(), ..Entry::default() });
        }
        // An empty non-terminal exists and has no records.
        let below = format!(".{name}");
        self.0.keys().any(|other| other.ends_with(&below)).then(Entry::default)
    }
}

/// An address as a DNS label.
fn dashed(address: IpAddr) -> String {
    address.to_string().replace(['.', ':'], "-")
}

/// `10-10-1-2.shop.pod.cluster.local` is 10.10.1.2, whether there is such a Pod or not.
fn pod(name: &str) -> Option<IpAddr> {
    let (label, namespace) = name.strip_suffix(DOMAIN)?.strip_suffix(".pod.")?.split_once('.')?;
    if namespace.contains('.') {
        return None;
    }
    [".", ":"].into_iter().find_map(|dot| label.replace('-', dot).parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn zone() -> Zone {
        let services = [
            json!({"metadata": {"name": "web", "namespace": "shop"},
                "spec": {"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00:10:96::7"],
                    "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}}),
            json!({"metadata": {"name": "db", "namespace": "shop"}, "spec": {"clusterIP": "None"}}),
            json!({"metadata": {"name": "far", "namespace": "shop"}, "spec": {"type": "ExternalName", "externalName": "example.com"}}),
        ];
        let slice = json!({
            "metadata": {"name": "db-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "db"}},
            "addressType": "IPv4", "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": ["10.10.1.2"], "hostname": "db-0", "conditions": {"ready": true}},
                {"addresses": ["10.10.2.3"], "conditions": {"ready": true}},
                {"addresses": ["10.10.3.4"], "conditions": {"ready": false}},
            ],
        });
        let services = services.map(|service| serde_json::from_value(service).unwrap());
        let slice = serde_json::from_value(slice).unwrap();
        Zone::new(services.iter(), [&slice].into_iter())
    }

    fn addresses(name: &str) -> Option<String> {
        let entry = zone().find(name)?;
        Some(entry.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn services_headless_services_and_pods_have_names() {
        for (name, expected) in [
            ("web.shop.svc.cluster.local.", Some("10.96.0.7 fd00:10:96::7")),
            ("WEB.shop.svc.cluster.local", Some("10.96.0.7 fd00:10:96::7")),
            ("db.shop.svc.cluster.local", Some("10.10.1.2 10.10.2.3")),
            ("db-0.db.shop.svc.cluster.local", Some("10.10.1.2")),
            ("10-10-2-3.db.shop.svc.cluster.local", Some("10.10.2.3")),
            ("10-10-9-9.shop.pod.cluster.local", Some("10.10.9.9")),
            ("fd00--2.shop.pod.cluster.local", Some("fd00::2")),
            ("shop.svc.cluster.local", Some("")),
            ("missing.shop.svc.cluster.local", None),
            ("web", None),
            ("example.com", None),
        ] {
            assert_eq!(addresses(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn named_ports_have_srv_records_and_external_names_are_aliases() {
        let found = zone().find("_http._tcp.web.shop.svc.cluster.local").unwrap();
        assert_eq!(found.services, [(80, "web.shop.svc.cluster.local".to_owned())].into());
        let found = zone().find("_sql._tcp.db.shop.svc.cluster.local").unwrap();
        assert_eq!(found.services.len(), 2);
        assert_eq!(zone().find("far.shop.svc.cluster.local").unwrap().alias.as_deref(), Some("example.com"));
    }
}
