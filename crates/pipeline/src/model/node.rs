//! The Node itself, its Pods and its peers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use openflow::port::Port;
use serde::{Deserialize, Serialize};
use types::Mac;
use types::network::{Datapath, Mode};

/// Which parts of the pipeline are in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Features {
    /// AntreaProxy balances Services for Pods, instead of kube-proxy.
    pub antrea_proxy: bool,
    /// AntreaProxy balances for the host too, and NodePorts and LoadBalancers.
    pub proxy_all: bool,
    /// Antrea's own policies with tiers, and statistics of rules.
    pub antrea_policy: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self { antrea_proxy: true, proxy_all: true, antrea_policy: true }
    }
}

/// One value per address family of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub struct Families<T> {
    /// Present if the cluster uses IPv4.
    pub v4: Option<T>,
    /// Present if the cluster uses IPv6.
    pub v6: Option<T>,
}

/// The addresses of a Node in one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Address {
    /// The Node's own address, the remote end of its peers' tunnels.
    pub node: IpAddr,
    /// The gateway's address, the first of the Node's Pod subnet.
    pub gateway: IpAddr,
    /// The source of SNATed Service connections: a second address of the Node's Pod subnet, so that its ports do not
    /// conflict with the host's.
    pub snat: IpAddr,
    /// Stands for NodePort addresses and for the host on the gateway.
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

/// The host's interface on the bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Gateway {
    /// OpenFlow port of the interface.
    pub port: Port,
    /// MAC of the interface.
    pub mac: Mac,
}

/// The Node's uplink, if it is a port of the bridge; the Node's own address is then on [`Port::LOCAL`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// OpenFlow port of the uplink.
    pub port: Port,
}

/// Everything about this Node that its flows depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// How packets travel between Nodes.
    pub mode: Mode,
    /// The optional parts in use.
    pub features: Features,
    /// The datapath of the bridge.
    pub datapath: Datapath,
    /// Whether connections that are not to a Service are committed with SNAT to the all-zero address, so that the datapath
    /// resolves collisions of their source ports with those of Services.
    pub all_zero_snat: bool,
    /// The host's interface on the bridge.
    pub gateway: Gateway,
    /// The uplink, if it is on the bridge.
    pub uplink: Option<Uplink>,
    /// The tunnel port shared by all peers first, then those of single peers (IPsec).
    pub tunnels: Vec<Port>,
    /// The configured UDP port of tunnels; the default ports are always guarded.
    pub tunnel_port: Option<u16>,
    /// The Node's addresses by family.
    pub addresses: Families<Address>,
    /// Further addresses of the host on which NodePorts listen.
    pub node_port_addresses: Vec<IpAddr>,
    /// Cluster IP ranges, used with kube-proxy only.
    pub service_cidrs: Vec<IpNet>,
    /// Whether another proxy on the host balances some Services: packets of Pods then return through the gateway with the
    /// Pod's source.
    pub host_balances: bool,
}

/// One Pod subnet of another Node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The addresses of its Pods.
    pub pod_cidr: IpNet,
    /// The gateway's address in this subnet.
    pub gateway: IpAddr,
    /// How the subnet is reached.
    pub path: PeerPath,
}

/// How another Node is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerPath {
    /// Through a tunnel to this address.
    Tunnel(IpAddr),
    /// By routes of the host.
    Route,
}

/// A Pod on this Node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    /// OpenFlow port of the Pod's interface.
    pub port: Port,
    /// MAC of the Pod's interface.
    pub mac: Mac,
    /// At most one address per family.
    pub addresses: Vec<IpAddr>,
}
