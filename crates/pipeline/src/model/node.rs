//! The Node itself, its Pods and its peers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use openflow::port::Port;
use types::Mac;

/// How packets travel between Nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// All through tunnels.
    Encap,
    /// All routed by the underlay.
    NoEncap,
    /// Routed within a subnet, through tunnels beyond.
    Hybrid,
    /// Another CNI plugin connects Pods; only policies are enforced.
    NetworkPolicyOnly,
}

/// Which parts of the pipeline are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// Services of Pods are balanced here, not by kube-proxy.
    pub antrea_proxy: bool,
    /// So are the host's, NodePorts and LoadBalancers.
    pub proxy_all: bool,
    /// Antrea's own policies with tiers, and statistics of rules.
    pub antrea_policy: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self { antrea_proxy: true, proxy_all: true, antrea_policy: true }
    }
}

/// What moves the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datapath {
    /// The kernel's module: marks of the host's packets are seen.
    System,
    /// ovs-vswitchd itself: they are not.
    Netdev,
    /// The kernel of a Windows host, which has no marks.
    Windows,
}

/// One value for IPv4 and one for IPv6, as far as the cluster has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Families<T> {
    /// For IPv4.
    pub v4: Option<T>,
    /// For IPv6.
    pub v6: Option<T>,
}

/// The addresses of a Node in one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The Node's own, which tunnels go to.
    pub node: IpAddr,
    /// The gateway's, the first of the Node's Pod subnet.
    pub gateway: IpAddr,
    /// The source of SNATed Service connections: a second address of the Node's Pod subnet, so that its ports are not the
    /// host's.
    pub snat: IpAddr,
    /// The address that stands for the host's Services on the gateway.
    pub virtual_service: IpAddr,
    /// The source of a Pod's packets to itself.
    pub hairpin: IpAddr,
    /// The Node's Pod subnet.
    pub pod_cidr: IpNet,
}

impl Address {
    /// Default of [`Address::virtual_service`] for IPv4.
    pub const VIRTUAL_SERVICE: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 253);
    /// Default of [`Address::hairpin`] for IPv4.
    pub const HAIRPIN: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 252);
    /// Default of [`Address::virtual_service`] for IPv6.
    pub const VIRTUAL_SERVICE6: Ipv6Addr = Ipv6Addr::new(0xfc01, 0, 0, 0, 0, 0, 0xaabb, 0xccdd);
    /// Default of [`Address::hairpin`] for IPv6.
    pub const HAIRPIN6: Ipv6Addr = Ipv6Addr::new(0xfc01, 0, 0, 0, 0, 0, 0xaabb, 0xccde);
}

/// The host's end of the bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gateway {
    /// Its port.
    pub port: Port,
    /// Its Ethernet address.
    pub mac: Mac,
}

/// The Node's way to the world, where that is a port of the bridge; the Node's own address is then on [`Port::LOCAL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// Its port.
    pub port: Port,
}

/// A Node, as its flows depend on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// How packets travel.
    pub mode: Mode,
    /// What is in use.
    pub features: Features,
    /// What moves the packets.
    pub datapath: Datapath,
    /// The host's end.
    pub gateway: Gateway,
    /// The uplink, if it is on the bridge.
    pub uplink: Option<Uplink>,
    /// The tunnel that is shared by all peers, and any that are a peer's own (IPsec).
    pub tunnels: Vec<Port>,
    /// Its addresses.
    pub addresses: Families<Address>,
    /// Further addresses of the host on which NodePorts listen.
    pub node_port_addresses: Vec<IpAddr>,
    /// Addresses of Services, where kube-proxy balances them.
    pub service_cidrs: Vec<IpNet>,
}

/// Another Node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its Pods' addresses.
    pub pod_cidr: IpNet,
    /// Its gateway.
    pub gateway: IpAddr,
    /// How it is reached.
    pub path: PeerPath,
}

/// How another Node is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerPath {
    /// Through a tunnel to this address.
    Tunnel(IpAddr),
    /// By the host's routes.
    Route,
}

/// A Pod on this Node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    /// Its port.
    pub port: Port,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its addresses, at most one a family.
    pub addresses: Vec<IpAddr>,
}
