//! The objects that policies are about.

use std::collections::BTreeMap;
use std::net::IpAddr;

use types::meta::{Labels, Protocol};
use types::network_policy::NetworkPolicy;
use types::pod::Pod;
use types::{InvalidField, ObjectName};

/// A Pod as policies see it: it has addresses of its own, and runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Its labels.
    pub labels: Labels,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The Node it runs on.
    pub node: String,
    /// Its named ports.
    pub ports: BTreeMap<(Protocol, String), u16>,
}

/// Everything that policies depend on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cluster {
    /// Labels of the namespaces.
    pub namespaces: BTreeMap<String, Labels>,
    /// The Pods that have a network of their own.
    pub pods: BTreeMap<ObjectName, Endpoint>,
    /// The policies.
    pub policies: BTreeMap<ObjectName, NetworkPolicy>,
}

impl Cluster {
    /// Takes a Pod in; one on the Node's network, without an address or at its end is no end of any connection.
    pub fn add_pod(&mut self, pod: &Pod) -> Result<(), InvalidField> {
        let name = pod.metadata.object_name();
        self.pods.remove(&name);
        if pod.spec.host_network || pod.is_finished() || pod.addresses().next().is_none() {
            return Ok(());
        }
        let invalid = |text: &str| InvalidField {
            kind: "Pod",
            name: name.clone(),
            field: "status.podIPs".to_owned(),
            problem: format!("`{text}` is not an address"),
        };
        let addresses: Result<Vec<IpAddr>, _> =
            pod.addresses().map(|text| text.parse().map_err(|_| invalid(text))).collect();
        let named =
            pod.spec.containers.iter().flat_map(|container| &container.ports).filter(|port| !port.name.is_empty());
        let endpoint = Endpoint {
            labels: pod.metadata.labels.clone(),
            addresses: addresses?,
            node: pod.spec.node_name.clone(),
            ports: named.map(|port| ((port.protocol, port.name.clone()), port.container_port)).collect(),
        };
        self.pods.insert(name, endpoint);
        Ok(())
    }
}
