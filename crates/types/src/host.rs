//! What the kernel of a Node should hold for us: values, which the crate `host` compares with what is there and carries out.
//!
//! What is ours is recognisable. A device is ours if it is in [`Desired::links`]: all its addresses (but the ones that the
//! kernel gives it by itself) and all its permanent neighbours are. A route is ours if it carries [`ROUTE_PROTOCOL`],
//! whatever its device. A Pod's cable is ours if its end on the host is in the group [`POD_GROUP`]. The tables
//! [`FIREWALL_TABLE`] of nftables are ours. Nobody else's is ever changed.

mod firewall;
mod pod_link;

pub use firewall::{Firewall, NodePort, PolicyOnly, Virtual};
pub use pod_link::{Datapath, PodLink, PodRoute};

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::Mac;

/// The number that marks our routes, as `bird` and `dhcp` have theirs (`ip route show proto 167`).
pub const ROUTE_PROTOCOL: u8 = 167;

/// The group of the devices on the host that lead to Pods (`ip link show group 167`).
pub const POD_GROUP: u32 = 167;

/// The table that routes are in unless somebody says otherwise (`ip route show table main`).
pub const MAIN_TABLE: u32 = 254;

/// The name of our tables in nftables, one in each family that we use.
pub const FIREWALL_TABLE: &str = "antrea";

/// A route. In a table, there is one for a destination.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Route {
    /// Where it leads.
    pub destination: IpNet,
    /// The next hop; nothing for what is on the device's own link.
    pub via: Option<IpAddr>,
    /// The device that packets leave by.
    pub device: String,
    /// The next hop is on the device's link, even if no address of the device says so.
    pub onlink: bool,
    /// The address that the host's own packets come from, where their sender does not care.
    pub source: Option<IpAddr>,
    /// The largest packet that fits, where it is less than the device's.
    pub mtu: Option<u32>,
    /// The routing table; usually [`MAIN_TABLE`].
    pub table: u32,
}

impl Route {
    /// A route in the main table to what is on the link of `device`.
    pub fn link(destination: IpNet, device: &str) -> Self {
        let device = device.to_owned();
        Self { destination, via: None, device, onlink: false, source: None, mtu: None, table: MAIN_TABLE }
    }

    /// A route in the main table through a next hop that is on the link of `device`, whatever the device's addresses say.
    pub fn onlink(destination: IpNet, via: IpAddr, device: &str) -> Self {
        Self { via: Some(via), onlink: true, ..Self::link(destination, device) }
    }
}

/// A neighbour whose Ethernet address is told, not asked for, and never forgotten.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Neighbour {
    /// The device on whose link it is.
    pub device: String,
    /// Its address.
    pub ip: IpAddr,
    /// Its Ethernet address.
    pub mac: Mac,
}

/// An address of a device.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Address {
    /// The device.
    pub device: String,
    /// The address, with the length of its network's prefix.
    pub net: IpNet,
}

/// How a device of ours is set; what is `None` stays as it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Link {
    /// Whether it is up.
    pub up: bool,
    /// The largest packet.
    pub mtu: Option<u32>,
    /// Its Ethernet address.
    pub mac: Option<Mac>,
}

/// A rule of the routing policy: packets with a mark, from a device, are routed by a table (`ip rule`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RoutingRule {
    /// Rules are asked in this order, and this one is known by it.
    pub priority: u32,
    /// For IPv6, not for IPv4.
    pub ipv6: bool,
    /// The device that packets came in by.
    pub device: String,
    /// The bits of the packet's mark.
    pub mark: u32,
    /// The bits of it that are looked at.
    pub mask: u32,
    /// The table that is asked.
    pub table: u32,
}

/// What the kernel should hold for us.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Desired {
    /// The devices that are ours, by name. We set them; Open vSwitch makes them.
    pub links: BTreeMap<String, Link>,
    /// The addresses of our devices.
    pub addresses: BTreeSet<Address>,
    /// Routes, on any device.
    pub routes: BTreeSet<Route>,
    /// Permanent neighbours on our devices.
    pub neighbours: BTreeSet<Neighbour>,
    /// Rules of the routing policy.
    pub rules: BTreeSet<RoutingRule>,
    /// Settings of the kernel: a path below `/proc/sys` such as `net/ipv4/conf/antrea-gw0/arp_announce`, and its value.
    pub sysctls: BTreeMap<String, String>,
    /// Our rules in nftables; nothing while nobody knows them yet, and then what is there stays.
    pub firewall: Option<Firewall>,
}

/// What the kernel holds of ours: the same things, as far as they are there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// Our devices that exist.
    pub links: BTreeMap<String, Link>,
    /// Their addresses.
    pub addresses: BTreeSet<Address>,
    /// All routes that carry our mark.
    pub routes: BTreeSet<Route>,
    /// The permanent neighbours on our devices.
    pub neighbours: BTreeSet<Neighbour>,
    /// The rules of the routing policy that carry our mark.
    pub rules: BTreeSet<RoutingRule>,
    /// The settings that were asked for, as far as the kernel has them.
    pub sysctls: BTreeMap<String, String>,
    /// The rules in nftables are exactly those that were asked for.
    pub firewall_intact: bool,
}

/// One change of what the kernel holds. To repeat one that was carried out changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Sets a device.
    SetLink(String, Link),
    /// Writes a setting: its path below `/proc/sys`, and its value.
    SetSysctl(String, String),
    /// Gives a device an address.
    AddAddress(Address),
    /// Takes an address from a device.
    RemoveAddress(Address),
    /// Adds a neighbour, or corrects it.
    PutNeighbour(Neighbour),
    /// Removes a neighbour.
    RemoveNeighbour(Neighbour),
    /// Adds a route, or replaces ours to the same destination.
    PutRoute(Route),
    /// Removes a route.
    RemoveRoute(Route),
    /// Adds a rule of the routing policy.
    AddRule(RoutingRule),
    /// Removes a rule of the routing policy.
    RemoveRule(RoutingRule),
    /// Replaces all our rules in nftables.
    ReplaceFirewall(Firewall),
}
