//! Services and their endpoints.

use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

use crate::meta::{Labels, Metadata, Protocol, null_is_empty};

/// A Service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    /// Name and namespace.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: ServiceSpec,
    /// What is known.
    pub status: ServiceStatus,
}

/// What is wanted of a Service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its address; `None` for a headless one.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    /// Its addresses, one a family.
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    /// Further addresses that lead to it.
    #[serde(rename = "externalIPs")]
    pub external_ips: Vec<String>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// `None` or `ClientIP`.
    pub session_affinity: String,
    /// How long a client keeps its endpoint.
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// `Cluster` or `Local`.
    pub external_traffic_policy: String,
    /// `Cluster` or `Local`.
    pub internal_traffic_policy: String,
    /// Clients that may use its load balancer's addresses; all where it is empty.
    #[serde(deserialize_with = "null_is_empty")]
    pub load_balancer_source_ranges: Vec<String>,
    /// The port of every Node that tells a load balancer whether the Node has endpoints; 0 for none.
    pub health_check_node_port: u16,
}

/// One port of a Service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Its name, by which endpoints say which port they serve.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// The port on every Node, if it has one.
    pub node_port: u16,
}

/// How long clients keep their endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionAffinityConfig {
    /// By client address.
    #[serde(rename = "clientIP")]
    pub client_ip: Option<ClientIpConfig>,
}

/// Affinity by client address.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIpConfig {
    /// In seconds.
    pub timeout_seconds: Option<u32>,
}

/// What is known of a Service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    /// Its load balancer.
    pub load_balancer: LoadBalancerStatus,
}

/// A load balancer's addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerStatus {
    /// Where it listens.
    pub ingress: Vec<LoadBalancerIngress>,
}

/// One address of a load balancer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerIngress {
    /// The address; empty where it is known by name only.
    pub ip: String,
    /// `VIP` or `Proxy`: whether packets that the load balancer passes on still have the address.
    pub ip_mode: Option<String>,
}

/// Some endpoints of a Service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    /// Name, namespace, and the Service's name as a label.
    pub metadata: Metadata,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: String,
    /// The endpoints.
    #[serde(deserialize_with = "null_is_empty")]
    pub endpoints: Vec<SliceEndpoint>,
    /// The ports that they all serve.
    #[serde(deserialize_with = "null_is_empty")]
    pub ports: Vec<SlicePort>,
}

/// The label with the name of the Service that a slice belongs to.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// The label with the name of the proxy that serves a Service, where it is not the cluster's usual one.
pub const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// One endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceEndpoint {
    /// Its addresses, all the same to clients.
    #[serde(deserialize_with = "null_is_empty")]
    pub addresses: Vec<String>,
    /// How it is.
    pub conditions: EndpointConditions,
    /// The Node it is on.
    pub node_name: Option<String>,
    /// What it is.
    pub target_ref: Option<TargetRef>,
    /// Who should use it.
    pub hints: Option<EndpointHints>,
}

/// Whom an endpoint is meant for, by whoever wrote the slice.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointHints {
    /// Clients in these zones.
    #[serde(deserialize_with = "null_is_empty")]
    pub for_zones: Vec<Hint>,
    /// Clients on these Nodes.
    #[serde(deserialize_with = "null_is_empty")]
    pub for_nodes: Vec<Hint>,
}

/// A zone or a Node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Hint {
    /// Its name.
    pub name: String,
}

/// How an endpoint is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointConditions {
    /// Whether it takes connections; unknown counts as yes.
    pub ready: Option<bool>,
    /// Whether it would if it were not about to end; unknown counts as yes.
    pub serving: Option<bool>,
    /// Whether it is about to end; unknown counts as no.
    pub terminating: Option<bool>,
}

/// The object behind an endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetRef {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A port that all endpoints of a slice serve.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlicePort {
    /// The name of the Service's port.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The number; all ports where it is missing.
    pub port: Option<u16>,
}

impl EndpointSlice {
    /// The name of its Service.
    pub fn service_name(&self) -> Option<&str> {
        let labels: &Labels = &self.metadata.labels;
        labels.get(SERVICE_NAME_LABEL).map(String::as_str)
    }

    /// Where endpoints take connections to the port of this name.
    pub fn ready_addresses(&self, port: &str) -> impl Iterator<Item = SocketAddr> + '_ {
        let port = self.ports.iter().find(|it| it.name == port).and_then(|it| it.port);
        let ready = self.endpoints.iter().filter(|endpoint| endpoint.conditions.ready != Some(false));
        let ips = ready.flat_map(|endpoint| &endpoint.addresses).filter_map(|ip| ip.parse::<IpAddr>().ok());
        ips.filter_map(move |ip| Some((ip, port?).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_without_endpoints_has_null_where_a_list_could_be() {
        let text = r#"{"metadata":{"name":"s"},"addressType":"IPv4","endpoints":null,"ports":null}"#;
        let slice: EndpointSlice = serde_json::from_str(text).unwrap();
        assert_eq!((slice.endpoints.len(), slice.ports.len()), (0, 0));
    }
}
