//! The way to other Nodes: by which device, wrapped in what, and how much room that leaves.

use std::net::IpAddr;

use crate::config::{Config, EncapMode, Tunnel};

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
