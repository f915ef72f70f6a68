//! Frontends, and the clients that may use them.

use types::service::LoadBalancerIngress;

use super::*;

fn kinds(port: &ServicePort) -> Vec<(FrontendKind, u16, bool)> {
    port.frontends.iter().map(|frontend| (frontend.kind, frontend.port, frontend.local_only)).collect()
}

fn load_balancer(ips: &[&str]) -> Service {
    let mut service = service("LoadBalancer");
    let ingress = |ip: &&str| LoadBalancerIngress { ip: (*ip).to_owned(), ip_mode: None };
    service.status.load_balancer.ingress = ips.iter().map(ingress).collect();
    service
}

/// The external addresses of a family, with the clients that may use them.
fn external(computed: &Computed, ipv6: bool) -> Vec<(String, Option<String>)> {
    let ports = computed.ports.iter().filter(|port| port.ipv6 == ipv6);
    let clients = |nets: &BTreeSet<IpNet>| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let external = ports.flat_map(|port| &port.frontends).filter_map(|frontend| match frontend.kind {
        FrontendKind::External(ip) => Some((ip.to_string(), frontend.clients.as_ref().map(clients))),
        _ => None,
    });
    external.collect()
}

#[test]
fn a_traffic_policy_applies_to_its_frontends_only() {
    let mut service = load_balancer(&["192.168.3.1"]);
    service.spec.external_traffic_policy = "Local".to_owned();
    let (cluster, external) = ("10.96.0.1".parse().unwrap(), "192.168.3.1".parse().unwrap());
    assert_eq!(
        kinds(&port(&service, &[])),
        [
            (FrontendKind::ClusterIp(cluster), 80, false),
            (FrontendKind::NodePort { ipv6: false }, 30001, true),
            (FrontendKind::External(external), 80, true),
        ]
    );
    service.spec.internal_traffic_policy = "Local".to_owned();
    service.spec.external_traffic_policy = "Cluster".to_owned();
    let port = port(&service, &[]);
    assert_eq!(kinds(&port).iter().map(|(_, _, local)| *local).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn proxying_and_unserved_load_balancers_get_no_frontend() {
    let mut service = load_balancer(&["192.168.3.1", "192.168.3.2", "192.168.3.3"]);
    service.status.load_balancer.ingress[0].ip_mode = Some("Proxy".to_owned());
    service.status.load_balancer.ingress[1].ip_mode = Some("VIP".to_owned());
    let addresses = |computed: &Computed| external(computed, false).into_iter().map(|(ip, _)| ip).collect::<Vec<_>>();
    assert_eq!(addresses(&from_node1(&service, &[])), ["192.168.3.2", "192.168.3.3"]);
    let serving = Serving { load_balancers: false, ..Serving::default() };
    let computed =
        compute(&service, [], &Viewpoint { node: "node1", addresses: &BTreeSet::new(), zone: None, serving: &serving });
    assert_eq!(addresses(&computed), Vec::<String>::new());
    // The status of an earlier type has no effect.
    service.spec.kind = "NodePort".to_owned();
    assert_eq!(addresses(&from_node1(&service, &[])), Vec::<String>::new());
}

#[test]
fn source_ranges_apply_to_the_load_balancers_addresses_only() {
    let mut service = load_balancer(&["192.168.3.1", "fd00:3::1"]);
    service.spec.external_ips = vec!["192.168.4.1".to_owned()];
    service.spec.load_balancer_source_ranges = vec!["203.0.113.7/24".to_owned(), " 10.0.0.0/8".to_owned()];
    let computed = from_node1(&service, &[]);
    let restricted = ("192.168.3.1".to_owned(), Some("10.0.0.0/8 203.0.113.0/24".to_owned()));
    assert_eq!(external(&computed, false), [restricted, ("192.168.4.1".to_owned(), None)]);
    assert_eq!(external(&computed, true), [("fd00:3::1".to_owned(), None)]);
    assert_eq!(computed.errors, []);
}

#[test]
fn an_address_that_is_also_the_load_balancers_keeps_its_ranges() {
    let mut service = load_balancer(&["192.168.3.1"]);
    service.spec.external_ips = vec!["192.168.3.1".to_owned()];
    service.spec.load_balancer_source_ranges = vec!["10.0.0.0/8".to_owned()];
    assert_eq!(
        external(&from_node1(&service, &[]), false),
        [("192.168.3.1".to_owned(), Some("10.0.0.0/8".to_owned()))]
    );
}

#[test]
fn an_invalid_source_range_is_reported_and_allows_no_client() {
    let mut service = load_balancer(&["192.168.3.1"]);
    service.spec.load_balancer_source_ranges = vec!["10.0.0.0/33".to_owned()];
    let computed = from_node1(&service, &[]);
    assert_eq!(external(&computed, false), [("192.168.3.1".to_owned(), Some(String::new()))]);
    let errors: Vec<String> = computed.errors.iter().map(ToString::to_string).collect();
    let expected = "Service default/web: spec.loadBalancerSourceRanges[0]: `10.0.0.0/33` is not a range of addresses such as \
        10.0.0.0/8";
    assert_eq!(errors, [expected]);
}
