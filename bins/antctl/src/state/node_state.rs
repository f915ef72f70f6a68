//! What Kubernetes does not know of a Node.

use std::net::IpAddr;

use anyhow::Result;
use ipnet::IpNet;
use pipeline::model::{Datapath, Features, Mac, Mode};
use serde::Deserialize;

/// The document `kind: NodeState`. What is left out takes the default that its field names.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeState {
    #[serde(rename = "apiVersion", default)]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    /// The Node's name.
    pub(super) node: String,
    /// Default: encap.
    #[serde(default)]
    pub(super) mode: ModeName,
    /// Default: geneve. The flows are the same for all.
    #[serde(rename = "tunnelType", default)]
    _tunnel_type: TunnelType,
    /// Default: system.
    #[serde(default)]
    pub(super) datapath: DatapathName,
    /// Default: all on.
    #[serde(default)]
    pub(super) features: FeatureSwitches,
    /// The host's end.
    #[serde(default)]
    pub(super) gateway: GatewayState,
    /// The tunnel.
    #[serde(default)]
    pub(super) tunnel: TunnelState,
    /// Nodes within this range are reached without a tunnel in mode hybrid. Default: none are.
    pub(super) transport_subnet: Option<IpNet>,
    /// Further addresses on which NodePorts listen. Default: the Node's own.
    pub(super) node_port_addresses: Option<Vec<IpAddr>>,
    /// Addresses of Services, where kube-proxy balances them. Default: 10.96.0.0/12.
    #[serde(rename = "serviceCIDRs")]
    pub(super) service_cidrs: Option<Vec<IpNet>>,
    /// Ports of Pods. Default: from 3 on, in order of namespace and name.
    #[serde(default)]
    pub(super) pods: Vec<PodState>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ModeName {
    #[default]
    Encap,
    NoEncap,
    Hybrid,
    NetworkPolicyOnly,
}

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Mode {
        match name {
            ModeName::Encap => Mode::Encap,
            ModeName::NoEncap => Mode::NoEncap,
            ModeName::Hybrid => Mode::Hybrid,
            ModeName::NetworkPolicyOnly => Mode::NetworkPolicyOnly,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TunnelType {
    #[default]
    Geneve,
    Vxlan,
    Gre,
    Stt,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DatapathName {
    #[default]
    System,
    Netdev,
}

impl From<DatapathName> for Datapath {
    fn from(name: DatapathName) -> Datapath {
        match name {
            DatapathName::System => Datapath::System,
            DatapathName::Netdev => Datapath::Netdev,
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct FeatureSwitches {
    antrea_proxy: bool,
    proxy_all: bool,
    antrea_policy: bool,
}

impl Default for FeatureSwitches {
    fn default() -> Self {
        let Features { antrea_proxy, proxy_all, antrea_policy } = Features::default();
        Self { antrea_proxy, proxy_all, antrea_policy }
    }
}

impl From<FeatureSwitches> for Features {
    fn from(switches: FeatureSwitches) -> Features {
        let FeatureSwitches { antrea_proxy, proxy_all, antrea_policy } = switches;
        Features { antrea_proxy, proxy_all, antrea_policy }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct GatewayState {
    /// Default: 2.
    pub(super) ofport: u32,
    /// Default: made from its first address.
    pub(super) mac: Option<MacText>,
    /// Default: the first address of each of the Node's Pod subnets.
    pub(super) ips: Vec<IpAddr>,
}

impl Default for GatewayState {
    fn default() -> Self {
        Self { ofport: 2, mac: None, ips: Vec::new() }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct TunnelState {
    /// Default: 1.
    pub(super) ofport: u32,
}

impl Default for TunnelState {
    fn default() -> Self {
        Self { ofport: 1 }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PodState {
    /// Default: `default`.
    #[serde(default = "default_namespace")]
    pub(super) namespace: String,
    /// Its name.
    pub(super) name: String,
    /// Its port.
    pub(super) ofport: Option<u32>,
    /// Default: made from its first address.
    pub(super) mac: Option<MacText>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// An Ethernet address as it is written.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct MacText(pub(super) Mac);

impl TryFrom<String> for MacText {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        Ok(Self(text.parse()?))
    }
}
