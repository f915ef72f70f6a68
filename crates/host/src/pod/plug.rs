//! Plugging and unplugging.

use std::collections::BTreeSet;

use nix::errno::Errno;
use types::host::{Datapath, PodLink};

use crate::device::valid_name;
use crate::error::Error;
use crate::ethtool::Offloads;
use crate::netlink::link::{self, End};
use crate::netlink::route::Hop;
use crate::netlink::{Netlink, Refusal, Request, address};
use crate::netns::Netns;
use crate::{sink, sysctl};

/// How the kernel marks what was set up by hand (`RTPROT_BOOT`): routes in a Pod are the Pod's.
const BOOT: u8 = 3;

/// Plugs the cable: both ends are up, the Pod's has its addresses and routes. What was done is undone if anything fails.
///
/// `host_end` is called as soon as the end on the host can be used: a switch can take it while the Pod's end is seen to.
pub fn attach(pod: &PodLink, host_end: impl FnOnce() + Send) -> Result<(), Error> {
    valid_name(&pod.host_device)?;
    valid_name(&pod.container_device)?;
    let netns = Netns::open(&pod.netns)?;
    let mut netlink = Netlink::route().map_err(Error::refused("cannot open a netlink socket"))?;
    make(&mut netlink, pod, &netns)?;
    let plugged = set_up(&mut netlink, pod).and_then(|()| {
        host_end();
        netns.run(|| container_end(pod))?
    });
    plugged.inspect_err(|_| {
        // The first error is the one to report; whoever asks for this Pod's end will remove what could not be removed now.
        let _ = detach(&pod.host_device);
    })
}

/// Unplugs the cable, if it is there: both ends are gone, and what the kernel was told about it.
pub fn detach(host_device: &str) -> Result<(), Error> {
    let doing = || format!("cannot remove device {host_device}");
    // Whatever name somebody asks for, no device has one that is not valid.
    if valid_name(host_device).is_err() {
        return Ok(());
    }
    let mut netlink = Netlink::route().map_err(Error::refused(doing()))?;
    match netlink.request(link::delete(host_device)) {
        Ok(()) | Err(Refusal { errno: Errno::ENODEV, .. }) => {}
        Err(refusal) => return Err(Error::refused(doing())(refusal)),
    }
    let mut netfilter = Netlink::netfilter().map_err(Error::refused(doing()))?;
    sink::remove(&mut netfilter, host_device)
        .map_err(Error::refused(format!("cannot remove the chain {host_device} of nftables")))
}

/// Whether the host's end of a cable is there. A Pod whose namespace is gone has taken both ends with it.
pub fn is_plugged(host_device: &str) -> Result<bool, Error> {
    let doing = || format!("cannot look for device {host_device}");
    let mut netlink = Netlink::route().map_err(Error::refused(doing()))?;
    Ok(link::get(&mut netlink, host_device).map_err(Error::refused(doing()))?.is_some())
}

/// Unplugs all cables but these, and forgets what the kernel was told about cables that are gone without [`detach`]; gives the
/// devices' names.
pub fn collect(keep: &BTreeSet<String>) -> Result<Vec<String>, Error> {
    let doing = "cannot look for cables that nobody uses";
    let mut netfilter = Netlink::netfilter().map_err(Error::refused(doing))?;
    let mut netlink = Netlink::route().map_err(Error::refused(doing))?;
    let mut gone = Vec::new();
    let devices = link::list(&mut netlink).map_err(Error::refused(doing))?;
    for device in devices.into_iter().filter(|device| device.is_pods() && !keep.contains(&device.name)) {
        detach(&device.name)?;
        gone.push(device.name);
    }
    for device in sink::list(&mut netfilter).map_err(Error::refused(doing))? {
        if link::get(&mut netlink, &device).map_err(Error::refused(doing))?.is_none() {
            sink::remove(&mut netfilter, &device).map_err(Error::refused(doing))?;
            gone.push(device);
        }
    }
    Ok(gone)
}

fn make(netlink: &mut Netlink, pod: &PodLink, netns: &Netns) -> Result<(), Error> {
    let near = End { name: &pod.host_device, mtu: pod.mtu, mac: None };
    let far = End { name: &pod.container_device, mtu: pod.mtu, mac: Some(pod.mac) };
    let Err(refusal) = netlink.request(link::cable(&near, &far, netns.raw_fd())) else { return Ok(()) };
    let doing = || format!("cannot make the cable from {} to {}", pod.host_device, netns.path().display());
    if refusal.errno != Errno::EEXIST {
        return Err(Error::refused(doing())(refusal));
    }
    // The kernel does not say which of the two names it means.
    let on_the_host = link::get(netlink, &pod.host_device).map_err(Error::refused(doing()))?.is_some();
    let (device, place) = match on_the_host {
        true => (&pod.host_device, "on the host".to_owned()),
        false => (&pod.container_device, format!("in {}", netns.path().display())),
    };
    Err(Error::DeviceExists { device: device.clone(), place })
}

/// The end on the host.
fn set_up(netlink: &mut Netlink, pod: &PodLink) -> Result<(), Error> {
    let device = &pod.host_device;
    if pod.datapath == Datapath::Netdev {
        let sink = Netlink::netfilter().and_then(|mut netfilter| sink::add(&mut netfilter, device));
        sink.map_err(Error::refused(format!("cannot keep the kernel from taking packets from {device}")))?;
    }
    let doing = format!("cannot set device {device} up");
    carry_out(netlink, vec![Step::no_own_address(device), Step::new(link::up(device), doing)])
}

/// A request, what it does, and an answer that is as good as a yes.
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
        let doing = format!("cannot keep the kernel from giving {device} an address");
        // A kernel without IPv6 gives none anyway.
        Self { tolerated: Some(Errno::EAFNOSUPPORT), ..Self::new(link::no_own_address(device), doing) }
    }
}

fn carry_out(netlink: &mut Netlink, steps: Vec<Step>) -> Result<(), Error> {
    let requests: Vec<Request> = steps.iter().map(|step| step.request.clone()).collect();
    let results = netlink.requests(&requests).into_iter().zip(steps);
    let failed = |(result, step): (Result<(), Refusal>, Step)| {
        let refusal = result.err().filter(|refusal| Some(refusal.errno) != step.tolerated)?;
        Some(Error::refused(step.doing)(refusal))
    };
    results.into_iter().find_map(failed).map_or(Ok(()), Err)
}

/// Runs in the Pod's namespace.
fn container_end(pod: &PodLink) -> Result<(), Error> {
    let device = &pod.container_device;
    let doing = |what: &str| format!("cannot {what} of {device} in {}", pod.netns.display());
    if pod.datapath == Datapath::Netdev {
        let off = Offloads::open().and_then(|offloads| offloads.turn_off(device));
        off.map_err(Error::errno(doing("turn off the offloads")))?;
    }
    let ipv6 = pod.addresses.iter().any(|net| net.addr().is_ipv6());
    if ipv6 {
        // Runtimes turn IPv6 off in new namespaces. Addresses are given, and no router is asked.
        for (key, value) in [("disable_ipv6", "0"), ("accept_ra", "0"), ("accept_dad", "0")] {
            sysctl::set(&format!("net/ipv6/conf/{device}/{key}"), value)?;
        }
    }
    let mut netlink = Netlink::route().map_err(Error::refused(doing("open a netlink socket")))?;
    let found = link::get(&mut netlink, device).map_err(Error::refused(doing("find the number")))?;
    let index = found.ok_or_else(|| Error::NoDevice { doing: doing("find the number"), device: device.clone() })?.index;

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
    carry_out(&mut netlink, steps)
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
        // The gateway need not be in the Pod's network: its address may have the length of a host's.
        onlink: true,
        source: None,
        mtu: None,
        table: types::host::MAIN_TABLE,
        protocol: BOOT,
    })
}
