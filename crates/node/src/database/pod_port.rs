//! The port of a Pod, and its `external_ids`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use openflow::port::Port;
use ovsdb::tables::Interface as Row;
use serde::{Deserialize, Serialize};
use types::{Mac, ObjectName};

use crate::event::Interface;

/// Keys of Antrea in `external_ids`.
mod key {
    pub(super) const CONTAINER: &str = "container-id";
    pub(super) const POD: &str = "pod-name";
    pub(super) const NAMESPACE: &str = "pod-namespace";
    pub(super) const ADDRESSES: &str = "ip-address";
    pub(super) const MAC: &str = "attached-mac";
    pub(super) const DEVICE: &str = "if-dev";
    pub(super) const NETNS: &str = "net-ns";
    /// Not a key of Antrea.
    pub(super) const UID: &str = "pod-uid";
}

/// The port of a Pod's interface.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct PodPort {
    /// Name of the port, and of the veth on the host.
    pub name: String,
    /// Container ID of the Pod's sandbox.
    pub container: String,
    /// Namespace and name of the Pod.
    pub pod: ObjectName,
    /// UID of the Pod; empty if the runtime does not pass it.
    pub uid: String,
    /// The Pod's addresses, at most one for each family.
    pub addresses: Vec<IpAddr>,
    /// MAC of the interface in the Pod.
    pub mac: Mac,
    /// Name of the interface in the Pod.
    pub device: String,
    /// Path of the Pod's network namespace.
    pub netns: String,
}

/// The port of a Pod whose `external_ids` cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("interface {interface}: external_ids:{key}: {problem}")]
pub struct InvalidPort {
    /// Name of the interface.
    pub interface: String,
    /// The key in `external_ids`.
    pub key: &'static str,
    /// The value, and what it should be.
    pub problem: String,
}

/// Whether these are the `external_ids` of a Pod.
pub(super) fn is_of_pod(ids: &BTreeMap<String, String>) -> bool {
    ids.contains_key(key::CONTAINER)
}

impl PodPort {
    pub(super) fn external_ids(&self) -> BTreeMap<String, String> {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        [
            (key::CONTAINER, self.container.clone()),
            (key::POD, self.pod.name.clone()),
            (key::NAMESPACE, self.pod.namespace.clone()),
            (key::ADDRESSES, addresses.join(",")),
            (key::MAC, self.mac.to_string()),
            (key::DEVICE, self.device.clone()),
            (key::NETNS, self.netns.clone()),
            (key::UID, self.uid.clone()),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }

    /// Decodes a row; `None` if it is not the port of a Pod.
    pub(super) fn read(row: &Row) -> Option<Result<Self, InvalidPort>> {
        let ids = &row.external_ids;
        let container = ids.get(key::CONTAINER)?.clone();
        let invalid = |key, problem: String| InvalidPort { interface: row.name.clone(), key, problem };
        let text = |key| ids.get(key).cloned().ok_or_else(|| invalid(key, "is missing".to_owned()));
        let optional = |key| ids.get(key).cloned().unwrap_or_default();
        let read = || {
            let addresses = text(key::ADDRESSES)?;
            let address =
                |ip: &str| ip.parse().map_err(|_| invalid(key::ADDRESSES, format!("`{ip}` is not an address")));
            let mac = text(key::MAC)?;
            Ok(Self {
                name: row.name.clone(),
                container,
                pod: ObjectName { namespace: text(key::NAMESPACE)?, name: text(key::POD)? },
                addresses: addresses.split(',').filter(|ip| !ip.is_empty()).map(address).collect::<Result<_, _>>()?,
                mac: mac.parse().map_err(|_| invalid(key::MAC, format!("`{mac}` is not a MAC")))?,
                device: ids.get(key::DEVICE).cloned().unwrap_or_else(|| "eth0".to_owned()),
                netns: optional(key::NETNS),
                uid: optional(key::UID),
            })
        };
        Some(read())
    }

    /// The interface with its assigned or requested OpenFlow port.
    pub(crate) fn interface(&self, port: u16) -> Interface {
        Interface {
            name: self.name.clone(),
            pod: self.pod.clone(),
            uid: self.uid.clone(),
            port: Port(port.into()),
            mac: self.mac,
            addresses: self.addresses.clone(),
        }
    }
}
