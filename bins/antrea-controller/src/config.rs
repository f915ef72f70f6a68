//! The configuration file, `antrea-controller.conf`: Antrea's keys, with Antrea's defaults.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ::config::{ConfigError, Reader};
use ipnet::IpNet;
use serde::Serialize;

use crate::DAEMON;

pub(crate) mod keys;

/// The configuration of the controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Config {
    pub(crate) api_port: u16,
    /// All addresses if not set.
    pub(crate) api_address: Option<IpAddr>,
    pub(crate) enable_prometheus_metrics: bool,
    pub(crate) client_connection: Connection,
    #[serde(rename = "kubeAPIServerOverride")]
    pub(crate) kube_api_server_override: Option<String>,
    #[serde(rename = "nodeIPAM")]
    pub(crate) node_ipam: NodeIpam,
}

/// The connection to the Kubernetes API.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Connection {
    /// The ServiceAccount of the Pod if not set.
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// Assignment of Pod subnets to Nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeIpam {
    pub(crate) enable_node_ipam: bool,
    #[serde(rename = "clusterCIDRs")]
    pub(crate) cluster_cidrs: Vec<IpNet>,
    #[serde(rename = "serviceCIDR")]
    pub(crate) service_cidr: Option<IpNet>,
    #[serde(rename = "serviceCIDRv6")]
    pub(crate) service_cidr_v6: Option<IpNet>,
    #[serde(rename = "nodeCIDRMaskSizeIPv4")]
    pub(crate) mask_size_v4: u8,
    #[serde(rename = "nodeCIDRMaskSizeIPv6")]
    pub(crate) mask_size_v6: u8,
}

impl Config {
    /// Reads a file, or uses defaults without one. Also returns notes to log.
    pub(crate) fn load(file: Option<&Path>) -> Result<(Self, Vec<String>), ConfigError> {
        DAEMON.load_config(&keys::SCHEMA, file, Self::ask)
    }

    /// Parses the text of a file.
    #[cfg(test)]
    fn read(file: &str, text: &str) -> Result<(Self, Vec<String>), ConfigError> {
        ::config::read(&keys::SCHEMA, file, text, Self::ask)
    }

    fn ask(reader: &mut Reader) -> Self {
        let key = "selfSignedCert";
        if reader.boolean(key) == Some(false) {
            // A certificate of the operator must not silently be replaced.
            reader.problem(key, &false.into(), "is not implemented yet; it can be true");
        }
        Self {
            api_port: reader.port("apiPort").unwrap_or(10349),
            api_address: reader.parsed("apiAddress", "an address such as 192.0.2.1", |it| it.as_str()?.parse().ok()),
            enable_prometheus_metrics: reader.boolean("enablePrometheusMetrics").unwrap_or(true),
            client_connection: Connection { kubeconfig: reader.path("clientConnection.kubeconfig") },
            kube_api_server_override: reader.text("kubeAPIServerOverride"),
            node_ipam: NodeIpam::ask(reader),
        }
    }
}

const CIDR: &str = "a network such as 10.10.0.0/16";

impl NodeIpam {
    fn ask(reader: &mut Reader) -> Self {
        let net = |reader: &mut Reader, key| reader.parsed(key, CIDR, |it| it.as_str()?.parse::<IpNet>().ok());
        let mask = |reader: &mut Reader, key, most, usual: u8| {
            reader.number(key, 1..=most).and_then(|bits| u8::try_from(bits).ok()).unwrap_or(usual)
        };
        let ipam = Self {
            enable_node_ipam: reader.boolean("nodeIPAM.enableNodeIPAM").unwrap_or(false) & reader.feature("NodeIPAM"),
            cluster_cidrs: reader.list("nodeIPAM.clusterCIDRs", CIDR, |text| text.parse().ok()),
            service_cidr: net(reader, "nodeIPAM.serviceCIDR"),
            service_cidr_v6: net(reader, "nodeIPAM.serviceCIDRv6"),
            mask_size_v4: mask(reader, "nodeIPAM.nodeCIDRMaskSizeIPv4", 30, 24),
            mask_size_v6: mask(reader, "nodeIPAM.nodeCIDRMaskSizeIPv6", 126, 64),
        };
        if ipam.enable_node_ipam {
            ipam.check(reader);
        }
        ipam
    }

    fn check(&self, reader: &mut Reader) {
        let needed = "nodeIPAM.clusterCIDRs: is needed where nodeIPAM.enableNodeIPAM is true";
        reader.combination(self.cluster_cidrs.is_empty(), needed);
        for (n, cidr) in self.cluster_cidrs.iter().enumerate() {
            let (mask, key) = match cidr {
                IpNet::V4(_) => (self.mask_size_v4, "nodeCIDRMaskSizeIPv4"),
                IpNet::V6(_) => (self.mask_size_v6, "nodeCIDRMaskSizeIPv6"),
            };
            if cidr.prefix_len() > mask {
                let why = format!("is smaller than one Node's subnet: nodeIPAM.{key} is {mask}");
                reader.problem(&format!("nodeIPAM.clusterCIDRs[{n}]"), &cidr.to_string().into(), why);
            }
        }
    }
}

#[cfg(test)]
mod tests;
