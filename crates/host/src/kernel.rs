//! Reads and changes the kernel's state.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use nix::errno::Errno;
use types::host::{Address, Desired, Firewall, Link, Neighbour, Observed, Op, ROUTE_PROTOCOL, Route, RoutingRule};

use crate::error::Error;
use crate::ethtool::Offloads;
use crate::netlink::route::Hop;
use crate::netlink::{Netlink, Refusal, Request, address, link, neighbour, route, rule};
use crate::nft::Ruleset;
use crate::{ingress_drop, sysctl};

/// The kernel's network state in the namespace of the thread that opened it; to be used by threads in that namespace only.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) netlink: Netlink,
    netfilter: Netlink,
    /// The expected listing of the last desired nftables rules.
    expected: Option<(Firewall, Ruleset)>,
    /// The nftables generation at which our rules were last seen intact.
    intact_at: Option<u32>,
}

/// A change that failed.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failure {
    /// The change that failed.
    pub op: Op,
    /// Reason of the failure.
    #[source]
    pub error: Error,
}

impl Kernel {
    /// Opens the netlink sockets.
    pub fn open() -> Result<Self, Error> {
        let doing = "cannot open a netlink socket";
        Ok(Self {
            netlink: Netlink::route().map_err(Error::refused(doing))?,
            netfilter: Netlink::netfilter().map_err(Error::refused(doing))?,
            expected: None,
            intact_at: None,
        })
    }

    /// The actual state of the devices and sysctls that `desired` names, and of everything with our mark.
    pub fn observe(&mut self, desired: &Desired) -> Result<Observed, Error> {
        let mut observed = Observed { sysctls: Self::sysctls(desired)?, ..Observed::default() };
        for name in desired.links.keys() {
            let doing = || format!("cannot read the state of device {name}");
            let Some(device) = link::get(&mut self.netlink, name).map_err(Error::refused(doing()))? else { continue };
            let link = Link { up: device.up, mtu: Some(device.mtu), mac: device.mac };
            observed.links.insert(name.clone(), link);
            let addresses = address::list(&mut self.netlink, Some(device.index)).map_err(Error::refused(doing()))?;
            let ours = addresses.into_iter().filter(|address| address.index == device.index && !address.link_local);
            observed.addresses.extend(ours.map(|address| Address { device: name.clone(), net: address.net }));
            let neighbours = neighbour::list(&mut self.netlink, device.index).map_err(Error::refused(doing()))?;
            let named = neighbours.into_iter().map(|(ip, mac)| Neighbour { device: name.clone(), ip, mac });
            observed.neighbours.extend(named);
        }
        observed.merging = merging(&desired.unmerged)?;
        observed.routes = self.routes()?;
        observed.rules = self.rules()?;
        observed.firewall_intact = match &desired.firewall {
            Some(firewall) => self.firewall_is_intact(firewall)?,
            None => false,
        };
        Ok(observed)
    }

    /// Applies changes in their order, also after one that failed. Returns the failed ones with their errors.
    pub fn apply(&mut self, ops: &[Op]) -> Vec<Failure> {
        let mut indices = BTreeMap::new();
        let result = ops.iter().map(|op| (op, self.apply_one(op, &mut indices)));
        result.filter_map(|(op, result)| Some(Failure { op: op.clone(), error: result.err()? })).collect()
    }

    fn apply_one(&mut self, op: &Op, indices: &mut BTreeMap<String, u32>) -> Result<(), Error> {
        let doing = describe(op);
        let mut index = |kernel: &mut Self, device: &str| -> Result<u32, Error> {
            if let Some(index) = indices.get(device) {
                return Ok(*index);
            }
            let index = kernel.index(device, &doing)?;
            indices.insert(device.to_owned(), index);
            Ok(index)
        };
        let (request, done): (Request, &[Errno]) = match op {
            Op::SetLink(device, settings) => {
                index(self, device)?;
                (link::set(device, settings), &[])
            }
            Op::StopMerging(device) => {
                let stopped = Offloads::open().and_then(|offloads| offloads.stop_merging(device));
                return stopped.map_err(Error::errno(doing));
            }
            Op::SetSysctl(key, value) => return sysctl::set(key, value),
            Op::AddAddress(want) => (address::add(index(self, &want.device)?, want.net), &[Errno::EEXIST]),
            Op::RemoveAddress(old) => {
                (address::remove(index(self, &old.device)?, old.net), &[Errno::EADDRNOTAVAIL, Errno::ENODEV])
            }
            Op::PutNeighbour(want) => (neighbour::put(index(self, &want.device)?, want.ip, want.mac), &[]),
            Op::RemoveNeighbour(old) => (neighbour::remove(index(self, &old.device)?, old.ip), &[Errno::ENOENT]),
            Op::PutRoute(want) => {
                let hop = hop(want, index(self, &want.device)?);
                return self.put_route(&hop, doing);
            }
            Op::RemoveRoute(old) => {
                let index = index(self, &old.device)?;
                (hop(old, index).remove(), &[Errno::ESRCH, Errno::ENOENT])
            }
            Op::AddRule(want) => (rule::add(want), &[Errno::EEXIST]),
            Op::RemoveRule(old) => (rule::remove(old), &[Errno::ENOENT]),
            Op::ReplaceFirewall(firewall) => return self.replace_firewall(firewall),
        };
        match self.netlink.request(request) {
            Err(refusal) if !done.contains(&refusal.errno) => Err(Error::refused(doing)(refusal)),
            _ => Ok(()),
        }
    }

    fn index(&mut self, device: &str, doing: &str) -> Result<u32, Error> {
        let found = link::get(&mut self.netlink, device).map_err(Error::refused(doing))?;
        let missing = || Error::NoDevice { doing: doing.to_owned(), device: device.to_owned() };
        found.map(|device| device.index).ok_or_else(missing)
    }

    /// Adds a route, or replaces ours. A foreign route that leads the same way is marked as ours: Antrea's are not marked. Any
    /// other foreign route to the same destination is kept, and named in the error.
    fn put_route(&mut self, want: &Hop, doing: String) -> Result<(), Error> {
        match self.netlink.request(want.add()) {
            Err(Refusal { errno: Errno::EEXIST, .. }) => {}
            result => return result.map_err(Error::refused(doing)),
        }
        let there = route::list_table(&mut self.netlink, want.table, want.destination.addr());
        let there = there.map_err(Error::refused(doing.clone()))?;
        let same = there.iter().filter(|have| have.destination == want.destination);
        match same.clone().find(|have| have.protocol == ROUTE_PROTOCOL) {
            Some(have) if have == want => Ok(()),
            Some(_) => self.netlink.request(want.replace()).map_err(Error::refused(doing)),
            None if same.clone().any(|have| have.index == want.index && have.via == want.via) => {
                self.netlink.request(want.replace()).map_err(Error::refused(doing))
            }
            None => {
                let theirs = same.clone().next().map(|have| self.text(have)).unwrap_or_else(|| "another route".into());
                Err(Error::RouteTaken { destination: want.destination.to_string(), theirs })
            }
        }
    }

    fn text(&mut self, hop: &Hop) -> String {
        let device = link::get_index(&mut self.netlink, hop.index).ok().flatten();
        let device = device.map_or_else(|| hop.index.to_string(), |device| device.name);
        let via = hop.via.map(|via| format!("via {via} ")).unwrap_or_default();
        format!("`{} {via}dev {device} proto {}`", hop.destination, hop.protocol)
    }

    pub(crate) fn rules(&mut self) -> Result<BTreeSet<RoutingRule>, Error> {
        let rules = rule::list(&mut self.netlink).map_err(Error::refused("cannot list policy routing rules"))?;
        Ok(rules.into_iter().collect())
    }

    pub(crate) fn remove_device(&mut self, device: &str) -> Result<(), Error> {
        self.request_if_exists(link::delete(device), || format!("cannot remove device {device}"))
    }

    pub(crate) fn end_promiscuous_mode(&mut self, device: &str) -> Result<(), Error> {
        let doing = || format!("cannot end the promiscuous mode of device {device}");
        self.request_if_exists(link::not_promiscuous(device), doing)
    }

    /// A request about a device. One that does not exist is no error.
    fn request_if_exists(&mut self, request: Request, doing: impl FnOnce() -> String) -> Result<(), Error> {
        match self.netlink.request(request) {
            Err(refusal) if refusal.errno != Errno::ENODEV => Err(Error::refused(doing())(refusal)),
            _ => Ok(()),
        }
    }

    pub(crate) fn routes(&mut self) -> Result<BTreeSet<Route>, Error> {
        let doing = "cannot list routes";
        let hops = route::list_marked(&mut self.netlink, ROUTE_PROTOCOL).map_err(Error::refused(doing))?;
        let mut names = BTreeMap::new();
        for index in hops.iter().map(|hop| hop.index) {
            if let Entry::Vacant(unknown) = names.entry(index) {
                let device = link::get_index(&mut self.netlink, index).map_err(Error::refused(doing))?;
                unknown.insert(device.map(|device| device.name));
            }
        }
        // A route whose device was deleted meanwhile is gone, too.
        let named = |hop: Hop| names.get(&hop.index)?.clone().map(|device| named(hop, device));
        Ok(hops.into_iter().filter_map(named).collect())
    }

    fn sysctls(desired: &Desired) -> Result<BTreeMap<String, String>, Error> {
        let read = |key: &String| Ok(sysctl::get(key)?.map(|value| (key.clone(), value)));
        desired.sysctls.keys().filter_map(|key| read(key).transpose()).collect()
    }

    /// Lists our rules only if the nftables generation has changed since they were last seen intact.
    fn firewall_is_intact(&mut self, firewall: &Firewall) -> Result<bool, Error> {
        let generation = self.generation()?;
        let known = self.expected.as_ref().is_some_and(|(expected, _)| expected == firewall);
        if known && self.intact_at == Some(generation) {
            return Ok(true);
        }
        let expected = match self.expected.take().filter(|_| known) {
            Some((_, ruleset)) => ruleset,
            None => Ruleset::expected(firewall)?,
        };
        let intact = Ruleset::installed()?.as_ref() == Some(&expected);
        self.expected = Some((firewall.clone(), expected));
        self.intact_at = intact.then_some(generation);
        Ok(intact)
    }

    fn replace_firewall(&mut self, firewall: &Firewall) -> Result<(), Error> {
        self.intact_at = None;
        crate::nft::replace(firewall)
    }

    fn generation(&mut self) -> Result<u32, Error> {
        ingress_drop::generation(&mut self.netfilter).map_err(Error::refused("cannot read the nftables generation"))
    }
}

/// Those of these devices that merge received packets. A missing device does not.
fn merging(devices: &BTreeSet<String>) -> Result<BTreeSet<String>, Error> {
    if devices.is_empty() {
        return Ok(BTreeSet::new());
    }
    let offloads = Offloads::open().map_err(Error::errno("cannot open a socket for ethtool requests"))?;
    let mut merging = BTreeSet::new();
    for device in devices {
        match offloads.is_merging(device) {
            Ok(true) => _ = merging.insert(device.clone()),
            Ok(false) | Err(Errno::ENODEV) => {}
            Err(errno) => return Err(Error::errno(format!("cannot read the offloads of device {device}"))(errno)),
        }
    }
    Ok(merging)
}

fn hop(route: &Route, index: u32) -> Hop {
    Hop {
        destination: route.destination.trunc(),
        via: route.via,
        index,
        onlink: route.onlink,
        source: route.source,
        mtu: route.mtu,
        table: route.table,
        protocol: ROUTE_PROTOCOL,
    }
}

fn named(hop: Hop, device: String) -> Route {
    let Hop { destination, via, onlink, source, mtu, table, .. } = hop;
    Route { destination, via, device, onlink, source, mtu, table }
}

fn describe(op: &Op) -> String {
    match op {
        Op::SetLink(device, _) => format!("cannot configure device {device}"),
        Op::StopMerging(device) => format!("cannot turn off GRO of device {device}"),
        Op::SetSysctl(key, _) => format!("cannot set sysctl {key}"),
        Op::AddAddress(Address { device, net }) => format!("cannot add address {net} to {device}"),
        Op::RemoveAddress(Address { device, net }) => format!("cannot remove address {net} from {device}"),
        Op::PutNeighbour(Neighbour { device, ip, .. }) => format!("cannot add neighbour {ip} on {device}"),
        Op::RemoveNeighbour(Neighbour { device, ip, .. }) => format!("cannot remove neighbour {ip} on {device}"),
        Op::PutRoute(Route { destination, device, .. }) => format!("cannot add the route to {destination} on {device}"),
        Op::RemoveRoute(Route { destination, .. }) => format!("cannot remove the route to {destination}"),
        Op::AddRule(rule) => format!("cannot add policy routing rule {}", rule.priority),
        Op::RemoveRule(rule) => format!("cannot remove policy routing rule {}", rule.priority),
        Op::ReplaceFirewall(_) => "cannot replace nftables rules".into(),
    }
}
