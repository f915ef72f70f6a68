//! The devices that a Node is reached by.

use std::net::IpAddr;

use ipnet::IpNet;
use types::Mac;

use crate::error::Error;
use crate::netlink::{Netlink, address, link};

/// A device that has an address, of which it may have more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// Its name.
    pub device: String,
    /// The address, with the length of its network's prefix.
    pub address: IpNet,
    /// The largest packet.
    pub mtu: u32,
    /// Its Ethernet address, if it has one.
    pub mac: Option<Mac>,
}

/// Finds the device that has the address `node`, in the namespace of the calling thread; nothing when no device has.
pub fn find(node: IpAddr) -> Result<Option<Uplink>, Error> {
    Ok(list(|address| address.addr() == node)?.into_iter().next())
}

/// All addresses that are wanted, each with its device, in the namespace of the calling thread.
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
        }));
    }
    Ok(found)
}
