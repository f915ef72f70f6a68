//! The way to other Nodes: by which device, wrapped in what, and how much room that leaves.

use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use host::uplink::{self, Uplink};
use ipnet::IpNet;
use k8s::Client;
use node::node_addresses;
use types::node::{Node, TRANSPORT_ADDRESSES};

use crate::config::{Config, EncapMode, Tunnel};

/// The device to other Nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Transport {
    /// Its name.
    pub(crate) device: String,
    /// The largest packet.
    pub(crate) mtu: u32,
    /// Subnets that are shared with other Nodes that are near.
    pub(crate) subnets: Vec<IpNet>,
    /// The Node's address that others use.
    pub(crate) address: IpAddr,
    /// All of the Node's addresses there, beginning with that one.
    addresses: Vec<IpAddr>,
    /// Whether others have to be told, since these are not the addresses that Kubernetes knows.
    told: bool,
}

impl Transport {
    /// Finds it: by name, by network, or by the Node's address.
    pub(crate) fn find(config: &Config, node: &Node) -> Result<Self> {
        let (name, own) = (&node.metadata.name, node_addresses(node));
        let Some(first) = own.first().copied() else {
            bail!("Node {name}: status.addresses: has no InternalIP");
        };
        // The family that the Node prefers comes first; addresses that count on one wire only lead nowhere.
        let chosen = |wanted: &dyn Fn(&Uplink) -> bool| -> Result<Vec<Uplink>> {
            let global = |net: IpNet| !matches!(net, IpNet::V6(net) if net.addr().is_unicast_link_local());
            let mut found = uplink::list(global)?;
            found.retain(|uplink| wanted(uplink));
            found.sort_by_key(|uplink| uplink.address.addr().is_ipv4() != first.is_ipv4());
            found.dedup_by_key(|uplink| uplink.address.addr().is_ipv4());
            Ok(found)
        };
        let (device, cidrs) = (config.transport_interface.as_ref(), config.transport_interface_cidrs.as_slice());
        let told = device.is_some() || !cidrs.is_empty();
        let found = match device {
            Some(device) => chosen(&|uplink| uplink.device == *device)?,
            None if told => chosen(&|uplink| cidrs.iter().any(|net| net.contains(&uplink.address.addr())))?,
            None => own.iter().filter_map(|ip| uplink::find(*ip).transpose()).collect::<Result<_, _>>()?,
        };
        let nearest = found.first().filter(|uplink| told || uplink.address.addr() == first);
        let Some(nearest) = nearest else {
            match device {
                Some(device) => bail!("transportInterface: there is no device {device} with an address on this host"),
                None if told => bail!("transportInterfaceCIDRs: no device of this host has an address of {cidrs:?}"),
                None => bail!("Node {name}: no device of this host has its address {first}; is NODE_NAME right?"),
            }
        };
        let mut subnets: Vec<IpNet> = found.iter().map(|uplink| uplink.address.trunc()).collect();
        subnets.sort();
        subnets.dedup();
        let addresses = found.iter().map(|uplink| uplink.address.addr()).collect();
        let Uplink { device, mtu, address, .. } = nearest.clone();
        Ok(Self { device, mtu, subnets, address: address.addr(), addresses, told })
    }

    /// Tells the other Nodes at which addresses this one is reached, or takes back what was told before.
    pub(crate) async fn tell(&self, client: &Client, node: &Node) -> Result<()> {
        let name = node.metadata.name.as_str();
        let list = self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let wanted = self.told.then_some(list.as_str());
        if node.metadata.annotations.get(TRANSPORT_ADDRESSES).map(String::as_str) == wanted {
            return Ok(());
        }
        let told = client.annotate::<Node>(name, TRANSPORT_ADDRESSES, wanted).await;
        told.context(
            "other Nodes have to be told that transportInterface has changed; \
             deploy/kubernetes/transport-interface.yml lets agents do that",
        )
    }
}

impl Tunnel {
    /// What Open vSwitch calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Geneve => "geneve",
            Self::Vxlan => "vxlan",
            Self::Gre => "gre",
            Self::Stt => "stt",
        }
    }

    /// How many bytes it adds to a packet over IPv4: its own header, that of UDP or TCP, of IP, and of Ethernet within.
    fn overhead(self) -> u32 {
        match self {
            Self::Geneve | Self::Vxlan => 50,
            Self::Gre => 42,
            Self::Stt => 72,
        }
    }

    /// The UDP port that it travels to unless told otherwise.
    fn udp_port(self) -> Option<u16> {
        match self {
            Self::Geneve => Some(6081),
            Self::Vxlan => Some(4789),
            Self::Gre | Self::Stt => None,
        }
    }
}

impl Config {
    /// Whether packets to some Nodes are wrapped.
    pub(crate) fn has_tunnel(&self) -> bool {
        match self.traffic_encap_mode {
            EncapMode::Encap | EncapMode::Hybrid => true,
            EncapMode::NoEncap => false,
        }
    }

    /// The UDP port of the tunnel, if there is one.
    pub(crate) fn tunnel_udp_port(&self) -> Option<u16> {
        let usual = self.tunnel_type.udp_port()?;
        self.has_tunnel().then(|| self.tunnel_port.unwrap_or(usual))
    }

    /// The largest packet of a Pod, if the transport device's is `transport` and Nodes have addresses such as `node`.
    pub(crate) fn pod_mtu(&self, transport: u32, node: IpAddr) -> u32 {
        // The outer header of IPv6 is longer by this much.
        const IPV6: u32 = 20;
        let wrapped = self.tunnel_type.overhead() + if node.is_ipv6() { IPV6 } else { 0 };
        self.default_mtu.unwrap_or_else(|| transport.saturating_sub(if self.has_tunnel() { wrapped } else { 0 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_packets_fit_when_they_are_wrapped() {
        let config = |text: &str| Config::read("test", text).unwrap().0;
        let (v4, v6) = ("192.168.77.1".parse().unwrap(), "fd00::1".parse().unwrap());
        for (text, over_v4, over_v6) in [
            ("tunnelType: geneve", 1450, 1430),
            ("tunnelType: gre", 1458, 1438),
            ("trafficEncapMode: noEncap", 1500, 1500),
            ("{trafficEncapMode: hybrid, tunnelType: vxlan}", 1450, 1430),
            ("defaultMTU: 1400", 1400, 1400),
        ] {
            assert_eq!((config(text).pod_mtu(1500, v4), config(text).pod_mtu(1500, v6)), (over_v4, over_v6), "{text}");
        }
    }
}
