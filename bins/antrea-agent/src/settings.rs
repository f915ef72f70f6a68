//! What the agent was told, in the types that it works with.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use pipeline::model::{Features, Mode};

/// How packets between Nodes are wrapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TunnelKind {
    Geneve,
    Vxlan,
    Gre,
    Stt,
}

impl TunnelKind {
    /// What Open vSwitch calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Geneve => "geneve",
            Self::Vxlan => "vxlan",
            Self::Gre => "gre",
            Self::Stt => "stt",
        }
    }

    /// How many bytes it adds to a packet over IPv4: with its own header, those of UDP or TCP, of IP, and of Ethernet within.
    fn overhead(self) -> u32 {
        match self {
            Self::Geneve | Self::Vxlan => 50,
            Self::Gre => 42,
            Self::Stt => 72,
        }
    }

    /// The UDP port that it travels to unless told otherwise.
    pub(crate) fn udp_port(self) -> Option<u16> {
        match self {
            Self::Geneve => Some(6081),
            Self::Vxlan => Some(4789),
            Self::Gre | Self::Stt => None,
        }
    }
}

/// What moves the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DatapathKind {
    System,
    Netdev,
}

/// All that the agent was told.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The name of this Node.
    pub(crate) node: String,
    /// The way to the Kubernetes API; a ServiceAccount's if not given.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Another address of the Kubernetes API.
    pub(crate) api_server: Option<String>,
    /// Where the sockets of Open vSwitch are.
    pub(crate) ovs_run_dir: PathBuf,
    pub(crate) bridge: String,
    pub(crate) gateway: String,
    /// What moves the packets; found out if not given.
    pub(crate) datapath: Option<DatapathKind>,
    pub(crate) mode: Mode,
    pub(crate) tunnel: TunnelKind,
    pub(crate) tunnel_port: Option<u16>,
    pub(crate) tunnel_checksum: bool,
    /// The largest packet of Pods; follows from the transport device's if not given.
    pub(crate) mtu: Option<u32>,
    pub(crate) no_snat: bool,
    pub(crate) features: Features,
    /// Where NodePorts listen; everywhere if empty.
    pub(crate) node_port_addresses: Vec<IpNet>,
    pub(crate) service_cidrs: Vec<IpNet>,
    /// The device to other Nodes; the one with the Node's address if not given.
    pub(crate) transport_interface: Option<String>,
    pub(crate) cni_socket: PathBuf,
    /// Where addresses that are in use are noted.
    pub(crate) ipam_dir: PathBuf,
    /// The port of the REST API on loopback.
    pub(crate) api_port: u16,
}

impl Settings {
    /// Whether packets to some Nodes are wrapped.
    pub(crate) fn has_tunnel(&self) -> bool {
        matches!(self.mode, Mode::Encap | Mode::Hybrid)
    }

    /// The largest packet of a Pod, if the transport device's is `transport` and Nodes have addresses as `node`.
    pub(crate) fn pod_mtu(&self, transport: u32, node: IpAddr) -> u32 {
        // The outer header of IPv6 is longer by this much.
        const IPV6: u32 = 20;
        self.mtu.unwrap_or_else(|| {
            let wrapped = self.tunnel.overhead() + if node.is_ipv6() { IPV6 } else { 0 };
            transport.saturating_sub(if self.has_tunnel() { wrapped } else { 0 })
        })
    }
}
