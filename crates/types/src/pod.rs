//! Pods: labels, addresses and named ports.

use serde::{Deserialize, Serialize};

use crate::meta::{Metadata, Protocol};

/// A Pod as the API server has it, without the fields that nothing uses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Name, namespace and labels; policies select Pods by their labels.
    pub metadata: Metadata,
    /// Node, kind of network, and containers.
    pub spec: PodSpec,
    /// Phase and addresses, written by the kubelet.
    pub status: PodStatus,
}

/// `spec` of a Pod.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Name of the Pod's Node; empty until the Pod is scheduled.
    pub node_name: String,
    /// Whether it uses the network of the Node: such a Pod has no veth and policies do not apply to it.
    pub host_network: bool,
    /// Containers, for their named ports.
    pub containers: Vec<Container>,
}

/// A container of a Pod.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Declared ports; policies and Services may refer to them by name.
    pub ports: Vec<ContainerPort>,
}

/// A port of a container.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Name for policies and Services; empty if the port has none.
    pub name: String,
    /// Port number, 1 to 65535.
    pub container_port: u16,
    /// Transport protocol; TCP by default.
    pub protocol: Protocol,
}

/// `status` of a Pod.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// First address; empty until there is one.
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    /// All addresses, at most one for each family.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
}

/// An entry of `status.podIPs`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct PodIp {
    /// Address without a prefix length.
    pub ip: String,
}

impl Pod {
    /// Whether all containers have terminated: another Pod may have its address by now.
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Addresses in the form of the API, without duplicates.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let listed = self.status.pod_ips.iter().map(|ip| ip.ip.as_str());
        let first = self.status.pod_ips.is_empty().then_some(self.status.pod_ip.as_str());
        listed.chain(first).filter(|ip| !ip.is_empty())
    }
}
