//! Everything in the kernel that carries our mark, for a Node from which antrea-rs is removed.

use std::fmt;

use types::host::{FIREWALL_TABLE, Neighbour, Op, Route, RoutingRule};

use crate::error::Error;
use crate::kernel::Kernel;
use crate::netlink::{link, neighbour};
use crate::nft;

/// An object in the kernel with our mark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leftover {
    /// The host end of a Pod's veth, by name.
    PodVeth(String),
    /// A device that the userspace datapath of Open vSwitch leaves behind, by name. It has no mark, see [`Kernel::taps`].
    Tap(String),
    /// The promiscuous mode of a device, by name. It has no mark, see [`Kernel::promiscuous`].
    Promiscuous(String),
    /// A route with our protocol number.
    Route(Route),
    /// A policy routing rule with our protocol number.
    Rule(RoutingRule),
    /// A neighbour with our protocol number.
    Neighbour(Neighbour),
    /// Our nftables table of a family.
    Table {
        /// The family in the spelling of `nft`.
        family: String,
    },
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodVeth(device) => write!(f, "Pod interface {device}"),
            Self::Tap(device) => write!(f, "device {device}"),
            Self::Promiscuous(device) => write!(f, "promiscuous mode of device {device}"),
            Self::Route(Route { destination, device, table, .. }) => {
                write!(f, "route to {destination} on {device} in table {table}")
            }
            Self::Rule(RoutingRule { priority, ipv6, .. }) => {
                write!(f, "{} policy routing rule {priority}", if *ipv6 { "IPv6" } else { "IPv4" })
            }
            Self::Neighbour(Neighbour { device, ip, .. }) => write!(f, "neighbour {ip} on {device}"),
            Self::Table { family } => write!(f, "nftables table {family} {FIREWALL_TABLE}"),
        }
    }
}

impl Kernel {
    /// All objects with our mark, in an order in which they can be removed.
    pub fn leftovers(&mut self) -> Result<Vec<Leftover>, Error> {
        let devices = link::list(&mut self.netlink).map_err(Error::refused("cannot list devices"))?;
        let veths = devices.iter().filter(|device| device.is_pod_veth()).map(|device| device.name.clone());
        let mut all: Vec<Leftover> = veths.map(Leftover::PodVeth).collect();
        all.extend(self.routes()?.into_iter().map(Leftover::Route));
        all.extend(self.rules()?.into_iter().map(Leftover::Rule));
        let neighbours = neighbour::list_marked(&mut self.netlink).map_err(Error::refused("cannot list neighbours"))?;
        for (index, ip, mac) in neighbours {
            let device = devices.iter().find(|device| device.index == index).map(|device| device.name.clone());
            all.extend(device.map(|device| Leftover::Neighbour(Neighbour { device, ip, mac })));
        }
        all.extend(nft::families()?.into_iter().map(|family| Leftover::Table { family }));
        Ok(all)
    }

    /// The taps among the devices with these names. They outlive ovs-vswitchd, which makes them persistent.
    pub fn taps(&mut self, names: &[&str]) -> Result<Vec<Leftover>, Error> {
        let devices = link::list(&mut self.netlink).map_err(Error::refused("cannot list devices"))?;
        let taps = devices
            .into_iter()
            .filter(|device| device.kind.as_deref() == Some("tun") && names.contains(&device.name.as_str()));
        Ok(taps.map(|device| Leftover::Tap(device.name)).collect())
    }

    /// The promiscuous ones among the devices with these names. Open vSwitch makes ports of the userspace datapath promiscuous,
    /// and forgets that it has done so when it is killed.
    pub fn promiscuous(&mut self, names: &[String]) -> Result<Vec<Leftover>, Error> {
        let devices = link::list(&mut self.netlink).map_err(Error::refused("cannot list devices"))?;
        let found = devices.into_iter().filter(|device| device.promiscuous && names.contains(&device.name));
        Ok(found.map(|device| Leftover::Promiscuous(device.name)).collect())
    }

    /// Removes an object with our mark. An object that does not exist any more is no error.
    pub fn remove(&mut self, leftover: &Leftover) -> Result<(), Error> {
        let op = match leftover {
            Leftover::PodVeth(device) | Leftover::Tap(device) => return self.remove_device(device),
            Leftover::Promiscuous(device) => return self.end_promiscuous_mode(device),
            Leftover::Table { family } => return nft::remove_table(family),
            Leftover::Route(route) => Op::RemoveRoute(route.clone()),
            Leftover::Rule(rule) => Op::RemoveRule(rule.clone()),
            Leftover::Neighbour(neighbour) => Op::RemoveNeighbour(neighbour.clone()),
        };
        match self.apply(&[op]).pop().map(|failure| failure.error) {
            // Gone with its device.
            None | Some(Error::NoDevice { .. }) => Ok(()),
            Some(error) => Err(error),
        }
    }
}
