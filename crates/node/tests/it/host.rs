//! Desired state of the host.

use node::{Change, Event, Source};
use pipeline::model::Mode;
use types::host::{NodePort, Route};

use crate::fixture::*;

/// Peer `n2` in this Node's subnet, peer `n3` beyond a router.
fn routes(mode: Mode) -> Vec<String> {
    let mut brain = synced(mode);
    brain.handle(Event::Node(Change::Set(node_with("n2", "192.168.77.2", &["10.10.2.0/24".to_owned()]))));
    brain.handle(Event::Node(Change::Set(node_with("n3", "192.168.78.3", &["10.10.3.0/24".to_owned()]))));
    let written = |route: &Route| match route.via {
        Some(via) if route.onlink => format!("{} via {via} dev {} onlink", route.destination, route.device),
        Some(via) => format!("{} via {via} dev {}", route.destination, route.device),
        None => format!("{} dev {}", route.destination, route.device),
    };
    brain.host().routes.iter().filter(|route| !route.destination.addr().is_ipv6()).map(written).collect()
}

#[test]
fn each_traffic_mode_has_its_routes() {
    let services = "169.254.0.253/32 dev antrea-gw0";
    let tunnelled = |n: u8| format!("10.10.{n}.0/24 via 10.10.{n}.1 dev antrea-gw0 onlink");
    let direct = "10.10.2.0/24 via 192.168.77.2 dev eth0";
    assert_eq!(routes(Mode::Encap), [&tunnelled(2), &tunnelled(3), services]);
    assert_eq!(routes(Mode::Hybrid), [direct, &tunnelled(3), services]);
    assert_eq!(routes(Mode::NoEncap), [direct, services], "the router has the route to n3");
}

#[test]
fn the_firewall_is_not_replaced_before_the_initial_sync() {
    let mut brain = Agent::new(own(Mode::Encap));
    for source in [Source::Interfaces, Source::Services, Source::Nodes] {
        brain.handle(Event::Synced(source));
        assert_eq!(brain.host().firewall, None, "with {source:?}");
    }
    brain.handle(Event::Synced(Source::EndpointSlices));
    let firewall = brain.host().firewall.unwrap();
    assert_eq!(firewall.masquerade, firewall.cluster);
}

#[test]
fn services_are_reached_from_the_host() {
    let mut brain = synced(Mode::Encap);
    brain.handle(set_service(service(1, 30001)));
    brain.handle(set_service(service(9, 0)));
    let host = brain.host();
    let destinations: Vec<String> = host.routes.iter().map(|route| route.destination.to_string()).collect();
    assert!(destinations.contains(&"10.96.0.0/28".to_owned()), "one route for all: {destinations:?}");
    let node_port = |ip: &str| NodePort { ip: ip.parse().unwrap(), protocol: types::meta::Protocol::Tcp, port: 30001 };
    let expected = [node_port("127.0.0.1"), node_port("192.168.77.1")];
    assert_eq!(host.firewall.unwrap().node_ports, expected.into());
}

#[test]
fn every_change_of_the_host_changes_its_version() {
    let mut brain = synced(Mode::Encap);
    let mut last = (brain.host_version(), brain.host());
    let events = [
        Event::Node(Change::Set(node(2))),
        Event::Node(Change::Set(node(2))),
        set_service(service(1, 30001)),
        Event::EndpointSlice(Change::Set(slice(1, &[5]))),
        set_service(service(1, 30002)),
        attached(interface(5)),
        Event::Service(Change::Gone(name("s1"))),
    ];
    for event in events {
        brain.handle(event.clone());
        let now = (brain.host_version(), brain.host());
        assert_eq!(now.0 != last.0, now.1 != last.1, "{event:?}");
        last = now;
    }
}
