//! Results for Services besides flows: stale connections, health checks, too many endpoints.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use node::{Change, Event};
use pipeline::model::Mode;
use serde_json::json;
use types::service::{EndpointSlice, Service};

use crate::fixture::*;

/// Service s1 at 10.96.0.1:53 and NodePort 30053, UDP.
fn dns() -> Service {
    let mut service = service(1, 30053);
    service.spec.ports[0].port = 53;
    service.spec.ports[0].protocol = types::meta::Protocol::Udp;
    service
}

fn dns_slice(pods: &[u8]) -> EndpointSlice {
    let mut slice = slice(1, pods);
    slice.ports[0].protocol = types::meta::Protocol::Udp;
    slice
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// The `ct_mark` of a connection to a Service with SNAT.
const SERVICE: u32 = 0x61;

#[test]
fn a_udp_connection_is_stale_if_no_endpoint_of_its_frontend_answers_it() {
    let mut brain = synced(Mode::Encap);
    brain.handle(set_service(dns()));
    brain.handle(Event::EndpointSlice(Change::Set(dns_slice(&[5, 6]))));
    let known = brain.connections().unwrap();
    for (sent_to, answered_by, mark, stale) in [
        ("10.96.0.1:53", "10.10.1.5:8080", SERVICE, false),
        ("10.96.0.1:53", "10.10.1.7:8080", SERVICE, true),
        ("10.96.0.1:53", "10.10.1.5:8081", SERVICE, true),
        // From before the Service existed.
        ("10.96.0.1:53", "10.96.0.1:53", 0, true),
        // The host has DNATed a packet to a NodePort.
        ("169.254.0.253:30053", "10.10.1.6:8080", SERVICE, false),
        ("169.254.0.253:30053", "10.10.1.7:8080", SERVICE, true),
        ("192.168.77.1:30053", "10.10.1.7:8080", SERVICE, true),
        // A deleted Service, and a connection that never belonged to one.
        ("10.96.0.9:53", "10.10.1.5:8080", SERVICE, true),
        ("10.10.1.5:8080", "10.10.1.5:8080", 0, false),
        ("10.10.1.5:8080", "10.10.1.5:8080", 0x20, false),
    ] {
        assert_eq!(known.is_stale(at(sent_to), at(answered_by), mark), stale, "{sent_to} {answered_by} {mark:#x}");
    }
    for (sent_to, answered_by, stale) in [
        ("192.168.77.1:30053", "169.254.0.253:30053", false),
        ("192.168.77.1:30053", "192.168.77.1:30053", true),
        ("192.168.77.1:30054", "169.254.0.253:30054", true),
        ("192.168.77.1:53", "192.168.77.1:53", false),
        ("10.96.0.1:53", "10.96.0.1:53", false),
    ] {
        assert_eq!(known.is_stale_on_host(at(sent_to), at(answered_by)), stale, "{sent_to} {answered_by}");
    }
}

#[test]
fn an_unanswered_tcp_connection_is_lost_if_it_began_before_its_service() {
    let mut brain = synced(Mode::Encap);
    let mut web = service(2, 30080);
    web.spec.external_ips = vec!["192.0.2.2".to_owned(), "192.168.77.1".to_owned()];
    web.spec.ports[0].port = 8080;
    brain.handle(set_service(web));
    let mut on_host = slice(2, &[5]);
    on_host.endpoints[0].addresses = vec!["192.168.77.1".to_owned()];
    brain.handle(Event::EndpointSlice(Change::Set(on_host)));
    brain.handle(set_service(dns()));
    let known = brain.connections().unwrap();
    for (sent_to, answered_by, lost) in [
        ("10.96.0.2:8080", "10.96.0.2:8080", true),
        ("10.96.0.2:8080", "192.168.77.1:8080", false),
        ("192.168.77.1:30080", "192.168.77.1:30080", true),
        ("169.254.0.253:30080", "169.254.0.253:30080", true),
        ("192.0.2.2:8080", "192.0.2.2:8080", true),
        // That is the endpoint, on the host network.
        ("192.168.77.1:8080", "192.168.77.1:8080", false),
        ("10.96.0.2:81", "10.96.0.2:81", false),
        // A UDP frontend.
        ("10.96.0.1:53", "10.96.0.1:53", false),
        ("10.10.1.5:8080", "10.10.1.5:8080", false),
    ] {
        assert_eq!(known.is_lost(at(sent_to), at(answered_by)), lost, "{sent_to} {answered_by}");
    }
}

#[test]
fn changed_frontends_and_udp_endpoints_can_make_connections_stale() {
    let mut brain = synced(Mode::Encap);
    let version = |brain: &Agent| brain.service_versions().connections;
    brain.handle(set_service(service(2, 0)));
    assert_eq!(version(&brain), 1);
    brain.handle(Event::EndpointSlice(Change::Set(slice(2, &[5]))));
    assert_eq!(version(&brain), 1, "endpoints do not affect TCP connections");
    brain.handle(Event::Service(Change::Gone(name("s2"))));
    assert_eq!(version(&brain), 1, "removed frontends lose no TCP connection");
    brain.handle(set_service(dns()));
    brain.handle(Event::EndpointSlice(Change::Set(dns_slice(&[5]))));
    let before = version(&brain);
    brain.handle(Event::EndpointSlice(Change::Set(dns_slice(&[5]))));
    assert_eq!(version(&brain), before);
    brain.handle(Event::Service(Change::Gone(name("s1"))));
    assert!(version(&brain) > before);
}

#[test]
fn a_udp_connection_stays_while_its_endpoint_serves() {
    let mut brain = synced(Mode::Encap);
    brain.handle(set_service(dns()));
    let is_stale = |brain: &Agent, pod: u8| {
        let answered_by = at(&format!("10.10.1.{pod}:8080"));
        brain.connections().unwrap().is_stale(at("10.96.0.1:53"), answered_by, SERVICE)
    };
    let mut looks = 0;
    let mut tell = |slice: &EndpointSlice, service: Service, what: &str, stale: [bool; 2], worth_a_look: bool| {
        brain.handle(Event::EndpointSlice(Change::Set(slice.clone())));
        brain.handle(set_service(service));
        assert_eq!([is_stale(&brain, 5), is_stale(&brain, 6)], stale, "{what}");
        let before = std::mem::replace(&mut looks, brain.service_versions().connections);
        assert_eq!(looks > before, worth_a_look, "{what}");
    };
    let mut slice = dns_slice(&[5, 6]);
    tell(&slice, dns(), "both are ready", [false, false], true);
    let zone = |name: &str| serde_json::from_value(json!({"forZones": [{"name": name}]})).unwrap();
    (slice.endpoints[0].hints, slice.endpoints[1].hints) = (zone("a"), zone("b"));
    tell(&slice, dns(), "hints", [false, false], false);
    (slice.endpoints[0].hints, slice.endpoints[1].hints) = (zone("b"), zone("a"));
    tell(&slice, dns(), "other hints", [false, false], false);
    slice.endpoints[0].conditions =
        serde_json::from_value(json!({"ready": false, "serving": true, "terminating": true})).unwrap();
    tell(&slice, dns(), "one is about to end", [false, false], false);
    slice.endpoints[1].node_name = Some("n2".to_owned());
    let mut local = dns();
    local.spec.internal_traffic_policy = "Local".to_owned();
    local.spec.external_traffic_policy = "Local".to_owned();
    tell(&slice, local, "another policy", [false, false], false);
    slice.endpoints[0].conditions.serving = Some(false);
    tell(&slice, dns(), "it answers no more", [true, false], true);
    slice.endpoints.remove(1);
    tell(&slice, dns(), "the other is gone", [true, true], true);
}

#[test]
fn of_two_services_at_one_address_the_first_gets_the_connections() {
    let mut brain = synced(Mode::Encap);
    let mut second = dns();
    second.metadata.name = "s2".to_owned();
    let mut others = dns_slice(&[6]);
    others.metadata.name = "s2-x".to_owned();
    others.metadata.labels.insert("kubernetes.io/service-name".to_owned(), "s2".to_owned());
    for (service, slice) in [(second, others), (dns(), dns_slice(&[5]))] {
        brain.handle(set_service(service));
        brain.handle(Event::EndpointSlice(Change::Set(slice)));
    }
    let known = brain.connections().unwrap();
    for sent_to in ["10.96.0.1:53", "169.254.0.253:30053", "192.168.77.1:30053"] {
        assert!(!known.is_stale(at(sent_to), at("10.10.1.5:8080"), SERVICE), "{sent_to}");
        assert!(known.is_stale(at(sent_to), at("10.10.1.6:8080"), SERVICE), "{sent_to}");
    }
}

/// This many endpoints, in slices of a hundred.
fn many(count: u16) -> Vec<EndpointSlice> {
    let numbers: Vec<u16> = (0..count).collect();
    let slice_of = |(n, numbers): (usize, &[u16])| {
        let endpoint = |n: &u16| json!({"addresses": [format!("10.20.{}.{}", n / 200, n % 200)], "nodeName": "n2"});
        let mut slice = slice(1, &[]);
        slice.metadata.name = format!("s1-{n}");
        slice.endpoints = serde_json::from_value(numbers.iter().map(endpoint).collect::<Vec<_>>().into()).unwrap();
        slice
    };
    numbers.chunks(100).enumerate().map(slice_of).collect()
}

/// The endpoints that this Node uses: each has a flow.
fn chosen(brain: &Agent) -> BTreeSet<String> {
    flows(brain).into_iter().filter(|flow| flow.contains("table=42") && flow.contains("reg3=0xa14")).collect()
}

#[test]
fn endpoints_beyond_the_limit_are_spread_over_nodes_and_reported() {
    let brain_at = |address: &str| {
        let mut own = own(Mode::Encap);
        own.addresses.v4.as_mut().unwrap().node = address.parse().unwrap();
        let mut brain = Agent::new(own);
        node::Source::ALL.into_iter().for_each(|source| brain.handle(Event::Synced(source)));
        brain.handle(set_service(service(1, 0)));
        many(1000).into_iter().for_each(|slice| brain.handle(Event::EndpointSlice(Change::Set(slice))));
        brain
    };
    let (mut one, other) = (brain_at("192.168.77.1"), brain_at("192.168.77.2"));
    let (first, second) = (chosen(&one), chosen(&other));
    assert_eq!((first.len(), second.len()), (800, 800));
    let problems: Vec<String> = one.problems().iter().map(ToString::to_string).collect();
    let said = "Service shop/s1:web: 200 endpoints get no connections from this Node: the limit is 800 per Service; other \
        Nodes use a different subset";
    assert_eq!(problems, [said]);
    // The other Node uses most of the 200 that this one leaves out.
    assert!(second.difference(&first).count() > 100);
    // The problem stays until the endpoints fit.
    one.handle(set_service(service(1, 0)));
    assert_eq!(one.problems().len(), 1);
    one.handle(Event::EndpointSlice(Change::Gone(name("s1-0"))));
    one.handle(Event::EndpointSlice(Change::Gone(name("s1-1"))));
    assert_eq!((one.problems(), chosen(&one).len()), (vec![], 800));
}

#[test]
fn a_node_that_moves_to_another_zone_uses_that_zones_endpoints() {
    let mut brain = synced(Mode::Encap);
    let moved = |zone: &str| {
        let mut node = node(1);
        node.metadata.labels.insert("topology.kubernetes.io/zone".to_owned(), zone.to_owned());
        Event::Node(Change::Set(node))
    };
    let mut slice = slice(1, &[5, 6]);
    for (endpoint, zone) in slice.endpoints.iter_mut().zip(["a", "b"]) {
        endpoint.hints = serde_json::from_value(json!({"forZones": [{"name": zone}]})).unwrap();
    }
    brain.handle(set_service(service(1, 0)));
    brain.handle(Event::EndpointSlice(Change::Set(slice)));
    let mut uses = |event: Option<Event>| {
        event.into_iter().for_each(|event| brain.handle(event));
        let flows = flows(&brain);
        ["reg3=0xa0a0105", "reg3=0xa0a0106"].map(|endpoint| flows.iter().any(|flow| flow.contains(endpoint)))
    };
    assert_eq!(uses(None), [true, true]);
    assert_eq!(uses(Some(moved("a"))), [true, false]);
    assert_eq!(uses(Some(moved("b"))), [false, true]);
}

#[test]
fn health_checks_report_local_endpoints_until_the_service_is_gone() {
    let mut brain = synced(Mode::Encap);
    let mut service = service(1, 30001);
    service.spec.kind = "LoadBalancer".to_owned();
    service.spec.external_traffic_policy = "Local".to_owned();
    service.spec.health_check_node_port = 32000;
    brain.handle(set_service(service));
    brain.handle(Event::EndpointSlice(Change::Set(slice(1, &[5, 6]))));
    let checks: Vec<_> = brain.health_checks().values().cloned().collect();
    assert_eq!(checks, [proxy::HealthCheck { port: 32000, local_endpoints: 2 }]);
    let before = brain.service_versions().health_checks;
    brain.handle(Event::Service(Change::Gone(name("s1"))));
    assert!(brain.health_checks().is_empty() && brain.service_versions().health_checks > before);
}
