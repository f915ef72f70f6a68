//! Services, as controllers and the allocator read them.

use serde::{Deserialize, Serialize};

use super::{Metadata, Strings, nullable};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Service {
    pub(crate) metadata: Metadata,
    pub(crate) spec: ServiceSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ServiceSpec {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub(crate) kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) selector: Strings,
    #[serde(rename = "clusterIP", deserialize_with = "nullable")]
    pub(crate) cluster_ip: String,
    #[serde(rename = "clusterIPs", deserialize_with = "nullable")]
    pub(crate) cluster_ips: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) ip_families: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) ip_family_policy: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) publish_not_ready_addresses: bool,
    #[serde(deserialize_with = "nullable")]
    pub(crate) traffic_distribution: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) external_traffic_policy: String,
    pub(crate) allocate_load_balancer_node_ports: Option<bool>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) health_check_node_port: i64,
    #[serde(deserialize_with = "nullable")]
    pub(crate) ports: Vec<ServicePort>,
}

impl ServiceSpec {
    pub(crate) fn is_headless(&self) -> bool {
        self.cluster_ip == "None"
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ServicePort {
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) protocol: String,
    pub(crate) app_protocol: Option<String>,
    pub(crate) target_port: Option<IntOrString>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) node_port: i64,
}

/// A port by number or name, or a number or percentage of Pods.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum IntOrString {
    Int(i64),
    String(String),
}
