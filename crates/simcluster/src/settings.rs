//! Settings of a Node that are not part of a Kubernetes object: the document `kind: NodeState`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use node::{Own, local_addresses, node_addresses};
use openflow::port::Port;
use pipeline::TransportBridge;
use pipeline::model::{Features, Gateway};
use serde::Deserialize;
use types::network::{Datapath, Mode, Tunnel, TunnelPackets};
use types::node::Node;
use types::{Mac, ObjectName};

use crate::Error;

/// Name of the gateway in host state.
pub(crate) const GATEWAY_DEVICE: &str = "antrea-gw0";
/// Name of the device towards other Nodes in host state.
pub(crate) const TRANSPORT_DEVICE: &str = "eth0";
/// Its port on the transport bridge.
const UPLINK_PORT: Port = Port(1);

/// Settings of a Node. The doc of each field has its default.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSettings {
    #[serde(rename = "apiVersion", default)]
    _api_version: String,
    #[serde(rename = "kind", default)]
    _kind: String,
    /// Name of the Node that the settings are for; required.
    pub node: String,
    /// Traffic mode. Default: encap.
    #[serde(default)]
    mode: Mode,
    /// Tunnel protocol. Default: geneve. The flows are the same for all.
    #[serde(rename = "tunnelType", default)]
    _tunnel_type: Tunnel,
    /// Datapath of the bridge. Default: system.
    #[serde(default)]
    datapath: Datapath,
    /// Optional features. Default: all on.
    #[serde(default)]
    features: FeatureSwitches,
    #[serde(default)]
    gateway: GatewaySettings,
    #[serde(default)]
    tunnel: TunnelSettings,
    /// Nodes within this range are reached without a tunnel in mode hybrid. Default: none.
    transport_subnet: Option<IpNet>,
    /// Further addresses on which NodePorts listen. Default: the Node's own.
    node_port_addresses: Option<Vec<IpAddr>>,
    /// Addresses of Services, where kube-proxy balances them. Default: 10.96.0.0/12.
    #[serde(rename = "serviceCIDRs")]
    service_cidrs: Option<Vec<IpNet>>,
    /// Ports of Pods. Default: from 3 on, in order of namespace and name.
    #[serde(default)]
    pub(crate) pods: Vec<PodSettings>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct FeatureSwitches {
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
struct GatewaySettings {
    /// OpenFlow port. Default: 2.
    ofport: u32,
    /// Default: derived from its first address.
    mac: Option<MacText>,
    /// Default: the first address of each of the Node's Pod subnets.
    ips: Vec<IpAddr>,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self { ofport: 2, mac: None, ips: Vec::new() }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct TunnelSettings {
    /// OpenFlow port. Default: 1.
    ofport: u32,
}

impl Default for TunnelSettings {
    fn default() -> Self {
        Self { ofport: 1 }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PodSettings {
    /// Namespace of the Pod. Default: `default`.
    #[serde(default = "default_namespace")]
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// OpenFlow port. Default: the next free one.
    pub(crate) ofport: Option<u32>,
    /// Default: derived from the Pod's first address.
    pub(crate) mac: Option<MacText>,
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// A MAC address as text.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct MacText(pub(crate) Mac);

impl TryFrom<String> for MacText {
    type Error = types::InvalidMac;

    fn try_from(text: String) -> Result<Self, types::InvalidMac> {
        text.parse().map(Self)
    }
}

impl NodeSettings {
    /// The Node in the form that its agent uses.
    pub(crate) fn local_node(&self, object: &Node) -> Result<Own, Error> {
        let mut addresses = local_addresses(object)?;
        for address in [&mut addresses.v4, &mut addresses.v6].into_iter().flatten() {
            let given = self.gateway.ips.iter().find(|ip| ip.is_ipv4() == address.gateway.is_ipv4());
            address.gateway = given.copied().unwrap_or(address.gateway);
        }
        let default_services = || "10.96.0.0/12".parse().map(|net| vec![net]).unwrap_or_default();
        let has_tunnel = self.mode.has_tunnel();
        let tunnel_port = Tunnel::Geneve.udp_port().filter(|_| has_tunnel);
        let first = addresses.v4.or(addresses.v6);
        let mac = self.gateway.mac.map(|text| text.0).or(first.map(|address| Mac::of_ip(address.gateway)));
        Ok(Own {
            name: object.metadata.name.clone(),
            mode: self.mode,
            features: self.features.into(),
            datapath: self.datapath,
            gateway_device: GATEWAY_DEVICE.to_owned(),
            gateway: Gateway { port: Port(self.gateway.ofport), mac: mac.unwrap_or(Mac::GLOBAL_VIRTUAL) },
            tunnels: if has_tunnel { vec![Port(self.tunnel.ofport)] } else { Vec::new() },
            tunnel_port,
            addresses,
            transport_device: TRANSPORT_DEVICE.to_owned(),
            transport_subnets: self.transport_subnet.into_iter().collect(),
            mtu: 1450,
            no_snat: false,
            node_port_addresses: self.node_port_addresses.clone().unwrap_or_else(|| node_addresses(object)),
            service_cidrs: self.service_cidrs.clone().unwrap_or_else(default_services),
            serving: proxy::Serving::default(),
            control_path: node::ControlPath::default(),
            transport_bridge: match first.map(|address| address.node) {
                Some(IpAddr::V4(address)) if self.datapath == Datapath::Netdev => {
                    let tunnel = tunnel_port.map(TunnelPackets::Udp);
                    tunnel.map(|tunnel| TransportBridge { uplink: UPLINK_PORT, address, tunnel })
                }
                _ => None,
            },
            tunnel_problem: None,
            all_zero_snat: true,
        })
    }
}

impl NodeSettings {
    /// The ports of Pods in the settings.
    pub(crate) fn pod_ports(&self) -> BTreeMap<ObjectName, u32> {
        self.pods.iter().filter_map(|pod| Some((pod.object_name(), pod.ofport?))).collect()
    }

    /// The MAC of a Pod in the settings.
    pub(crate) fn pod_mac(&self, name: &ObjectName) -> Option<Mac> {
        self.pods.iter().find(|pod| pod.object_name() == *name)?.mac.map(|text| text.0)
    }

    /// Fails if two ports are the same, or if a Pod is not on the Node.
    pub(crate) fn check(&self, here: &BTreeSet<ObjectName>) -> Result<(), Error> {
        let mut taken = BTreeMap::from([(self.gateway.ofport, "the gateway".to_owned())]);
        taken.insert(self.tunnel.ofport, "the tunnel".to_owned());
        let invalid = |problem: String| Error::new(format!("NodeState {}: pods: {problem}", self.node));
        for (name, ofport) in self.pod_ports() {
            if let Some(other) = taken.insert(ofport, format!("Pod {name}")) {
                return Err(invalid(format!("Pod {name}: ofport: {ofport} is taken by {other}")));
            }
        }
        for pod in &self.pods {
            let name = pod.object_name();
            if !here.contains(&name) {
                return Err(invalid(format!("there is no running Pod {name} on this Node")));
            }
        }
        Ok(())
    }
}

impl PodSettings {
    fn object_name(&self) -> ObjectName {
        ObjectName { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}
