//! Input of our nftables rules.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::meta::Protocol;
use crate::network::TunnelPackets;

/// Input of our nftables rules. The crate `host` renders them (`host::nft`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Firewall {
    /// The gateway: the host's interface on the bridge, such as `antrea-gw0`.
    pub gateway: String,
    /// The subnets of this Node's Pods. Empty: connections of Pods are not masqueraded (no-encap with routable Pods, or
    /// policy-only).
    pub masquerade: BTreeSet<IpNet>,
    /// The Pod subnets of all Nodes: packets to them are not masqueraded.
    pub cluster: BTreeSet<IpNet>,
    /// Masqueraded connections get a random source port (`--random-fully`).
    pub random_ports: bool,
    /// Addresses and ports of the host that are NodePorts of Services.
    pub node_ports: BTreeSet<NodePort>,
    /// Virtual addresses behind the gateway that `node_ports` are DNATed to.
    pub virtual_service: Virtual,
    /// UDP ports of tunnels between Nodes: the host does not track their packets.
    pub tunnel_ports: BTreeSet<u16>,
    /// Tunnel packets that the switch reads from a device by itself: the kernel, which receives them too, drops them.
    pub switch_tunnel: Option<SwitchTunnel>,
    /// Mark on the host's own packets to Pods, which tells kubelet probes from forwarded packets; only the kernel datapath
    /// sees marks.
    pub host_mark: Option<u32>,
    /// Rules for policy-only mode.
    pub policy_only: Option<PolicyOnly>,
    /// Packets to drop although a route exists.
    pub guard: Guard,
}

/// The devices that Pods' packets may arrive on, and the tunnel ports that Pods may not send to.
///
/// Packets with a loopback address on a device other than `lo` are always dropped.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Guard {
    /// Pod subnets whose packets arrive by the gateway only: this Node's, and those behind tunnels.
    pub bridged: BTreeSet<IpNet>,
    /// Pod subnets of other Nodes that are routed without a tunnel. Their packets arrive by `transport` only.
    pub routed: BTreeSet<IpNet>,
    /// The device towards other Nodes; may be empty if nothing is `routed`.
    pub transport: String,
    /// The addresses of all Nodes: the ends of tunnels.
    pub nodes: BTreeSet<IpAddr>,
}

impl Guard {
    /// UDP ports of Geneve and VXLAN. Pods may not send to them on Nodes, whichever tunnel type this Node uses.
    pub const TUNNEL_PORTS: [u16; 2] = [6081, 4789];
    /// TCP destination port of STT.
    pub const STT_PORT: u16 = 7471;
    /// IP protocol number of GRE.
    pub const GRE: u8 = 47;
}

/// The packets of a tunnel that ends in the userspace datapath.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SwitchTunnel {
    /// The device on which they arrive.
    pub device: String,
    /// What they look like.
    pub packets: TunnelPackets,
}

/// An address and port of the host that is a frontend of a Service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodePort {
    /// One of the Node's addresses.
    pub ip: IpAddr,
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
    /// The value of `nodePort`.
    pub port: u16,
}

/// At most one address for each family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Virtual {
    /// The IPv4 address, if used.
    pub v4: Option<Ipv4Addr>,
    /// The IPv6 address, if used.
    pub v6: Option<Ipv6Addr>,
}

/// In policy-only mode, kube-proxy on the host balances Pods' packets to Services and returns them to the bridge.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PolicyOnly {
    /// Subnets of Service addresses.
    pub services: BTreeSet<IpNet>,
    /// Mark for packets to Services, which the routing rule matches to return them.
    pub mark: u32,
}
