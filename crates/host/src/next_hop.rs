//! How the kernel reaches other Nodes: the next hop of its routes, and that one's MAC.
//!
//! The userspace datapath sends tunnel packets by itself, and has to send them to where the kernel would.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use types::Mac;
use types::host::ROUTE_PROTOCOL;

use crate::error::Error;
use crate::netlink::{Message, Netlink, find, link, neighbour, route};
use crate::watch::{Change, LINK_HEADER, Listener};

/// The groups of `NETLINK_ROUTE` for links, neighbours, and routes of both families.
const GROUPS: [u32; 4] = [1, 3, 7, 11];

/// How the kernel reaches an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NextHop {
    /// By the device in question.
    Device {
        /// The router, unless the address is on the link.
        router: Option<IpAddr>,
        /// MAC of the router or of the address itself, once the kernel has resolved it.
        mac: Option<Mac>,
    },
    /// By another device, with this name.
    Elsewhere(String),
    /// There is no route to it.
    Unreachable,
}

/// Finds next hops in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct NextHops {
    netlink: Netlink,
}

impl NextHops {
    /// Opens a netlink socket.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { netlink: Netlink::route().map_err(Error::refused("cannot open a netlink socket"))? })
    }

    /// The next hop of packets from `source` to each of these addresses. Makes the kernel resolve what it does not know, and
    /// confirm what it has not used for a while; [`Watch`] reports the result.
    pub fn find(
        &mut self,
        device: &str,
        source: IpAddr,
        destinations: &BTreeSet<IpAddr>,
    ) -> Result<BTreeMap<IpAddr, NextHop>, Error> {
        let doing = || format!("cannot find the next hops of device {device}");
        let found = link::get(&mut self.netlink, device).map_err(Error::refused(doing()))?;
        let Some(uplink) = found else {
            return Err(Error::NoDevice { doing: doing(), device: device.to_owned() });
        };
        let known = neighbour::list_all(&mut self.netlink, uplink.index).map_err(Error::refused(doing()))?;
        let known: BTreeMap<IpAddr, neighbour::Known> = known.into_iter().map(|one| (one.ip, one)).collect();
        let (mut all, mut unconfirmed) = (BTreeMap::new(), BTreeSet::new());
        for destination in destinations {
            let hop = route::lookup(&mut self.netlink, source, *destination).map_err(Error::refused(doing()))?;
            let hop = match hop {
                None => NextHop::Unreachable,
                Some(hop) if hop.index == uplink.index => {
                    let neighbour = hop.via.unwrap_or(*destination);
                    let known = known.get(&neighbour);
                    if !known.is_some_and(neighbour::Known::is_confirmed) {
                        unconfirmed.insert(neighbour);
                    }
                    NextHop::Device { router: hop.via, mac: known.and_then(|known| known.mac) }
                }
                Some(hop) => {
                    let other = link::get_index(&mut self.netlink, hop.index).map_err(Error::refused(doing()))?;
                    NextHop::Elsewhere(other.map_or_else(|| hop.index.to_string(), |other| other.name))
                }
            };
            all.insert(*destination, hop);
        }
        let requests: Vec<_> = unconfirmed.into_iter().map(|ip| neighbour::confirm(uplink.index, ip)).collect();
        for outcome in self.netlink.requests(&requests) {
            outcome.map_err(Error::refused(doing()))?;
        }
        Ok(all)
    }
}

/// A subscription to changes of next hops, in the namespace of the thread that opened it. Needs tokio.
#[derive(Debug)]
pub struct Watch {
    listener: Listener,
    device: String,
}

impl Watch {
    /// Subscribes to changes of routes, of neighbours, and of this device.
    pub fn open(device: &str) -> Result<Self, Error> {
        let listener = Listener::open(netlink_sys::protocols::NETLINK_ROUTE, &GROUPS);
        Ok(Self { listener: listener.map_err(Error::io(DOING))?, device: device.to_owned() })
    }

    /// Waits until a next hop may have changed: a route, the device, or the MAC of one of these neighbours. Cancel safe.
    pub async fn changed(&mut self, neighbours: &BTreeMap<IpAddr, Option<Mac>>) -> Result<(), Error> {
        let device = self.device.as_bytes();
        loop {
            let changes = self.listener.receive(|message| change(message, device, neighbours)).await;
            if !changes.map_err(Error::io(DOING))?.is_empty() {
                return Ok(());
            }
        }
    }
}

const DOING: &str = "cannot subscribe to changes of routes and neighbours";

fn change(message: Message<'_>, device: &[u8], neighbours: &BTreeMap<IpAddr, Option<Mac>>) -> Option<Change> {
    match message.kind {
        libc::RTM_NEWLINK | libc::RTM_DELLINK => {
            let name = find(message.body.get(LINK_HEADER..)?, libc::IFLA_IFNAME)?;
            (name.strip_suffix(&[0]) == Some(device)).then_some(Change::Links)
        }
        // `rtm_protocol`: our own routes lead to Pods and Services, never to Nodes.
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
            (message.body.get(5) != Some(&ROUTE_PROTOCOL)).then_some(Change::Routes)
        }
        // The kernel reports every step of a confirmation, too. One that has failed has to be started again, once.
        libc::RTM_NEWNEIGH => {
            let neighbour = neighbour::Known::read(message.body)?;
            let before = neighbours.get(&neighbour.ip)?;
            let is_news = neighbour.mac.is_some() && neighbour.mac != *before;
            (is_news || neighbour.is_failed() && before.is_some()).then_some(Change::Neighbours)
        }
        _ => None,
    }
}
