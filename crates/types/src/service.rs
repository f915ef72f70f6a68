//! Services and their EndpointSlices.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::meta::{Labels, Metadata, Protocol, null_is_empty};

/// A Service as the API server has it, without the fields that nothing uses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    /// Name, namespace and labels.
    pub metadata: Metadata,
    /// Addresses, ports and policies.
    pub spec: ServiceSpec,
    /// Addresses of the load balancer.
    pub status: ServiceStatus,
}

/// `spec` of a Service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(rename = "type")]
    pub kind: String,
    /// First address; `None` for a headless Service.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    /// All addresses, at most one for each family.
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    /// Further addresses at which the Service is reached, whose traffic something else routes to the Nodes.
    #[serde(rename = "externalIPs")]
    pub external_ips: Vec<String>,
    /// Ports, each with endpoints of its own.
    pub ports: Vec<ServicePort>,
    /// `None`, or `ClientIP` for session affinity.
    pub session_affinity: String,
    /// Timeout of session affinity.
    pub session_affinity_config: Option<SessionAffinityConfig>,
    /// `Cluster` or `Local`, for NodePorts, external IPs and load balancers.
    pub external_traffic_policy: String,
    /// `Cluster` or `Local`, for cluster IPs.
    pub internal_traffic_policy: String,
    /// Clients that may use the addresses of the load balancer; all if empty.
    #[serde(deserialize_with = "null_is_empty")]
    pub load_balancer_source_ranges: Vec<String>,
    /// Port of each Node where a load balancer asks whether the Node has endpoints; 0 for none.
    pub health_check_node_port: u16,
}

/// A port of a Service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Name, to which the ports of EndpointSlices refer.
    pub name: String,
    /// Transport protocol; TCP by default.
    pub protocol: Protocol,
    /// Port of the cluster IPs, external IPs and load balancer.
    pub port: u16,
    /// Port of every Node; 0 for none.
    pub node_port: u16,
}

/// `sessionAffinityConfig` of a Service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionAffinityConfig {
    /// Set for session affinity `ClientIP`.
    #[serde(rename = "clientIP")]
    pub client_ip: Option<ClientIpConfig>,
}

/// Session affinity by client address.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIpConfig {
    /// Seconds after a client's last connection; 10800 by default.
    pub timeout_seconds: Option<u32>,
}

/// `status` of a Service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    /// Written by the controller of the load balancer.
    pub load_balancer: LoadBalancerStatus,
}

/// Addresses of a load balancer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerStatus {
    /// Addresses, or names, that clients connect to.
    pub ingress: Vec<LoadBalancerIngress>,
}

/// An address of a load balancer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerIngress {
    /// Address; empty if the load balancer has only a host name.
    pub ip: String,
    /// `VIP`: the load balancer forwards packets with the address unchanged. `Proxy`: it terminates connections.
    pub ip_mode: Option<String>,
}

/// Endpoints of a Service in one address family.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    /// Name, namespace, and label [`SERVICE_NAME_LABEL`].
    pub metadata: Metadata,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: String,
    /// Endpoints, at most 1000 in one slice.
    #[serde(deserialize_with = "null_is_empty")]
    pub endpoints: Vec<SliceEndpoint>,
    /// Ports that all endpoints of the slice serve.
    #[serde(deserialize_with = "null_is_empty")]
    pub ports: Vec<SlicePort>,
}

/// The label with the name of the Service that an EndpointSlice belongs to.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// The label with the name of the proxy that serves a Service, if it is not the cluster's default.
pub const PROXY_NAME_LABEL: &str = "service.kubernetes.io/service-proxy-name";

/// An endpoint of a slice.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceEndpoint {
    /// Equivalent addresses; clients use the first.
    #[serde(deserialize_with = "null_is_empty")]
    pub addresses: Vec<String>,
    /// Whether it is ready, serving and terminating.
    pub conditions: EndpointConditions,
    /// Name of the endpoint's Node.
    pub node_name: Option<String>,
    /// Topology hints: the clients that should use it.
    pub hints: Option<EndpointHints>,
}

/// The clients that should use an endpoint, chosen by the EndpointSlice controller.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointHints {
    /// Zones of the clients.
    #[serde(deserialize_with = "null_is_empty")]
    pub for_zones: Vec<Hint>,
    /// Nodes of the clients.
    #[serde(deserialize_with = "null_is_empty")]
    pub for_nodes: Vec<Hint>,
}

/// Name of a zone or a Node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Hint {
    /// Equal to the zone label or the name of a Node.
    pub name: String,
}

/// Conditions of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointConditions {
    /// Whether it accepts connections; unknown counts as yes.
    pub ready: Option<bool>,
    /// Like `ready`, but also true for terminating endpoints; unknown counts as yes.
    pub serving: Option<bool>,
    /// Whether it is terminating; unknown counts as no.
    pub terminating: Option<bool>,
}

/// A port that all endpoints of a slice serve.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlicePort {
    /// Name of the Service port.
    pub name: String,
    /// Transport protocol; TCP by default.
    pub protocol: Protocol,
    /// Port number; all ports if `None`.
    pub port: Option<u16>,
}

impl EndpointSlice {
    /// Name of the Service, from label [`SERVICE_NAME_LABEL`].
    pub fn service_name(&self) -> Option<&str> {
        let labels: &Labels = &self.metadata.labels;
        labels.get(SERVICE_NAME_LABEL).map(String::as_str)
    }

    /// Addresses of the ready endpoints, with the number of the port of this name.
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
    fn null_is_an_empty_list_of_endpoints() {
        let text = r#"{"metadata":{"name":"s"},"addressType":"IPv4","endpoints":null,"ports":null}"#;
        let slice: EndpointSlice = serde_json::from_str(text).unwrap();
        assert_eq!((slice.endpoints.len(), slice.ports.len()), (0, 0));
    }
}
