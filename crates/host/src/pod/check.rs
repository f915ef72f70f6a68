//! Whether a cable is still as it was plugged.

use std::fmt;

use types::host::{Datapath, PodLink};

use super::plug::routes;
use crate::error::Error;
use crate::ethtool::Offloads;
use crate::netlink::link::{self, Device};
use crate::netlink::{Netlink, address, route};
use crate::netns::Netns;
use crate::sink;

/// Something about a Pod's cable that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// What it is, such as `MTU of eth0`.
    pub what: String,
    /// How it should be.
    pub want: String,
    /// How it is.
    pub have: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} should be {}, and is {}", self.what, self.want, self.have)
    }
}

/// What differs from [`attach`](super::attach)'s work; nothing where nobody has touched it. What the Pod has besides is its own.
pub fn check(pod: &PodLink) -> Result<Vec<Difference>, Error> {
    let doing = || format!("cannot look at device {}", pod.host_device);
    let netns = Netns::open(&pod.netns)?;
    let mut netlink = Netlink::route().map_err(Error::refused(doing()))?;
    let mut found = Vec::new();
    let host = link::get(&mut netlink, &pod.host_device).map_err(Error::refused(doing()))?;
    match &host {
        Some(device) => device_differences(&mut found, device, pod.mtu),
        None => differs(&mut found, format!("device {}", pod.host_device), "there", "missing"),
    }
    if pod.datapath == Datapath::Netdev && host.is_some() {
        let there = Netlink::netfilter().and_then(|mut netfilter| sink::is_there(&mut netfilter, &pod.host_device));
        let chain = format!("chain {} that keeps the kernel from the device's packets", pod.host_device);
        if !there.map_err(Error::refused(format!("cannot look at the {chain}")))? {
            differs(&mut found, chain, "there", "missing");
        }
    }
    found.extend(netns.run(|| container_end(pod, host.map(|device| device.index)))??);
    Ok(found)
}

fn container_end(pod: &PodLink, host: Option<u32>) -> Result<Vec<Difference>, Error> {
    let name = &pod.container_device;
    let doing = || format!("cannot look at device {name} in {}", pod.netns.display());
    let mut netlink = Netlink::route().map_err(Error::refused(doing()))?;
    let mut found = Vec::new();
    let Some(device) = link::get(&mut netlink, name).map_err(Error::refused(doing()))? else {
        differs(&mut found, format!("device {name} in the Pod"), "there", "missing");
        return Ok(found);
    };
    device_differences(&mut found, &device, pod.mtu);
    if device.mac != Some(pod.mac) {
        let have = device.mac.map(|mac| mac.to_string()).unwrap_or_else(|| "none".into());
        differs(&mut found, format!("Ethernet address of {name}"), pod.mac, have);
    }
    if let Some(host) = host
        && device.peer != Some(host)
    {
        differs(&mut found, format!("other end of {name}"), &pod.host_device, "another device");
    }
    let addresses = address::list(&mut netlink, Some(device.index)).map_err(Error::refused(doing()))?;
    for net in pod.addresses.iter().filter(|net| !addresses.iter().any(|have| have.net == **net)) {
        differs(&mut found, format!("address {net} of {name}"), "there", "missing");
    }
    for want in routes(pod, device.index) {
        let table = route::list_table(&mut netlink, want.table, want.destination.addr());
        let same =
            |have: &route::Hop| (have.destination, have.via, have.index) == (want.destination, want.via, want.index);
        if !table.map_err(Error::refused(doing()))?.iter().any(same) {
            let via = want.via.map(|via| format!(" via {via}")).unwrap_or_default();
            differs(&mut found, format!("route {}{via} of {name}", want.destination), "there", "missing");
        }
    }
    if pod.datapath == Datapath::Netdev {
        let on = Offloads::open().and_then(|offloads| offloads.on(name)).map_err(Error::errno(doing()))?;
        for offload in on {
            differs(&mut found, format!("offload {offload} of {name}"), "off", "on");
        }
    }
    Ok(found)
}

fn device_differences(found: &mut Vec<Difference>, device: &Device, mtu: u32) {
    if !device.up {
        differs(found, format!("state of {}", device.name), "up", "down");
    }
    if device.mtu != mtu {
        differs(found, format!("MTU of {}", device.name), mtu, device.mtu);
    }
}

fn differs(found: &mut Vec<Difference>, what: String, want: impl ToString, have: impl ToString) {
    found.push(Difference { what, want: want.to_string(), have: have.to_string() });
}
