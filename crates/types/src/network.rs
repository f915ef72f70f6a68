//! How Nodes carry packets of Pods: the choices that configuration, flows and the kernel share.

use serde::{Deserialize, Serialize};

/// How packets travel between Nodes (`trafficEncapMode`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Through tunnels between all Nodes.
    #[default]
    Encap,
    /// Routed by the underlay between all Nodes.
    NoEncap,
    /// Routed within a subnet, through tunnels beyond.
    Hybrid,
    /// Another CNI plugin connects Pods; only policies are enforced.
    NetworkPolicyOnly,
}

impl Mode {
    /// Whether packets to some Nodes are encapsulated.
    pub fn has_tunnel(self) -> bool {
        match self {
            Self::Encap | Self::Hybrid => true,
            Self::NoEncap | Self::NetworkPolicyOnly => false,
        }
    }
}

/// The datapath of Open vSwitch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Datapath {
    /// The Linux kernel module. It sees the marks of the host's packets, and consumes packets, so that the rest of the
    /// kernel does not see them.
    #[default]
    System,
    /// ovs-vswitchd in userspace, with packet sockets. It does not see marks, and receives copies: the kernel must be
    /// made to drop the originals, and Pods must compute checksums themselves.
    Netdev,
    /// The kernel of a Windows host, which has no marks. Only flows are compiled for it; it cannot be configured.
    #[serde(skip_deserializing)]
    Windows,
}

impl Datapath {
    /// `datapath_type` of a bridge in OVSDB.
    pub fn ovs_type(self) -> &'static str {
        match self {
            Self::System | Self::Windows => "system",
            Self::Netdev => "netdev",
        }
    }
}

/// The encapsulation of packets to other Nodes (`tunnelType`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tunnel {
    /// Over UDP, with options.
    #[default]
    Geneve,
    /// Over UDP, without options.
    Vxlan,
    /// Directly over IP, without ports.
    Gre,
    /// Looks like TCP; only the kernel datapath implements it.
    Stt,
}

impl Tunnel {
    /// The interface type in Open vSwitch.
    pub fn ovs_type(self) -> &'static str {
        match self {
            Self::Geneve => "geneve",
            Self::Vxlan => "vxlan",
            Self::Gre => "gre",
            Self::Stt => "stt",
        }
    }

    /// Overhead over IPv4 in bytes: outer IP header, UDP or TCP header, tunnel header, inner Ethernet header.
    pub fn overhead(self) -> u32 {
        match self {
            Self::Geneve | Self::Vxlan => 50,
            Self::Gre => 42,
            Self::Stt => 72,
        }
    }

    /// The default UDP port.
    pub fn udp_port(self) -> Option<u16> {
        match self {
            Self::Geneve => Some(6081),
            Self::Vxlan => Some(4789),
            Self::Gre | Self::Stt => None,
        }
    }
}

/// What the packets of a tunnel look like outside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TunnelPackets {
    /// UDP with this destination port.
    Udp(u16),
    /// GRE, which has no ports.
    Gre,
}
