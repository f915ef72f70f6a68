use types::service::{
    EndpointConditions, LoadBalancerIngress, SERVICE_NAME_LABEL, ServicePort as WrittenPort, SlicePort, TargetRef,
};

use super::*;

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
            target_ref: Some(TargetRef {
                kind: "Pod".to_owned(),
                namespace: "default".to_owned(),
                name: format!("on-{node}"),
            }),
            ..SliceEndpoint::default()
        })
        .collect();
    slice
}

fn kinds(port: &ServicePort) -> Vec<(FrontendKind, u16, bool)> {
    port.frontends.iter().map(|frontend| (frontend.kind, frontend.port, frontend.local_only)).collect()
}

#[test]
fn each_family_has_its_own_port_with_its_own_endpoints() {
    let slices = [slice("IPv4", &["10.0.0.1", "10.0.1.1"]), slice("IPv6", &["fd00:1::1"])];
    let computed = compute(&service("ClusterIP"), &slices, "node1");
    let seen: Vec<_> = computed.ports.iter().map(|port| (port.ipv6, port.endpoints.len())).collect();
    assert_eq!(seen, [(false, 2), (true, 1)]);
    let local: Vec<bool> = computed.ports.first().unwrap().endpoints.iter().map(|endpoint| endpoint.is_local).collect();
    assert_eq!(local, [true, false]);
}

#[test]
fn traffic_policies_bind_the_frontends_that_they_are_about() {
    let mut service = service("LoadBalancer");
    service.spec.cluster_ips.truncate(1);
    service.spec.external_traffic_policy = "Local".to_owned();
    service.status.load_balancer.ingress = vec![LoadBalancerIngress { ip: "192.168.3.1".to_owned() }];
    let port = compute(&service, &[], "node1").ports.pop_first().unwrap();
    let (cluster, external) = ("10.96.0.1".parse().unwrap(), "192.168.3.1".parse().unwrap());
    assert_eq!(
        kinds(&port),
        [
            (FrontendKind::ClusterIp(cluster), 80, false),
            (FrontendKind::NodePort { ipv6: false }, 30001, true),
            (FrontendKind::External(external), 80, true),
        ]
    );
    service.spec.internal_traffic_policy = "Local".to_owned();
    service.spec.external_traffic_policy = "Cluster".to_owned();
    let port = compute(&service, &[], "node1").ports.pop_first().unwrap();
    assert_eq!(kinds(&port).iter().map(|(_, _, local)| *local).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn an_endpoint_that_is_not_ready_takes_no_connections() {
    let mut slice = slice("IPv4", &["10.0.0.1", "10.0.1.1"]);
    slice.endpoints[0].conditions = EndpointConditions { ready: Some(false) };
    let port = compute(&service("ClusterIP"), &[slice], "node1").ports.pop_first().unwrap();
    assert_eq!(port.endpoints.len(), 1);
}

#[test]
fn services_without_an_address_are_left_alone() {
    assert!(compute(&service("ExternalName"), &[], "node1").ports.is_empty());
    let mut headless = service("ClusterIP");
    headless.spec.cluster_ip = "None".to_owned();
    assert!(compute(&headless, &[], "node1").ports.is_empty());
}

#[test]
fn affinity_lasts_three_hours_unless_it_is_said() {
    let mut service = service("ClusterIP");
    service.spec.session_affinity = "ClientIP".to_owned();
    assert_eq!(compute(&service, &[], "node1").ports.first().unwrap().affinity, Some(10800));
}

#[test]
fn what_is_no_address_is_named() {
    let computed = compute(&service("ClusterIP"), &[slice("IPv4", &["10.0.0.300"])], "node1");
    let errors: Vec<String> = computed.errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["EndpointSlice : endpoints[0].addresses[0]: `10.0.0.300` is not an address"]);
}
