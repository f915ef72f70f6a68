//! The cable between a Pod and the switch.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use crate::Mac;

/// The cable between a Pod and the switch: a pair of devices, one in the Pod's namespace, one a port of the bridge.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PodLink {
    /// The Pod's network namespace, as CNI gives it.
    pub netns: PathBuf,
    /// The device's name in the Pod, usually `eth0`.
    pub container_device: String,
    /// The device's name on the host.
    pub host_device: String,
    /// The Ethernet address in the Pod.
    pub mac: Mac,
    /// The Pod's addresses, with the lengths of their networks' prefixes; at most one a family.
    pub addresses: Vec<IpNet>,
    /// The next hops of the default routes; at most one a family.
    pub gateways: Vec<IpAddr>,
    /// Further routes.
    pub routes: Vec<PodRoute>,
    /// The largest packet.
    pub mtu: u32,
    /// What takes the packets on the host.
    pub datapath: Datapath,
}

/// A route in a Pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PodRoute {
    /// Where it leads.
    pub destination: IpNet,
    /// The next hop.
    pub via: IpAddr,
}

/// What takes packets from a Pod's cable on the host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Datapath {
    /// The kernel's module. It takes the packets away from the rest of the kernel.
    System,
    /// ovs-vswitchd, with packet sockets, which see copies: the kernel has to be told to leave the packets alone, and the
    /// Pod to compute checksums itself.
    Netdev,
}
