//! The veth pair between a Pod and the switch.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use crate::Mac;
use crate::network::Datapath;

/// The veth pair between a Pod and the switch: one end in the Pod's namespace, the other a port of the bridge.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PodLink {
    /// The Pod's network namespace, from the CNI request.
    pub netns: PathBuf,
    /// The device's name in the Pod, usually `eth0`.
    pub container_device: String,
    /// The device's name on the host.
    pub host_device: String,
    /// MAC of the Pod's interface.
    pub mac: Mac,
    /// The Pod's addresses with their prefix lengths; at most one for each family.
    pub addresses: Vec<IpNet>,
    /// The next hops of the default routes; at most one for each family.
    pub gateways: Vec<IpAddr>,
    /// Routes besides the default routes.
    pub routes: Vec<PodRoute>,
    /// MTU of both ends.
    pub mtu: u32,
    /// Datapath that receives the Pod's packets.
    pub datapath: Datapath,
}

/// A route in a Pod's namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PodRoute {
    /// Subnet that it leads to.
    pub destination: IpNet,
    /// Address of the next hop.
    pub via: IpAddr,
}
