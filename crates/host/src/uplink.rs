//! The device that a Node is reached by.

use std::net::IpAddr;

use ipnet::IpNet;
use types::Mac;

use crate::error::Error;
use crate::netlink::{Netlink, address, link};

/// The device that has the Node's address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uplink {
    /// Its name.
    pub device: String,
    /// The Node's address, with the length of its network's prefix.
    pub address: IpNet,
    /// The largest packet.
    pub mtu: u32,
    /// Its Ethernet address, if it has one.
    pub mac: Option<Mac>,
}

/// Finds the device that has the address `node`, in the namespace of the calling thread; nothing when no device has.
pub fn find(node: IpAddr) -> Result<Option<Uplink>, Error> {
    let doing = || format!("cannot find the device with the address {node}");
    let mut netlink = Netlink::route().map_err(Error::refused(doing()))?;
    let all = address::list(&mut netlink, None).map_err(Error::refused(doing()))?;
    let Some(assigned) = all.into_iter().find(|assigned| assigned.net.addr() == node) else { return Ok(None) };
    let device = link::get_index(&mut netlink, assigned.index).map_err(Error::refused(doing()))?;
    Ok(device.map(|device| Uplink { device: device.name, address: assigned.net, mtu: device.mtu, mac: device.mac }))
}
