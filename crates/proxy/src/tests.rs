//! The rules of Kubernetes for Services.

mod addresses;
mod choice;

use types::service::{SERVICE_NAME_LABEL, ServicePort as WrittenPort, SliceEndpoint, SlicePort};

use super::*;

fn from_node1(service: &Service, slices: &[EndpointSlice]) -> Computed {
    let serving = Serving::default();
    compute(
        service,
        slices,
        &Viewpoint { node: "node1", addresses: &BTreeSet::new(), zone: Some("a"), serving: &serving },
    )
}

/// The first port of the result, which is an IPv4 port.
fn port(service: &Service, slices: &[EndpointSlice]) -> ServicePort {
    from_node1(service, slices).ports.pop_first().unwrap()
}

fn service(kind: &str) -> Service {
    let mut service = Service::default();
    service.metadata.name = "web".to_owned();
    service.metadata.namespace = "default".to_owned();
    service.spec.kind = kind.to_owned();
    service.spec.cluster_ip = "10.96.0.1".to_owned();
    service.spec.cluster_ips = vec!["10.96.0.1".to_owned(), "fd00::1".to_owned()];
    service.spec.ports =
        vec![WrittenPort { name: "http".to_owned(), port: 80, node_port: 30001, ..WrittenPort::default() }];
    service
}

fn slice(family: &str, addresses: &[&str]) -> EndpointSlice {
    let mut slice = EndpointSlice::default();
    slice.metadata.labels.insert(SERVICE_NAME_LABEL.to_owned(), "web".to_owned());
    slice.address_type = family.to_owned();
    slice.ports = vec![SlicePort { name: "http".to_owned(), port: Some(8080), ..SlicePort::default() }];
    slice.endpoints = addresses
        .iter()
        .zip(["node1", "node2", "node3"])
        .map(|(address, node)| SliceEndpoint {
            addresses: vec![(*address).to_owned()],
            node_name: Some(node.to_owned()),
            ..SliceEndpoint::default()
        })
        .collect();
    slice
}

#[test]
fn each_family_has_its_own_port_with_its_own_endpoints() {
    let slices = [slice("IPv4", &["10.0.0.1", "10.0.1.1"]), slice("IPv6", &["fd00:1::1"])];
    let computed = from_node1(&service("ClusterIP"), &slices);
    let seen: Vec<_> = computed.ports.iter().map(|port| (port.ipv6, port.endpoints.len())).collect();
    assert_eq!(seen, [(false, 2), (true, 1)]);
    let local: Vec<bool> =
        computed.ports.first().unwrap().endpoints.iter().map(|endpoint| endpoint.is_local_pod).collect();
    assert_eq!(local, [true, false]);
}

#[test]
fn a_local_endpoint_with_an_address_of_the_node_is_no_pod_behind_a_port() {
    let (serving, addresses) = (Serving::default(), BTreeSet::from(["10.0.0.1".parse().unwrap()]));
    let viewpoint = Viewpoint { node: "node1", addresses: &addresses, zone: None, serving: &serving };
    let mut service = service("ClusterIP");
    service.spec.internal_traffic_policy = "Local".to_owned();
    let computed = compute(&service, &[slice("IPv4", &["10.0.0.1"])], &viewpoint);
    let local = &computed.ports.first().unwrap().local_endpoints;
    assert_eq!(local.iter().map(|endpoint| endpoint.is_local_pod).collect::<Vec<_>>(), [false], "it is local");
}

#[test]
fn services_without_a_cluster_ip_are_ignored() {
    assert!(from_node1(&service("ExternalName"), &[]).ports.is_empty());
    let mut headless = service("ClusterIP");
    headless.spec.cluster_ip = "None".to_owned();
    assert!(from_node1(&headless, &[]).ports.is_empty());
}

#[test]
fn services_of_another_proxy_and_skipped_services_are_ignored() {
    let served = |service: &Service, serving: &Serving| {
        !compute(service, [], &Viewpoint { node: "node1", addresses: &BTreeSet::new(), zone: None, serving })
            .ports
            .is_empty()
    };
    let (usual, ours) = (Serving::default(), Serving { proxy_name: Some("ours".to_owned()), ..Serving::default() });
    let plain = service("ClusterIP");
    let mut labelled = plain.clone();
    labelled.metadata.labels.insert(types::service::PROXY_NAME_LABEL.to_owned(), "ours".to_owned());
    assert_eq!([served(&plain, &usual), served(&labelled, &usual)], [true, false]);
    assert_eq!([served(&plain, &ours), served(&labelled, &ours)], [false, true]);
    for (skip, expected) in [("default/web", false), ("10.96.0.1", false), ("fd00::1", false), ("default/we", true)] {
        let serving = Serving { skip: [skip.to_owned()].into(), ..Serving::default() };
        assert_eq!(served(&plain, &serving), expected, "{skip}");
    }
}

#[test]
fn affinity_lasts_three_hours_by_default_and_at_most_what_a_switch_can_count() {
    let mut service = service("ClusterIP");
    assert_eq!(port(&service, &[]).affinity, None);
    service.spec.session_affinity = "ClientIP".to_owned();
    assert_eq!(port(&service, &[]).affinity, Some(10800));
    for (timeout, counted) in [(60, 60), (86400, 65535), (0, 1)] {
        let client_ip = Some(types::service::ClientIpConfig { timeout_seconds: Some(timeout) });
        service.spec.session_affinity_config = Some(types::service::SessionAffinityConfig { client_ip });
        assert_eq!(port(&service, &[]).affinity, Some(counted), "{timeout}");
    }
}

#[test]
fn the_health_check_counts_ready_endpoints_on_this_node() {
    let mut service = service("LoadBalancer");
    service.spec.health_check_node_port = 32000;
    let mut slices = [slice("IPv4", &["10.0.0.1", "10.0.1.1"])];
    assert_eq!(from_node1(&service, &slices).health_check, None, "with policy Cluster any Node will do");
    service.spec.external_traffic_policy = "Local".to_owned();
    let health_check = |slices: &[EndpointSlice]| from_node1(&service, slices).health_check.unwrap();
    assert_eq!(health_check(&slices), HealthCheck { port: 32000, local_endpoints: 1 });
    slices[0].endpoints[0].conditions.ready = Some(false);
    slices[0].endpoints[0].conditions.terminating = Some(true);
    assert_eq!(health_check(&slices).local_endpoints, 0, "a terminating endpoint gets no new connections");
}

#[test]
fn an_invalid_address_is_reported_with_its_field() {
    let computed = from_node1(&service("ClusterIP"), &[slice("IPv4", &["10.0.0.300"])]);
    let errors: Vec<String> = computed.errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["EndpointSlice : endpoints[0].addresses[0]: `10.0.0.300` is not an address"]);
}
