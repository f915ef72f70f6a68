//! Compares a Pod's veth with its description.

use std::fmt;

use types::host::PodLink;
use types::network::Datapath;

use super::attach::routes;
use crate::error::Error;
use crate::ethtool::Offloads;
use crate::ingress_drop;
use crate::netlink::link::{self, Device};
use crate::netlink::{Netlink, address, route};
use crate::netns::Netns;

/// A difference between a Pod's veth and its description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The property, such as `MTU of eth0`.
    pub what: String,
    /// Expected value of the property.
    pub want: String,
    /// Actual value of the property.
    pub have: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, found {}", self.what, self.want, self.have)
    }
}

/// The differences from the result of [`attach`](super::attach()). Additional addresses and routes are the Pod's own.
pub fn check(pod: &PodLink) -> Result<Vec<Difference>, Error> {
    let doing = || format!("cannot read the state of device {}", pod.host_device);
    let netns = Netns::open(&pod.netns)?;
    let mut netlink = Netlink::route().map_err(Error::refused(doing()))?;
    let mut found = Vec::new();
    let host = link::get(&mut netlink, &pod.host_device).map_err(Error::refused(doing()))?;
    match &host {
        Some(device) => device_differences(&mut found, device, pod.mtu),
        None => differs(&mut found, format!("device {}", pod.host_device), "present", "missing"),
    }
    if pod.datapath == Datapath::Netdev && host.is_some() {
        let there =
            Netlink::netfilter().and_then(|mut netfilter| ingress_drop::exists(&mut netfilter, &pod.host_device));
        let chain = format!("nftables ingress chain {}", pod.host_device);
        if !there.map_err(Error::refused(format!("cannot read the {chain}")))? {
            differs(&mut found, chain, "present", "missing");
        }
    }
    found.extend(netns.run(|| container_end(pod, host.map(|device| device.index)))??);
    Ok(found)
}

fn container_end(pod: &PodLink, host: Option<u32>) -> Result<Vec<Difference>, Error> {
    let name = &pod.container_device;
    let doing = || format!("cannot read the state of device {name} in {}", pod.netns.display());
    let mut netlink = Netlink::route().map_err(Error::refused(doing()))?;
    let mut found = Vec::new();
    let Some(device) = link::get(&mut netlink, name).map_err(Error::refused(doing()))? else {
        differs(&mut found, format!("device {name} in the Pod"), "present", "missing");
        return Ok(found);
    };
    device_differences(&mut found, &device, pod.mtu);
    if device.mac != Some(pod.mac) {
        let have = device.mac.map(|mac| mac.to_string()).unwrap_or_else(|| "none".into());
        differs(&mut found, format!("MAC of {name}"), pod.mac, have);
    }
    if let Some(host) = host
        && device.peer != Some(host)
    {
        differs(&mut found, format!("veth peer of {name}"), &pod.host_device, "another device");
    }
    let addresses = address::list(&mut netlink, Some(device.index)).map_err(Error::refused(doing()))?;
    for net in pod.addresses.iter().filter(|net| !addresses.iter().any(|have| have.net == **net)) {
        differs(&mut found, format!("address {net} of {name}"), "present", "missing");
    }
    for want in routes(pod, device.index) {
        let table = route::list_table(&mut netlink, want.table, want.destination.addr());
        let same =
            |have: &route::Hop| (have.destination, have.via, have.index) == (want.destination, want.via, want.index);
        if !table.map_err(Error::refused(doing()))?.iter().any(same) {
            let via = want.via.map(|via| format!(" via {via}")).unwrap_or_default();
            differs(&mut found, format!("route {}{via} of {name}", want.destination), "present", "missing");
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
