//! The transport interface to other Nodes, the encapsulation, and the MTU that remains for Pods.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use host::uplink::{self, Uplink};
use ipnet::IpNet;
use k8s::Client;
use node::node_addresses;
use tokio::time::Instant;
use tracing::warn;
use types::backoff::Backoff;
use types::network::TunnelPackets;
use types::node::{Node, TRANSPORT_ADDRESSES};

use crate::config::Config;
use crate::engine::Engine;

/// How long to wait for the end of a reconfiguration, at first and at most.
const SETTLE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The interface for traffic between Nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Transport {
    pub(crate) device: String,
    pub(crate) mtu: u32,
    /// Subnets of the interface; Nodes in them are reached without a router.
    pub(crate) subnets: Vec<IpNet>,
    /// The address at which other Nodes reach this one.
    pub(crate) address: IpAddr,
    /// All addresses of the Node on the interface, starting with `address`.
    addresses: Vec<IpAddr>,
    /// Why the userspace datapath cannot send and receive tunnel packets by itself on the interface.
    unusable: Option<String>,
    /// Whether the interface is configured: then its addresses differ from `status.addresses`, and are published in an annotation.
    is_configured: bool,
}

impl Transport {
    /// Finds the interface by name, by network, or by the Node's address.
    pub(crate) fn find(config: &Config, node: &Node) -> Result<Self> {
        let (name, own) = (&node.metadata.name, node_addresses(node));
        let Some(first) = own.first().copied() else {
            bail!("Node {name}: status.addresses: has no InternalIP");
        };
        // The family of the Node's first address comes first; link-local addresses cannot be routed.
        let chosen = |wanted: &dyn Fn(&Uplink) -> bool| -> Result<Vec<Uplink>> {
            let global = |net: IpNet| !matches!(net, IpNet::V6(net) if net.addr().is_unicast_link_local());
            let mut found = uplink::list(global)?;
            found.retain(|uplink| wanted(uplink));
            found.sort_by_key(|uplink| uplink.address.addr().is_ipv4() != first.is_ipv4());
            found.dedup_by_key(|uplink| uplink.address.addr().is_ipv4());
            Ok(found)
        };
        let (device, cidrs) = (config.transport_interface.as_ref(), config.transport_interface_cidrs.as_slice());
        let is_configured = device.is_some() || !cidrs.is_empty();
        let found = match device {
            Some(device) => chosen(&|uplink| uplink.device == *device)?,
            None if is_configured => chosen(&|uplink| cidrs.iter().any(|net| net.contains(&uplink.address.addr())))?,
            None => own.iter().filter_map(|ip| uplink::find(*ip).transpose()).collect::<Result<_, _>>()?,
        };
        let nearest = found.first().filter(|uplink| is_configured || uplink.address.addr() == first);
        let Some(nearest) = nearest else {
            match device {
                Some(device) => bail!("transportInterface: this host has no device {device} with an IP address"),
                None if is_configured => {
                    bail!("transportInterfaceCIDRs: no device of this host has an address in {cidrs:?}")
                }
                None => bail!("Node {name}: no device of this host has its InternalIP {first}; is NODE_NAME right?"),
            }
        };
        let mut subnets: Vec<IpNet> = found.iter().map(|uplink| uplink.address.trunc()).collect();
        subnets.sort();
        subnets.dedup();
        let addresses = found.iter().map(|uplink| uplink.address.addr()).collect();
        let unusable = unusable(nearest);
        let Uplink { device, mtu, address, .. } = nearest.clone();
        Ok(Self { device, mtu, subnets, address: address.addr(), addresses, unusable, is_configured })
    }

    /// Why there can be no tunnels without the kernel datapath, and what to do about it. `bridge` is a bridge in Open vSwitch that
    /// the interface is already a port of.
    pub(crate) fn tunnel_problem(&self, bridge: Option<&str>) -> Option<String> {
        let on_bridge = |bridge: &str| format!("is a port of bridge {bridge} in Open vSwitch");
        let why = self.unusable.clone().or_else(|| bridge.map(on_bridge))?;
        let device = &self.device;
        Some(format!(
            "transport interface {device} {why}, so Open vSwitch cannot send and receive tunnel packets on it without its kernel \
             module: load the openvswitch module, set trafficEncapMode: noEncap, or choose another transportInterface"
        ))
    }

    /// Outer source address of tunnel packets. `None` in dual-stack networks, where it depends on the peer's family.
    pub(crate) fn tunnel_source(&self) -> Option<IpAddr> {
        let same_family = self.addresses.iter().all(|ip| ip.is_ipv4() == self.address.is_ipv4());
        same_family.then_some(self.address)
    }

    /// Waits until the interface or its addresses differ from those that the agent has started with, which it cannot follow
    /// while it runs.
    pub(crate) async fn changed(&self, config: &Config, engine: &Engine) -> Error {
        let mut watch = match host::watch::Watch::open([self.device.clone()]) {
            Ok(watch) => watch,
            Err(error) => {
                warn!(%error, "cannot watch the kernel; after a change of the transport interface, restart the agent");
                return std::future::pending().await;
            }
        };
        while watch.changed().await.is_ok() {
            let mut backoff = Backoff::new(SETTLE.0, SETTLE.1);
            loop {
                tokio::time::sleep_until(Instant::now() + backoff.next_delay()).await;
                let node = engine.read(|brain| brain.own_node().cloned()).await;
                let now = node.as_ref().map(|node| Self::find(config, node)).transpose();
                match now {
                    Ok(Some(now)) if now != *self => {
                        let change = format!("from {self} to {now}");
                        return anyhow!(
                            "transport interface: changed {change}; the agent exits in order to start again"
                        );
                    }
                    // Before the initial sync, the Node object is unknown.
                    Ok(_) => break,
                    Err(error) if backoff.is_news() => warn!(%error, "waiting for the transport interface"),
                    Err(_) => {}
                }
            }
        }
        warn!("lost the watch of the kernel; after a change of the transport interface, restart the agent");
        std::future::pending().await
    }

    /// Publishes the transport addresses in an annotation of the Node, or removes the annotation.
    pub(crate) async fn publish(&self, client: &Client, node: &Node) -> Result<()> {
        let name = node.metadata.name.as_str();
        let list = self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let desired = self.is_configured.then_some(list.as_str());
        if node.metadata.annotations.get(TRANSPORT_ADDRESSES).map(String::as_str) == desired {
            return Ok(());
        }
        let annotated = client.annotate::<Node>(name, TRANSPORT_ADDRESSES, desired).await;
        annotated.context(
            "cannot publish the transport addresses of this Node as an annotation; \
             deploy/kubernetes/optional/transport-interface.yml grants the permission",
        )
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, address, mtu, .. } = self;
        write!(f, "{device} with address {address} and MTU {mtu}")
    }
}

/// Kinds of virtual devices on which packet sockets do not see what arrives for the Node, or cannot send as the Node. A tap
/// device may be a port of Open vSwitch itself.
const UNUSABLE_KINDS: [&str; 5] = ["bridge", "bond", "team", "tun", "openvswitch"];

fn unusable(uplink: &Uplink) -> Option<String> {
    let kind = uplink.kind.as_deref().filter(|kind| UNUSABLE_KINDS.contains(kind));
    if let Some(kind) = kind {
        return Some(format!("is a device of type {kind}"));
    }
    if !uplink.is_ethernet {
        return Some("is not an Ethernet device".to_owned());
    }
    if uplink.mac.is_none_or(|mac| mac == types::Mac([0; 6])) {
        return Some("has no MAC".to_owned());
    }
    uplink.address.addr().is_ipv6().then(|| format!("has the IPv6 address {}", uplink.address.addr()))
}

impl Config {
    /// What the packets of the tunnel look like, if Open vSwitch implements it in userspace.
    pub(crate) fn tunnel_packets(&self) -> TunnelPackets {
        self.tunnel_udp_port().map_or(TunnelPackets::Gre, TunnelPackets::Udp)
    }

    /// Whether packets to some Nodes are encapsulated.
    pub(crate) fn has_tunnel(&self) -> bool {
        self.traffic_encap_mode.has_tunnel()
    }

    /// The UDP port of the tunnel, if it uses UDP.
    pub(crate) fn tunnel_udp_port(&self) -> Option<u16> {
        let usual = self.tunnel_type.udp_port()?;
        self.has_tunnel().then(|| self.tunnel_port.unwrap_or(usual))
    }

    /// MTU of Pods, given the MTU of the transport interface and the family of Node addresses.
    pub(crate) fn pod_mtu(&self, transport: u32, node: IpAddr) -> u32 {
        // How much longer the outer IPv6 header is.
        const IPV6: u32 = 20;
        let overhead = self.tunnel_type.overhead() + if node.is_ipv6() { IPV6 } else { 0 };
        self.default_mtu.unwrap_or_else(|| transport.saturating_sub(if self.has_tunnel() { overhead } else { 0 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encapsulated_packets_of_pods_fit_the_transport_mtu() {
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

    #[test]
    fn the_tunnel_source_is_fixed_only_in_single_stack_networks() {
        let (v4, v6): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        let source = |addresses: &[IpAddr]| {
            let (address, addresses) = (addresses[0], addresses.to_vec());
            let device = "eth0".to_owned();
            let subnets = Vec::new();
            Transport { device, mtu: 1500, subnets, address, addresses, unusable: None, is_configured: false }
                .tunnel_source()
        };
        assert_eq!(source(&[v4]), Some(v4));
        assert_eq!(source(&[v6]), Some(v6));
        assert_eq!(source(&[v4, v6]), None);
        assert_eq!(source(&[v6, v4]), None);
    }
}
