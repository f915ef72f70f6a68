//! The next hops by which the kernel reaches other Nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use host::next_hop::{NextHop, NextHops, Watch};
use testkit::wait::{TIMEOUT, until};
use testkit::{Netns, veth_pair};
use types::Mac;

const NEAR: &str = "192.168.77.2";
const ROUTER: &str = "192.168.77.254";
const FAR: &str = "192.168.99.3";
const OTHER: &str = "172.16.0.3";
const LOST: &str = "203.0.113.7";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A Node with an uplink, a default router for some of the world, and another device. The peer has all the addresses.
fn node() -> (Netns, Netns) {
    let (node, outside) = (Netns::new().unwrap(), Netns::new().unwrap());
    veth_pair(&node, "eth0", &outside, "eth0").unwrap();
    veth_pair(&node, "eth1", &outside, "eth1").unwrap();
    for netns in [&node, &outside] {
        netns.link_up("eth0").unwrap();
        netns.link_up("eth1").unwrap();
    }
    node.add_address("eth0", "192.168.77.1/24").unwrap();
    node.add_address("eth1", "172.16.0.1/24").unwrap();
    node.ip(["route", "add", "192.168.96.0/19", "via", ROUTER]).unwrap();
    for address in [NEAR, ROUTER] {
        outside.add_address("eth0", &format!("{address}/24")).unwrap();
    }
    (node, outside)
}

fn mac_of(netns: &Netns) -> Mac {
    let link = netns.ip(["-br", "link", "show", "eth0"]).unwrap();
    link.split_whitespace().nth(2).unwrap().parse().unwrap()
}

fn find(node: &Netns, to: &[&str]) -> BTreeMap<IpAddr, NextHop> {
    let to: BTreeSet<IpAddr> = to.iter().map(|text| ip(text)).collect();
    node.run(|| NextHops::open().unwrap().find("eth0", ip("192.168.77.1"), &to).unwrap()).unwrap()
}

#[test]
fn next_hops_and_their_macs_are_those_of_the_kernel() {
    let (node, outside) = node();
    let mac = mac_of(&outside);
    let resolved = || {
        let found = find(&node, &[NEAR, FAR, OTHER, LOST, "fd00::1"]);
        let of = |to: &str| found[&ip(to)].clone();
        assert_eq!(of(OTHER), NextHop::Elsewhere("eth1".to_owned()));
        assert_eq!((of(LOST), of("fd00::1")), (NextHop::Unreachable, NextHop::Unreachable));
        let expected = [None, Some(ip(ROUTER))].map(|router| NextHop::Device { router, mac: Some(mac) });
        ([of(NEAR), of(FAR)] == expected).then_some(())
    };
    // The first call makes the kernel resolve them, and a later one has the result.
    until("the MACs of both next hops", TIMEOUT, resolved).unwrap();
    // A more specific route is followed.
    node.ip(["route", "add", FAR, "via", NEAR]).unwrap();
    let NextHop::Device { router, .. } = find(&node, &[FAR])[&ip(FAR)].clone() else { panic!("no longer on eth0") };
    assert_eq!(router, Some(ip(NEAR)));
    let missing = node.run(|| NextHops::open().unwrap().find("eth7", ip(NEAR), &BTreeSet::new())).unwrap();
    assert_eq!(missing.unwrap_err().to_string(), "cannot find the next hops of device eth7: there is no device eth7");
}

#[test]
fn changes_of_routes_and_of_the_macs_of_next_hops_are_reported_and_others_are_not() {
    let (node, outside) = node();
    let known: BTreeMap<IpAddr, Option<Mac>> = [(ip(NEAR), Some(mac_of(&outside))), (ip(ROUTER), None)].into();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut watch = node.run(|| runtime.block_on(async { Watch::open("eth0").unwrap() })).unwrap();
    let mut reported = |what: &str| {
        let changed = async { tokio::time::timeout(TIMEOUT, watch.changed(&known)).await };
        runtime.block_on(changed).unwrap_or_else(|_| panic!("{what}")).unwrap();
    };
    let neighbour = |ip: &str, mac: &str, state: &str| {
        node.ip(["neigh", "replace", ip, "lladdr", mac, "dev", "eth0", "nud", state]).unwrap();
    };
    // The first report is that of the route: the same MAC, and the neighbours of others, are no news.
    neighbour(NEAR, &mac_of(&outside).to_string(), "stale");
    neighbour("192.168.77.99", "0a:00:00:00:00:99", "reachable");
    node.ip(["route", "add", "10.10.9.0/24", "dev", "eth0", "proto", "167"]).unwrap();
    node.ip(["route", "add", "10.99.0.0/24", "dev", "eth0"]).unwrap();
    reported("a route");
    let quiet = async { tokio::time::timeout(std::time::Duration::from_millis(50), watch.changed(&known)).await };
    assert!(runtime.block_on(quiet).is_err(), "something else than the route was reported");
    let mut reported = |what: &str| {
        let changed = async { tokio::time::timeout(TIMEOUT, watch.changed(&known)).await };
        runtime.block_on(changed).unwrap_or_else(|_| panic!("{what}")).unwrap();
    };
    neighbour(ROUTER, "0a:00:00:00:00:01", "reachable");
    reported("the MAC of a next hop that had none");
    neighbour(NEAR, "0a:00:00:00:00:02", "reachable");
    reported("another MAC");
    node.ip(["neigh", "replace", NEAR, "dev", "eth0", "nud", "failed"]).unwrap();
    reported("a next hop that does not answer");
    node.ip(["link", "set", "eth0", "mtu", "1400"]).unwrap();
    reported("the device");
}
