//! Pods.

use serde::Deserialize;

use crate::meta::{Metadata, Protocol};

/// A Pod.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Name, namespace, labels.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: PodSpec,
    /// What is known.
    pub status: PodStatus,
}

/// What is wanted of a Pod.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The Node it runs on; empty until it is scheduled.
    pub node_name: String,
    /// Whether it has the Node's network.
    pub host_network: bool,
    /// Its containers.
    pub containers: Vec<Container>,
}

/// A container.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its named ports.
    pub ports: Vec<ContainerPort>,
}

/// A port of a container.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// The name that policies and Services may use.
    pub name: String,
    /// The number.
    pub container_port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

/// What is known of a Pod.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// Its first address.
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    /// Its addresses, one a family.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
}

/// An address of a Pod.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodIp {
    /// The address.
    pub ip: String,
}

impl Pod {
    /// Whether it has ended: its address may be another Pod's by now.
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Its addresses as they are written, each once.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let listed = self.status.pod_ips.iter().map(|ip| ip.ip.as_str());
        let first = self.status.pod_ips.is_empty().then_some(self.status.pod_ip.as_str());
        listed.chain(first).filter(|ip| !ip.is_empty())
    }
}
