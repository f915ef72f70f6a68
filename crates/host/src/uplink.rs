//! The devices with a Node's addresses.

use std::net::IpAddr;

use ipnet::IpNet;
use types::Mac;
use types::host::{MAIN_TABLE, ROUTE_PROTOCOL};

use crate::error::Error;
use crate::netlink::{Netlink, address, link, route};

/// A device and one of its addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// Name of the device.
    pub device: String,
    /// The address with its prefix length.
    pub address: IpNet,
    /// MTU of the device.
    pub mtu: u32,
    /// MAC of the device, if it has one.
    pub mac: Option<Mac>,
    /// The kind of a virtual device, such as `bridge`.
    pub kind: Option<String>,
    /// Whether its frames are those of Ethernet.
    pub is_ethernet: bool,
}

/// Finds the device with the address `node`, in the namespace of the calling thread.
pub fn find(node: IpAddr) -> Result<Option<Uplink>, Error> {
    Ok(list(|address| address.addr() == node)?.into_iter().next())
}

/// All addresses that `wanted` accepts, each with its device, in the namespace of the calling thread.
pub fn list(wanted: impl Fn(IpNet) -> bool) -> Result<Vec<Uplink>, Error> {
    let doing = "cannot list the addresses of devices";
    let mut netlink = Netlink::route().map_err(Error::refused(doing))?;
    let mut found = Vec::new();
    for assigned in address::list(&mut netlink, None).map_err(Error::refused(doing))? {
        if !wanted(assigned.net) {
            continue;
        }
        let device = link::get_index(&mut netlink, assigned.index).map_err(Error::refused(doing))?;
        found.extend(device.map(|link| Uplink {
            device: link.name,
            address: assigned.net,
            mtu: link.mtu,
            mac: link.mac,
            kind: link.kind,
            is_ethernet: link.is_ethernet,
        }));
    }
    Ok(found)
}

/// The next hops of default routes except ours, in the namespace of the calling thread. Multipath routes are ignored.
pub fn routers() -> Result<Vec<IpAddr>, Error> {
    let doing = "cannot list the default routes";
    let mut netlink = Netlink::route().map_err(Error::refused(doing))?;
    let mut routers = Vec::new();
    for family in [IpAddr::V4([0; 4].into()), IpAddr::V6([0; 16].into())] {
        let routes = route::list_table(&mut netlink, MAIN_TABLE, family).map_err(Error::refused(doing))?;
        let default = routes.into_iter().filter(|hop| hop.destination.prefix_len() == 0);
        routers.extend(default.filter(|hop| hop.protocol != ROUTE_PROTOCOL).filter_map(|hop| hop.via));
    }
    routers.sort_unstable();
    routers.dedup();
    Ok(routers)
}
