//! Session affinity: clients keep their endpoint.

use std::net::{IpAddr, SocketAddr};

use openflow::action::{Action, LearnSource, LearnSpec, Subfield};
use openflow::field::Field;
use pipeline::model::{Endpoint, FrontendKind};
use testkit::wait::{TIMEOUT, until};

use super::{BY_CLUSTER_IP, BY_NODE_PORT, CLUSTER_IP, NODE_PORT};
use crate::cluster::{Flows, Service};
use crate::packets::frame::Step::Syn;
use crate::packets::frame::{Frame, Packet};
use crate::packets::objects::{elsewhere, local};
use crate::packets::switch::BRIDGE;
use crate::packets::world::{
    A, B, C, HOST, OUTSIDE, REMOTE, SNAT, TO_NODE_2, VIRTUAL, World, at, from_host, to_gateway,
};

const LONG: u32 = 300;

/// The output port of Pod A's new connection from this source port.
fn from_pod_a(w: &mut World, port: u16) -> &'static str {
    let came = w.send(A.port, to_gateway(A, Packet::tcp(A.at(port), at(CLUSTER_IP, 80), Syn)));
    w.switch.settle();
    assert_eq!(came.len(), 1, "{came:?}");
    came[0].0
}

/// The output port and source of a new external connection to the NodePort.
fn from_outside(w: &mut World, client: SocketAddr) -> (&'static str, IpAddr) {
    let came = w.send(HOST.port, from_host(Packet::tcp(client, at(VIRTUAL, NODE_PORT), Syn)));
    w.switch.settle();
    let [(port, Frame::Ip(packet))] = &came[..] else { panic!("{came:?}") };
    (port, packet.src)
}

/// The number of clients with a learned endpoint.
fn remembered(w: &World) -> usize {
    let flows = w.switch.ovs.ofctl(["dump-flows", BRIDGE, "table=40"]).unwrap();
    flows.lines().filter(|line| line.contains("priority=200")).count()
}

#[test]
fn a_client_keeps_its_endpoint_and_another_client_has_its_own() {
    let endpoints = [local(B), local(C), elsewhere(REMOTE.ip)];
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &endpoints).with_affinity(LONG)));
    let first = from_pod_a(&mut w, 40000);
    for port in 40001..40010 {
        assert_eq!(from_pod_a(&mut w, port), first);
    }
    // Later clients still get the other endpoints.
    let mut w = World::with(|c| c.services.push(Service::of(BY_NODE_PORT, NODE_PORT, &endpoints).with_affinity(LONG)));
    let clients = (1..=40).map(|n| IpAddr::from([203, 0, 113, n]));
    let mut chosen: Vec<_> = clients.map(|client| from_outside(&mut w, at(client, 50000)).0).collect();
    assert_eq!(remembered(&w), 40);
    chosen.sort_unstable();
    chosen.dedup();
    assert_eq!(chosen, [B.port, C.port, TO_NODE_2]);
}

/// Limits learned flows to two clients.
fn two_at_most(flows: &mut Flows) {
    for learn in flows.values_mut().flat_map(|flow| &mut flow.actions).filter_map(|action| match action {
        Action::Learn(learn) => Some(learn),
        _ => None,
    }) {
        assert_eq!(learn.limit, 1024);
        learn.limit = 2;
    }
}

#[test]
fn a_client_above_the_limit_is_balanced_without_affinity() {
    let both = [local(B), local(C)];
    let mut w = World::with(|c| c.services.push(Service::of(BY_NODE_PORT, NODE_PORT, &both).with_affinity(LONG)));
    w.edit(two_at_most);
    let client = |n: u8| IpAddr::from([203, 0, 113, n]);
    let first: Vec<_> = (1..=2).map(|n| from_outside(&mut w, at(client(n), 50000)).0).collect();
    for n in 3..=20 {
        for port in 50000..50003 {
            assert!([B.port, C.port].contains(&from_outside(&mut w, at(client(n), port)).0));
        }
    }
    assert_eq!(remembered(&w), 2);
    // Connections of a further client are balanced; learned clients keep their endpoint.
    let of_one: std::collections::BTreeSet<_> =
        (51000..51030).map(|port| from_outside(&mut w, at(client(9), port)).0).collect();
    assert_eq!(of_one.len(), 2);
    for port in 52000..52010 {
        let again: Vec<_> = (1..=2).map(|n| from_outside(&mut w, at(client(n), port)).0).collect();
        assert_eq!(again, first);
    }
}

#[test]
fn a_learned_endpoint_expires() {
    // A source port that is balanced to C when nothing is learned.
    let both = [local(B), local(C)];
    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &both)));
    let to_c = (40000..40100).find(|port| from_pod_a(&mut w, *port) == C.port).unwrap();

    let mut w = World::with(|c| c.services.push(Service::of(BY_CLUSTER_IP, 80, &[local(B)]).with_affinity(1)));
    assert_eq!(from_pod_a(&mut w, 39999), B.port);
    w.change(|c| c.services[0].set_endpoints(&both));
    until("the end of the affinity", TIMEOUT, || (remembered(&w) == 0).then_some(())).unwrap();
    w.switch.settle();
    assert_eq!(from_pod_a(&mut w, to_c), C.port);
}

#[test]
fn a_client_whose_endpoint_was_removed_gets_and_keeps_another() {
    for (local_only, seen) in [(false, SNAT), (true, OUTSIDE)] {
        let service = |endpoints: &[Endpoint]| {
            let service = Service::of(BY_NODE_PORT, NODE_PORT, endpoints).with_affinity(LONG);
            if local_only { service.local_only(endpoints) } else { service }
        };
        let mut w = World::with(|c| c.services.push(service(&[local(B)])));
        assert_eq!(from_outside(&mut w, at(OUTSIDE, 50000)), (B.port, seen));
        w.change(|c| c.services[0] = service(&[local(C)]));
        for port in 50001..50004 {
            assert_eq!(from_outside(&mut w, at(OUTSIDE, port)), (C.port, seen));
        }
        w.change(|c| c.services[0] = service(&[local(B), local(C)]));
        for port in 50004..50010 {
            assert_eq!(from_outside(&mut w, at(OUTSIDE, port)), (C.port, seen));
        }
    }
}

#[test]
fn a_client_does_not_keep_an_endpoint_that_only_another_service_still_has() {
    let other = || {
        let mut other = Service::of(FrontendKind::ClusterIp("10.96.0.11".parse().unwrap()), 80, &[local(B)]);
        (other.groups[0].id, other.frontends[0].group) = (7, Some(7));
        other
    };
    let mut w = World::with(|c| {
        c.services = vec![Service::of(BY_CLUSTER_IP, 80, &[local(B)]).with_affinity(LONG), other()];
    });
    assert_eq!(from_pod_a(&mut w, 40000), B.port);
    w.change(|c| c.services[0].set_endpoints(&[local(B), local(C)]));
    for port in 40001..40005 {
        assert_eq!(from_pod_a(&mut w, port), B.port);
    }
    w.change(|c| c.services[0].set_endpoints(&[local(C)]));
    for port in 40005..40010 {
        assert_eq!(from_pod_a(&mut w, port), C.port);
    }
}

/// The learned flow of the reference sets the SNAT mark for every traffic policy.
fn snat_learned_clients(flows: &mut Flows) {
    for action in flows.values_mut().flat_map(|flow| &mut flow.actions) {
        if let Action::Learn(learn) = action {
            let dst = Subfield::new(Field::Reg4, 20, 20).unwrap();
            learn.specs.push(LearnSpec::Load { dst, src: LearnSource::Value(1) });
        }
    }
}

#[test]
fn with_policy_local_a_learned_client_keeps_its_source_d4() {
    let service = || Service::of(BY_NODE_PORT, NODE_PORT, &[local(B)]).with_affinity(LONG).local_only(&[local(B)]);
    let mut w = World::with(|c| c.services.push(service()));
    for port in 50000..50003 {
        assert_eq!(from_outside(&mut w, at(OUTSIDE, port)), (B.port, OUTSIDE));
    }

    let mut w = World::with(|c| c.services.push(service()));
    w.edit(snat_learned_clients);
    assert_eq!(from_outside(&mut w, at(OUTSIDE, 50000)), (B.port, OUTSIDE));
    assert_eq!(from_outside(&mut w, at(OUTSIDE, 50001)), (B.port, SNAT));
}

#[test]
fn removing_a_service_removes_only_its_learned_flows_x3() {
    let mut w = World::with(|c| {
        let mut service = Service::of(BY_CLUSTER_IP, 80, &[local(B)]);
        service.frontends.extend(Service::of(BY_NODE_PORT, NODE_PORT, &[]).frontends);
        c.services.push(service.with_affinity(LONG));
    });
    from_pod_a(&mut w, 40000);
    from_outside(&mut w, at(OUTSIDE, 50000));
    assert_eq!(remembered(&w), 2);
    w.change(|c| c.services[0].frontends.truncate(1));
    assert_eq!(remembered(&w), 1);
    w.change(|c| c.services.clear());
    assert_eq!(remembered(&w), 0);
    // The former address of the Service is unassigned now.
    let syn = to_gateway(A, Packet::tcp(A.at(40001), at(CLUSTER_IP, 80), Syn));
    w.passes(A.port, syn.clone(), HOST.port, syn);
}
