//! Tunnels of the userspace datapath: desired state, and the changes of the switch's routes and neighbours.

use std::collections::BTreeMap;
use std::net::IpAddr;

use node::database::TRANSPORT_BRIDGE;
use node::{Brain, Change, Event, Own, PathChange, Problem, Source, Time, TunnelPath, path_changes};
use openflow::port::Port;
use pipeline::TransportBridge;
use pipeline::model::Mode;
use types::network::TunnelPackets;
use types::{Mac, ObjectName};

use crate::fixture::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn with_bridge(mode: Mode) -> Own {
    let address = "192.168.77.1".parse().unwrap();
    let bridge = TransportBridge { uplink: Port(1), address, tunnel: TunnelPackets::Udp(6081) };
    Own { transport_bridge: Some(bridge), ..own(mode) }
}

fn step(brain: &mut Brain, event: Event) {
    brain.step(Time::ZERO, [event]);
}

#[test]
fn the_ends_of_tunnels_follow_the_nodes_that_are_reached_by_one() {
    let mut brain = Brain::new(with_bridge(Mode::Encap));
    assert!(!brain.tunnels().unwrap().is_complete, "before the initial sync nothing is stale");
    for number in [1, 2, 3] {
        step(&mut brain, Event::Node(Change::Set(node(number))));
    }
    let before = brain.tunnel_version();
    step(&mut brain, Event::Synced(Source::Nodes));
    assert!(brain.tunnel_version() > before);
    let tunnels = brain.tunnels().unwrap();
    assert_eq!(tunnels.peers, [ip("192.168.77.2"), ip("192.168.77.3")].into());
    assert_eq!((tunnels.device.as_str(), tunnels.source), ("eth0", ip("192.168.77.1")));
    assert!(tunnels.is_complete && tunnels.flows.len() == 5);

    let before = brain.tunnel_version();
    let gone = ObjectName { namespace: String::new(), name: "n2".to_owned() };
    step(&mut brain, Event::Node(Change::Gone(gone)));
    assert!(brain.tunnel_version() > before);
    assert_eq!(brain.tunnels().unwrap().peers, [ip("192.168.77.3")].into());

    // In hybrid mode, Nodes of the same subnet are routed.
    let mut brain = Brain::new(with_bridge(Mode::Hybrid));
    step(&mut brain, Event::Node(Change::Set(node(2))));
    step(&mut brain, Event::Synced(Source::Nodes));
    assert_eq!(brain.tunnels().unwrap().peers, [].into());
}

#[test]
fn the_host_has_what_the_transport_bridge_needs_only_with_it() {
    let brain = Brain::new(with_bridge(Mode::Encap));
    let desired = brain.host();
    assert!(desired.links[TRANSPORT_BRIDGE].up);
    assert!(desired.addresses.iter().any(|address| address.device == TRANSPORT_BRIDGE));
    assert_eq!(desired.unmerged, ["eth0".to_owned()].into());
    let brain = Brain::new(own(Mode::Encap));
    assert_eq!(brain.tunnels(), None);
    assert!(!brain.host().links.contains_key(TRANSPORT_BRIDGE) && brain.host().unmerged.is_empty());
}

#[test]
fn an_unusable_uplink_is_a_problem() {
    let problem = "transport interface br0 is a device of type bridge".to_owned();
    let brain = Brain::new(Own { tunnel_problem: Some(problem.clone()), ..own(Mode::Encap) });
    assert_eq!(brain.problems(), [Problem::Tunnels(problem)]);
}

#[test]
fn routes_and_neighbours_of_the_switch_change_as_little_as_possible() {
    let (near, far, router, gone) = (ip("192.168.1.2"), ip("192.168.2.3"), ip("192.168.1.1"), ip("192.168.1.9"));
    let (mac, other) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    let path = |router, mac| TunnelPath { router, mac };
    let paths: BTreeMap<IpAddr, TunnelPath> =
        [(near, path(None, Some(mac))), (far, path(Some(router), Some(other)))].into();
    let routes = [(near, None), (far, Some(router))].into();
    let neighbours = [(near, mac), (router, other)].into();
    assert_eq!(path_changes(&paths, true, &routes, &neighbours), []);
    // A switch that was restarted knows nothing; neighbours come before the routes that need them.
    let set = |ip, mac| PathChange::SetNeighbour { ip, mac };
    let put = |to, router| PathChange::PutRoute { to, router };
    let all = [set(router, other), set(near, mac), put(near, None), put(far, Some(router))];
    assert_eq!(path_changes(&paths, true, &BTreeMap::new(), &BTreeMap::new()), all);
    // Another MAC, another router.
    assert_eq!(path_changes(&paths, true, &routes, &[(near, other), (router, other)].into()), [set(near, mac)]);
    let moved = [(near, None), (far, Some(gone))].into();
    assert_eq!(path_changes(&paths, true, &moved, &neighbours), [put(far, Some(router))]);
    // A route without a Node is removed, once all Nodes are known.
    let more = [(near, None), (far, Some(router)), (gone, None)].into();
    assert_eq!(path_changes(&paths, false, &more, &neighbours), []);
    assert_eq!(path_changes(&paths, true, &more, &neighbours), [PathChange::RemoveRoute { to: gone }]);
    // What the kernel has not resolved stays as it is.
    let unresolved = [(near, path(None, None))].into();
    assert_eq!(path_changes(&unresolved, false, &routes, &neighbours), []);
}
