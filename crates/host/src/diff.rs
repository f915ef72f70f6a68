//! Changes that make the kernel's state equal to the desired state. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use types::host::{Address, Desired, Link, MAIN_TABLE, Neighbour, Observed, Op, Route};

/// The changes that turn `observed` into `desired`, ordered by dependency and so that as few packets as possible are
/// misrouted in between.
///
/// Stale objects are removed only if `sweep` is set, which requires the initial sync of every source of `desired`. The
/// exception are routes to addresses in [`Desired::clear`]. nftables rules come before everything that they protect. A missing
/// device only gets its `SetLink`.
pub fn diff(desired: &Desired, observed: &Observed, sweep: bool) -> Vec<Op> {
    let there = |device: &str| observed.links.contains_key(device) || !desired.links.contains_key(device);
    let stale = stale_addresses(desired, observed, sweep);
    // With a device's last address the kernel drops its routes and neighbours, with the first of a subnet the others of the subnet.
    let disturbed: BTreeSet<&str> = stale.iter().map(|address| address.device.as_str()).collect();

    let routes = wanted_routes(desired);
    let unwanted = |route: &&Route| !routes.contains_key(&(route.table, route.destination));
    let forbidden =
        |route: &&Route| route.table == MAIN_TABLE && desired.clear.iter().any(|ip| route.destination.contains(ip));
    let (poisoned, stale_routes): (Vec<&Route>, Vec<&Route>) =
        observed.routes.iter().filter(unwanted).partition(forbidden);

    let mut ops = Vec::new();
    if let Some(firewall) = desired.firewall.as_ref().filter(|_| !observed.firewall_intact) {
        ops.push(Op::ReplaceFirewall(Box::new(firewall.clone())));
    }
    ops.extend(sysctls(desired, observed).map(|(key, value)| Op::SetSysctl(key, value)));
    ops.extend(links(desired, observed).map(|(device, link)| Op::SetLink(device, link)));
    ops.extend(desired.unmerged.intersection(&observed.merging).cloned().map(Op::StopMerging));
    ops.extend(stale.iter().cloned().cloned().map(Op::RemoveAddress));
    let missing = |address: &&Address| !observed.addresses.contains(*address) || disturbed.contains(&*address.device);
    let addresses = desired.addresses.iter().filter(|address| there(&address.device));
    ops.extend(addresses.filter(missing).cloned().map(Op::AddAddress));
    let neighbours = wanted_neighbours(desired);
    let unknown = |have: &&&Neighbour| !observed.neighbours.contains(**have) || disturbed.contains(&*have.device);
    let reachable = neighbours.values().filter(|neighbour| there(&neighbour.device));
    ops.extend(reachable.filter(unknown).map(|neighbour| Op::PutNeighbour((*neighbour).clone())));
    let different = |route: &&Route| !observed.routes.contains(*route) || disturbed.contains(&*route.device);
    let routable = routes.values().filter(|route| there(&route.device));
    ops.extend(routable.filter(different).cloned().map(Op::PutRoute));
    ops.extend(poisoned.into_iter().cloned().map(Op::RemoveRoute));
    ops.extend(desired.rules.difference(&observed.rules).cloned().map(Op::AddRule));
    if sweep {
        ops.extend(observed.rules.difference(&desired.rules).cloned().map(Op::RemoveRule));
        ops.extend(stale_routes.into_iter().cloned().map(Op::RemoveRoute));
        let forgotten = |neighbour: &&Neighbour| !neighbours.contains_key(&(neighbour.device.as_str(), neighbour.ip));
        ops.extend(observed.neighbours.iter().filter(forgotten).cloned().map(Op::RemoveNeighbour));
    }
    ops
}

fn sysctls<'a>(desired: &'a Desired, observed: &'a Observed) -> impl Iterator<Item = (String, String)> + 'a {
    // Sysctls of a device exist only while it does.
    let waits = |key: &str| {
        let absent = |device: &&String| !observed.links.contains_key(*device);
        desired.links.keys().filter(absent).any(|device| key.split('/').any(|part| part == device))
    };
    let all = desired.sysctls.iter().filter(move |(key, _)| !waits(key));
    all.filter(|(key, value)| observed.sysctls.get(*key) != Some(*value))
        .map(|(key, value)| (key.clone(), value.clone()))
}

fn links<'a>(desired: &'a Desired, observed: &'a Observed) -> impl Iterator<Item = (String, Link)> + 'a {
    desired.links.iter().filter_map(|(device, want)| {
        let Some(have) = observed.links.get(device) else { return Some((device.clone(), want.clone())) };
        // Sets only what differs: even setting the same MAC again makes the kernel notify all neighbours.
        let change = Link {
            up: want.up,
            mtu: want.mtu.filter(|mtu| have.mtu != Some(*mtu)),
            mac: want.mac.filter(|mac| have.mac != Some(*mac)),
        };
        let differs = change.up != have.up || change.mtu.is_some() || change.mac.is_some();
        differs.then(|| (device.clone(), change))
    })
}

fn stale_addresses<'a>(desired: &'a Desired, observed: &'a Observed, sweep: bool) -> Vec<&'a Address> {
    observed.addresses.difference(&desired.addresses).filter(|_| sweep).collect()
}

fn wanted_neighbours(desired: &Desired) -> BTreeMap<(&str, IpAddr), &Neighbour> {
    desired.neighbours.iter().map(|neighbour| ((neighbour.device.as_str(), neighbour.ip), neighbour)).collect()
}

/// Desired routes by the kernel's key, with destinations as the kernel writes them: host bits cleared.
fn wanted_routes(desired: &Desired) -> BTreeMap<(u32, IpNet), Route> {
    let canonical = |route: &Route| Route { destination: route.destination.trunc(), ..route.clone() };
    desired.routes.iter().map(canonical).map(|route| ((route.table, route.destination), route)).collect()
}

#[cfg(test)]
mod tests;
