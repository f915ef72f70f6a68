//! Load balancer addresses with `loadBalancerSourceRanges`.

use std::net::IpAddr;

use super::{BY_EXTERNAL_IP, EXTERNAL_IP};
use crate::cluster::Service;
use crate::packets::frame::Packet;
use crate::packets::frame::Step::Syn;
use crate::packets::objects::{elsewhere, local};
use crate::packets::world::{A, B, HOST, NODE, OUTSIDE, REMOTE, World, at, from_host, to_gateway};

/// The Service with these source ranges.
fn only_for(mut service: Service, ranges: &[&str]) -> Service {
    let ranges: std::collections::BTreeSet<_> = ranges.iter().map(|range| range.parse().unwrap()).collect();
    service.frontends.iter_mut().for_each(|frontend| frontend.frontend.clients = Some(ranges.clone()));
    service
}

fn balanced() -> Service {
    Service::of(BY_EXTERNAL_IP, 80, &[local(B)])
}

/// Whether an external client reaches an endpoint.
fn outside_is_served(w: &mut World, client: IpAddr, port: u16) -> bool {
    let came = w.send(HOST.port, from_host(Packet::tcp(at(client, port), at(EXTERNAL_IP, 80), Syn)));
    w.switch.settle();
    came.iter().any(|(port, _)| *port == B.port)
}

fn pod_is_served(w: &mut World, port: u16) -> bool {
    !w.send(A.port, to_gateway(A, Packet::tcp(A.at(port), at(EXTERNAL_IP, 80), Syn))).is_empty()
}

#[test]
fn source_ranges_apply_to_clients_in_the_cluster_too() {
    let other = IpAddr::from([203, 0, 114, 7]);
    // Nested ranges are allowed.
    let mut w = World::with(|c| c.services.push(only_for(balanced(), &["203.0.113.0/24", "203.0.113.7/32"])));
    assert!(outside_is_served(&mut w, OUTSIDE, 50000));
    assert!(!outside_is_served(&mut w, other, 50000));
    assert!(!pod_is_served(&mut w, 40000));
    w.change(|c| c.services[0] = only_for(balanced(), &["10.10.0.0/16"]));
    assert!(!outside_is_served(&mut w, OUTSIDE, 50001));
    assert!(pod_is_served(&mut w, 40001));
    w.change(|c| c.services[0] = only_for(balanced(), &[]));
    assert!(!outside_is_served(&mut w, OUTSIDE, 50002));
    assert!(!pod_is_served(&mut w, 40002));
}

#[test]
fn a_learned_client_is_dropped_when_the_ranges_exclude_it() {
    let with_affinity = |ranges: &[&str]| only_for(balanced().with_affinity(300), ranges);
    let mut w = World::with(|c| c.services.push(with_affinity(&["203.0.113.0/24"])));
    for port in 50000..50003 {
        assert!(outside_is_served(&mut w, OUTSIDE, port), "{port}");
    }
    w.change(|c| c.services[0] = with_affinity(&["192.0.2.0/24"]));
    assert!(!outside_is_served(&mut w, OUTSIDE, 50003));
    w.change(|c| c.services[0] = with_affinity(&["203.0.113.0/24", "192.0.2.0/24"]));
    assert!(outside_is_served(&mut w, OUTSIDE, 50004));
}

#[test]
fn source_ranges_restrict_clients_that_policy_local_does_not() {
    let service = |ranges| only_for(Service::of(BY_EXTERNAL_IP, 80, &[elsewhere(REMOTE.ip)]).local_only(&[]), ranges);
    let from_node = |w: &mut World, port| {
        !w.send(HOST.port, from_host(Packet::tcp(at(NODE, port), at(EXTERNAL_IP, 80), Syn))).is_empty()
    };
    let mut w = World::with(|c| c.services.push(service(&["192.168.77.0/24"])));
    assert_eq!((pod_is_served(&mut w, 40000), from_node(&mut w, 41000)), (false, true));
    w.change(|c| c.services[0] = service(&["10.10.0.0/16"]));
    assert_eq!((pod_is_served(&mut w, 40001), from_node(&mut w, 41001)), (true, false));
}

#[test]
fn ranges_with_the_nodes_address_admit_its_packets_from_the_gateway_address() {
    let from_node = |w: &mut World, own: IpAddr, port| {
        let came = w.send(HOST.port, from_host(Packet::tcp(at(own, port), at(EXTERNAL_IP, 80), Syn)));
        w.switch.settle();
        !came.is_empty()
    };
    let policy_local = || Service::of(BY_EXTERNAL_IP, 80, &[elsewhere(REMOTE.ip)]).local_only(&[]);
    for service in [balanced as fn() -> Service, || balanced().with_affinity(300), policy_local] {
        let mut w = World::with(|c| c.services.push(only_for(service(), &["192.168.77.0/24"])));
        // Twice, as other flows match a client with a learned endpoint.
        for port in [40000, 40001] {
            assert!(from_node(&mut w, HOST.ip, port) && from_node(&mut w, NODE, port));
        }
        // Another source with the gateway's address is not the Node.
        assert!(w.send(A.port, to_gateway(A, Packet::tcp(at(HOST.ip, 40002), at(EXTERNAL_IP, 80), Syn))).is_empty());
        assert!(!pod_is_served(&mut w, 40003));
        w.change(|c| c.services[0] = only_for(service(), &["192.168.78.0/24"]));
        assert!(!from_node(&mut w, HOST.ip, 40004) && !from_node(&mut w, NODE, 40004));
    }
}
