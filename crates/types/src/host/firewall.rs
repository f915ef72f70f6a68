//! What our rules in nftables follow from.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::meta::Protocol;

/// Everything that our rules in nftables say. The crate `host` renders it (`host::nft`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Firewall {
    /// The host's end of the bridge, such as `antrea-gw0`.
    pub gateway: String,
    /// The subnets of this Node's Pods. Empty: connections of Pods are not masqueraded (no-encap with routable Pods, or
    /// policy-only).
    pub masquerade: BTreeSet<IpNet>,
    /// Where Pods are reached with their own address: the Pod subnets of all Nodes.
    pub cluster: BTreeSet<IpNet>,
    /// Masqueraded connections get a random source port (`--random-fully`).
    pub random_ports: bool,
    /// Addresses and ports of the host that lead to Services.
    pub node_ports: BTreeSet<NodePort>,
    /// The addresses that stand for Services behind the gateway, where `node_ports` are translated to.
    pub virtual_service: Virtual,
    /// UDP ports of tunnels between Nodes: the host does not track their packets.
    pub tunnel_ports: BTreeSet<u16>,
    /// The bits that mark the host's own packets to Pods, so that probes of the kubelet are known from what it forwards;
    /// only the kernel's datapath sees them.
    pub host_mark: Option<u32>,
    /// The rules of policy-only mode.
    pub policy_only: Option<PolicyOnly>,
}

/// An address and port of the host that leads to a Service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodePort {
    /// An address of the Node.
    pub ip: IpAddr,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
}

/// One address a family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Virtual {
    /// For IPv4.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6.
    pub v6: Option<Ipv6Addr>,
}

/// In policy-only mode, packets of Pods to Services are balanced by the host and come back to the bridge.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PolicyOnly {
    /// Where the addresses of Services are.
    pub services: BTreeSet<IpNet>,
    /// The bit that marks packets to Services, for the routing rule that sends them back.
    pub mark: u32,
}
