//! Desired and observed state of a Node's kernel: values that the crate `host` compares and applies.
//!
//! Each kind of object has a mark of ownership. A device is ours if it is in [`Desired::links`]: so are all its addresses,
//! except those that the kernel assigns, and all its permanent neighbours. A route is ours if it has [`ROUTE_PROTOCOL`], on
//! any device. A veth of a Pod is ours if its end on the host is in the group [`POD_GROUP`]. The nftables tables
//! [`FIREWALL_TABLE`] are ours. Foreign objects are never changed.

mod firewall;
mod pod_link;

pub use firewall::{Firewall, Guard, NodePort, PolicyOnly, SwitchTunnel, Virtual};
pub use pod_link::{PodLink, PodRoute};

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::Mac;

/// The protocol number of our routes, as `bird` and `dhcp` have theirs (`ip route show proto 167`).
pub const ROUTE_PROTOCOL: u8 = 167;

/// The interface group of the host ends of Pod veths (`ip link show group 167`).
pub const POD_GROUP: u32 = 167;

/// The default routing table (`ip route show table main`).
pub const MAIN_TABLE: u32 = 254;

/// The name of our nftables tables, one in each family that we use.
pub const FIREWALL_TABLE: &str = "antrea";

/// A route. A table has at most one for each destination.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Route {
    /// Subnet that it leads to.
    pub destination: IpNet,
    /// The next hop; `None` for destinations on the device's own link.
    pub via: Option<IpAddr>,
    /// Name of the outgoing device.
    pub device: String,
    /// The next hop counts as on the device's link, even if no address of the device contains it.
    pub onlink: bool,
    /// Preferred source address of the host's own packets.
    pub source: Option<IpAddr>,
    /// MTU of the route, if it is less than the device's.
    pub mtu: Option<u32>,
    /// The routing table; usually [`MAIN_TABLE`].
    pub table: u32,
}

impl Route {
    /// A route in the main table to destinations on the link of `device`.
    pub fn link(destination: IpNet, device: &str) -> Self {
        let device = device.to_owned();
        Self { destination, via: None, device, onlink: false, source: None, mtu: None, table: MAIN_TABLE }
    }

    /// A route in the main table through a next hop on the link of `device`, regardless of the device's addresses.
    pub fn onlink(destination: IpNet, via: IpAddr, device: &str) -> Self {
        Self { via: Some(via), onlink: true, ..Self::link(destination, device) }
    }
}

/// A permanent neighbour: its MAC is configured, not resolved, and never expires.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Neighbour {
    /// The device whose link it is on.
    pub device: String,
    /// IP address of the neighbour.
    pub ip: IpAddr,
    /// MAC of the neighbour.
    pub mac: Mac,
}

/// An address assigned to a device.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// Name of the device.
    pub device: String,
    /// The address with its prefix length.
    pub net: IpNet,
}

/// Settings of a device of ours; `None` leaves a setting unchanged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Link {
    /// Whether it is administratively up.
    pub up: bool,
    /// MTU of the device.
    pub mtu: Option<u32>,
    /// MAC of the device.
    pub mac: Option<Mac>,
}

/// A policy routing rule (`ip rule`): packets with a mark, from a device, use a table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RoutingRule {
    /// Position among the rules, and the identity of this one.
    pub priority: u32,
    /// An IPv6 rule; otherwise IPv4.
    pub ipv6: bool,
    /// Name of the incoming device.
    pub device: String,
    /// The value of the packet mark.
    pub mark: u32,
    /// The bits of the mark that are compared.
    pub mask: u32,
    /// The routing table to look up.
    pub table: u32,
}

/// Desired state of the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Desired {
    /// Our devices by name. Open vSwitch creates them; we configure them.
    pub links: BTreeMap<String, Link>,
    /// The addresses of our devices.
    pub addresses: BTreeSet<Address>,
    /// Our routes, on any device.
    pub routes: BTreeSet<Route>,
    /// Addresses that only `routes` may lead to: any other route of ours to them is removed at once, without a sweep.
    pub clear: BTreeSet<IpAddr>,
    /// Permanent neighbours on our devices.
    pub neighbours: BTreeSet<Neighbour>,
    /// Our policy routing rules.
    pub rules: BTreeSet<RoutingRule>,
    /// Devices of others that must not merge received packets (GRO): the userspace datapath drops what exceeds the MTU.
    pub unmerged: BTreeSet<String>,
    /// Sysctls: a path below `/proc/sys` such as `net/ipv4/conf/antrea-gw0/arp_announce`, and its value.
    pub sysctls: BTreeMap<String, String>,
    /// Our nftables rules; `None` until they are known: the installed ones stay until then.
    pub firewall: Option<Firewall>,
}

/// Actual state of the kernel, as far as it concerns us.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// Our devices that exist.
    pub links: BTreeMap<String, Link>,
    /// Addresses of our devices.
    pub addresses: BTreeSet<Address>,
    /// All routes with our protocol number.
    pub routes: BTreeSet<Route>,
    /// The permanent neighbours on our devices.
    pub neighbours: BTreeSet<Neighbour>,
    /// The policy routing rules with our protocol number.
    pub rules: BTreeSet<RoutingRule>,
    /// The devices of [`Desired::unmerged`] that merge received packets.
    pub merging: BTreeSet<String>,
    /// The sysctls in [`Desired`] that the kernel has.
    pub sysctls: BTreeMap<String, String>,
    /// The installed nftables rules equal the desired ones.
    pub firewall_intact: bool,
}

/// One change of the kernel's state. Each is idempotent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Sets the state, MTU and MAC of a device.
    SetLink(String, Link),
    /// Writes a sysctl: its path below `/proc/sys`, and its value.
    SetSysctl(String, String),
    /// Turns off the merging of received packets (GRO) of a device.
    StopMerging(String),
    /// Adds an address to a device.
    AddAddress(Address),
    /// Removes an address from a device.
    RemoveAddress(Address),
    /// Adds a neighbour, or replaces its MAC.
    PutNeighbour(Neighbour),
    /// Removes a permanent neighbour.
    RemoveNeighbour(Neighbour),
    /// Adds a route, or replaces our route to the same destination.
    PutRoute(Route),
    /// Removes one of our routes.
    RemoveRoute(Route),
    /// Adds a policy routing rule.
    AddRule(RoutingRule),
    /// Removes a policy routing rule.
    RemoveRule(RoutingRule),
    /// Replaces all our nftables rules.
    ReplaceFirewall(Box<Firewall>),
}
