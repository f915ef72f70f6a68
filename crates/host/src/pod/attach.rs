//! Attaching and detaching a Pod's veth.

use std::collections::BTreeSet;

use nix::errno::Errno;
use types::host::PodLink;
use types::network::Datapath;

use crate::device::valid_name;
use crate::error::Error;
use crate::ethtool::Offloads;
use crate::netlink::link::{self, End};
use crate::netlink::route::Hop;
use crate::netlink::{Netlink, Refusal, Request, address};
use crate::netns::Netns;
use crate::{ingress_drop, sysctl};

/// The protocol number of routes that were added by hand (`RTPROT_BOOT`): routes in a Pod belong to the Pod.
const BOOT: u8 = 3;

/// Creates the veth pair with both ends up, and configures addresses and routes of the Pod's end. Undoes everything on an error.
///
/// `host_end` is called as soon as the host end can be used: the switch can add it while the Pod's end is being configured.
pub fn attach(pod: &PodLink, host_end: impl FnOnce() + Send) -> Result<(), Error> {
    valid_name(&pod.host_device)?;
    valid_name(&pod.container_device)?;
    let netns = Netns::open(&pod.netns)?;
    let mut netlink = Netlink::route().map_err(Error::refused("cannot open a netlink socket"))?;
    make(&mut netlink, pod, &netns)?;
    let attached = set_up(&mut netlink, pod).and_then(|()| {
        host_end();
        netns.run(|| container_end(pod))?
    });
    attached.inspect_err(|_| {
        // Report the first error; CNI DEL or `collect` removes what cannot be removed now.
        let _ = detach(&pod.host_device);
    })
}

/// Removes the veth pair and its nftables chain, if they exist.
pub fn detach(host_device: &str) -> Result<(), Error> {
    let doing = || format!("cannot remove device {host_device}");
    // No device has an invalid name, so there is nothing to remove.
    if valid_name(host_device).is_err() {
        return Ok(());
    }
    let mut netlink = Netlink::route().map_err(Error::refused(doing()))?;
    match netlink.request(link::delete(host_device)) {
        Ok(()) | Err(Refusal { errno: Errno::ENODEV, .. }) => {}
        Err(refusal) => return Err(Error::refused(doing())(refusal)),
    }
    let mut netfilter = Netlink::netfilter().map_err(Error::refused(doing()))?;
    ingress_drop::remove(&mut netfilter, host_device)
        .map_err(Error::refused(format!("cannot remove the nftables ingress chain {host_device}")))
}

/// Makes a veth that another program has attached one of ours: marks its host end, and on the userspace datapath hides its packets
/// from the kernel.
pub fn adopt(host_device: &str, datapath: Datapath) -> Result<(), Error> {
    valid_name(host_device)?;
    let mut netlink = Netlink::route().map_err(Error::refused("cannot open a netlink socket"))?;
    hide(host_device, datapath)?;
    let mark = Step::new(link::mark_as_pod(host_device), format!("cannot mark device {host_device}"));
    send_all(&mut netlink, vec![Step::no_own_address(host_device), mark])
}

/// Whether the host end of a veth exists. When a Pod's namespace is deleted, both ends disappear.
pub fn is_plugged(host_device: &str) -> Result<bool, Error> {
    let doing = || format!("cannot look up device {host_device}");
    let mut netlink = Netlink::route().map_err(Error::refused(doing()))?;
    Ok(link::get(&mut netlink, host_device).map_err(Error::refused(doing()))?.is_some())
}

/// Removes all Pod veths except these, and nftables chains of veths that disappeared without [`detach`]; returns the names of
/// the devices.
pub fn collect(keep: &BTreeSet<String>) -> Result<Vec<String>, Error> {
    let doing = "cannot list stale Pod veths";
    let mut netfilter = Netlink::netfilter().map_err(Error::refused(doing))?;
    let mut netlink = Netlink::route().map_err(Error::refused(doing))?;
    let mut gone = Vec::new();
    let devices = link::list(&mut netlink).map_err(Error::refused(doing))?;
    for device in devices.into_iter().filter(|device| device.is_pod_veth() && !keep.contains(&device.name)) {
        detach(&device.name)?;
        gone.push(device.name);
    }
    for device in ingress_drop::list(&mut netfilter).map_err(Error::refused(doing))? {
        if link::get(&mut netlink, &device).map_err(Error::refused(doing))?.is_none() {
            ingress_drop::remove(&mut netfilter, &device).map_err(Error::refused(doing))?;
            gone.push(device);
        }
    }
    Ok(gone)
}

fn make(netlink: &mut Netlink, pod: &PodLink, netns: &Netns) -> Result<(), Error> {
    let near = End { name: &pod.host_device, mtu: pod.mtu, mac: None };
    let far = End { name: &pod.container_device, mtu: pod.mtu, mac: Some(pod.mac) };
    let Err(refusal) = netlink.request(link::veth(&near, &far, netns.raw_fd())) else { return Ok(()) };
    let doing = || format!("cannot create the veth pair from {} to {}", pod.host_device, netns.path().display());
    if refusal.errno != Errno::EEXIST {
        return Err(Error::refused(doing())(refusal));
    }
    // The kernel does not report which of the two names exists.
    let on_the_host = link::get(netlink, &pod.host_device).map_err(Error::refused(doing()))?.is_some();
    let (device, place) = match on_the_host {
        true => (&pod.host_device, "on the host".to_owned()),
        false => (&pod.container_device, format!("in {}", netns.path().display())),
    };
    Err(Error::DeviceExists { device: device.clone(), place })
}

/// Configures the host end.
fn set_up(netlink: &mut Netlink, pod: &PodLink) -> Result<(), Error> {
    let device = &pod.host_device;
    hide(device, pod.datapath)?;
    let doing = format!("cannot set device {device} up");
    send_all(netlink, vec![Step::no_own_address(device), Step::new(link::up(device), doing)])
}

/// Hides the packets of a Pod from the kernel, if the userspace datapath reads them.
fn hide(device: &str, datapath: Datapath) -> Result<(), Error> {
    if datapath == Datapath::System {
        return Ok(());
    }
    let added = Netlink::netfilter().and_then(|mut netfilter| ingress_drop::add(&mut netfilter, device));
    added.map_err(Error::refused(format!("cannot add the nftables ingress chain {device}")))
}

/// A request, its description for errors, and an error that counts as success.
struct Step {
    request: Request,
    doing: String,
    tolerated: Option<Errno>,
}

impl Step {
    fn new(request: Request, doing: String) -> Self {
        Self { request, doing, tolerated: None }
    }

    fn no_own_address(device: &str) -> Self {
        let doing = format!("cannot turn off IPv6 address generation of {device}");
        // A kernel without IPv6 generates no address.
        Self { tolerated: Some(Errno::EAFNOSUPPORT), ..Self::new(link::no_own_address(device), doing) }
    }
}

fn send_all(netlink: &mut Netlink, steps: Vec<Step>) -> Result<(), Error> {
    let requests: Vec<Request> = steps.iter().map(|step| step.request.clone()).collect();
    let results = netlink.requests(&requests).into_iter().zip(steps);
    let failed = |(result, step): (Result<(), Refusal>, Step)| {
        let refusal = result.err().filter(|refusal| Some(refusal.errno) != step.tolerated)?;
        Some(Error::refused(step.doing)(refusal))
    };
    results.into_iter().find_map(failed).map_or(Ok(()), Err)
}

/// Configures the Pod's end, from inside the Pod's namespace.
fn container_end(pod: &PodLink) -> Result<(), Error> {
    let device = &pod.container_device;
    let doing = |what: &str| format!("cannot {what} of {device} in {}", pod.netns.display());
    if pod.datapath == Datapath::Netdev {
        let off = Offloads::open().and_then(|offloads| offloads.turn_off(device));
        off.map_err(Error::errno(doing("turn off the offloads")))?;
    }
    let ipv6 = pod.addresses.iter().any(|net| net.addr().is_ipv6());
    if ipv6 {
        // Runtimes turn IPv6 off in new namespaces. Addresses are static, without router advertisements.
        for (key, value) in [("disable_ipv6", "0"), ("accept_ra", "0"), ("accept_dad", "0")] {
            sysctl::set(&format!("net/ipv6/conf/{device}/{key}"), value)?;
        }
    }
    let mut netlink = Netlink::route().map_err(Error::refused(doing("open a netlink socket")))?;
    let found = link::get(&mut netlink, device).map_err(Error::refused(doing("find the index")))?;
    let index = found.ok_or_else(|| Error::NoDevice { doing: doing("find the index"), device: device.clone() })?.index;

    let mut steps = Vec::new();
    if !ipv6 {
        steps.push(Step::no_own_address(device));
    }
    steps.push(Step::new(link::up(device), doing("set the state")));
    let addresses = pod.addresses.iter();
    steps.extend(addresses.map(|net| Step::new(address::add(index, *net), doing(&format!("add the address {net}")))));
    steps.extend(routes(pod, index).map(|hop| {
        let via = hop.via.map(|via| format!(" via {via}")).unwrap_or_default();
        Step::new(hop.add(), doing(&format!("add the route {}{via}", hop.destination)))
    }));
    send_all(&mut netlink, steps)
}

/// The routes of a Pod: default routes first.
pub(super) fn routes(pod: &PodLink, index: u32) -> impl Iterator<Item = Hop> {
    let defaults = pod.gateways.iter().filter_map(|via| {
        let any = ipnet::IpNet::new(address::any(*via), 0).ok()?;
        Some((any, *via))
    });
    let others = pod.routes.iter().map(|route| (route.destination.trunc(), route.via));
    defaults.chain(others).map(move |(destination, via)| Hop {
        destination,
        via: Some(via),
        index,
        // The gateway need not be in the Pod's subnet: the Pod's address may have a host prefix.
        onlink: true,
        source: None,
        mtu: None,
        table: types::host::MAIN_TABLE,
        protocol: BOOT,
    })
}
