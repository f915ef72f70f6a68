//! Routes and Pod subnets that would cut this Node off, and precedence between Nodes with the same subnet.

use node::{Change, Event, Own};
use pipeline::model::{Mode, PeerPath};
use types::node::Node;

use crate::fixture::*;

fn set(node: Node) -> Event {
    Event::Node(Change::Set(node))
}

fn with_subnet(name: &str, address: &str, subnet: &str) -> Node {
    node_with(name, address, &[subnet.to_owned()])
}

fn destinations(brain: &Agent) -> Vec<String> {
    let routes = brain.host().routes;
    routes.iter().map(|route| route.destination.to_string()).filter(|net| !net.contains(':')).collect()
}

const UNREACHABLE: &str = "its Pods are unreachable until the Node is recreated with another podCIDR";

#[test]
fn of_two_nodes_with_the_same_subnet_the_older_keeps_it() {
    let mut brain = synced(Mode::Encap);
    brain.handle(set(created(with_subnet("a-rogue", "192.168.77.9", "10.10.2.0/24"), 2026)));
    assert_eq!(brain.peers().keys().collect::<Vec<_>>(), ["a-rogue"]);
    brain.handle(set(created(node(2), 2025)));
    assert_eq!(brain.peers().keys().collect::<Vec<_>>(), ["n2"]);
    let expected = format!(
        "Node a-rogue: spec.podCIDRs: 10.10.2.0/24 overlaps 10.10.2.0/24 of Node n2, which keeps it; {UNREACHABLE}"
    );
    assert_eq!(problems(&brain), [expected]);
    let PeerPath::Tunnel(to) = brain.peers()["n2"].peers[0].path else { panic!("no tunnel") };
    assert_eq!(to.to_string(), "192.168.77.2");
    // A Node without a creation timestamp is the youngest.
    brain.handle(set(with_subnet("b-rogue", "192.168.77.10", "10.10.2.0/24")));
    assert_eq!(brain.peers().keys().collect::<Vec<_>>(), ["n2"]);
    // A recreated Node is no longer the older one.
    brain.handle(set(created(node(2), 2027)));
    assert_eq!(brain.peers().keys().collect::<Vec<_>>(), ["a-rogue"]);
}

#[test]
fn this_nodes_own_subnet_wins_here_and_a_conflict_with_an_older_node_is_reported() {
    let mut brain = synced(Mode::Encap);
    brain.handle(set(created(node(1), 2026)));
    brain.handle(set(created(with_subnet("older", "192.168.77.9", "10.10.0.0/16"), 2025)));
    brain.handle(set(created(with_subnet("younger", "192.168.77.10", "10.10.1.0/24"), 2027)));
    assert!(brain.peers().is_empty());
    let own = "Node n1: spec.podCIDRs: 10.10.1.0/24 overlaps 10.10.0.0/16 of Node older, which is older: the Pods of \
               this Node are unreachable from other Nodes until one of the two is recreated with another podCIDR";
    let older = format!(
        "Node older: spec.podCIDRs: 10.10.0.0/16 overlaps 10.10.1.0/24 of Node n1, which keeps it; {UNREACHABLE}"
    );
    let younger = format!(
        "Node younger: spec.podCIDRs: 10.10.1.0/24 overlaps 10.10.1.0/24 of Node n1, which keeps it; {UNREACHABLE}"
    );
    assert_eq!(problems(&brain), [own, &older, &younger]);
}

#[test]
fn a_pod_subnet_that_contains_an_underlay_address_is_rejected_and_reported() {
    let mut brain = synced(Mode::Encap);
    brain.handle(set(created(node(2), 2025)));
    brain.handle(set(created(with_subnet("far", "198.51.100.3", "10.10.3.0/24"), 2025)));
    brain.handle(Event::EndpointSlice(Change::Set(api_server("kubernetes", "203.0.113.7"))));
    let before = destinations(&brain);
    for (subnet, why) in [
        ("192.168.77.0/25", "192.168.77.0/25 contains 192.168.77.1, an address of this Node"),
        ("192.168.77.200/29", "192.168.77.200/29 contains 192.168.77.200, an address of the Kubernetes API"),
        ("192.168.77.248/29", "192.168.77.248/29 contains 192.168.77.254, the default gateway of this Node"),
        ("192.168.77.64/26", "192.168.77.64/26 overlaps 192.168.77.0/24, a subnet of Nodes"),
        ("198.51.100.0/24", "198.51.100.0/24 contains 198.51.100.3, an address of Node far"),
        ("203.0.113.0/24", "203.0.113.0/24 contains 203.0.113.7, an address of the Kubernetes API"),
        ("0.0.0.0/0", "0.0.0.0/0 contains 172.16.9.9, an address of Node rogue"),
        ("172.16.9.0/24", "172.16.9.0/24 contains 172.16.9.9, an address of Node rogue"),
    ] {
        brain.handle(set(created(with_subnet("rogue", "172.16.9.9", subnet), 2026)));
        assert_eq!(problems(&brain), [format!("Node rogue: spec.podCIDRs: {why}; {UNREACHABLE}")]);
        assert_eq!(brain.peers().keys().collect::<Vec<_>>(), ["far", "n2"], "{subnet}");
        assert_eq!(destinations(&brain), before, "{subnet}");
    }
}

#[test]
fn pods_may_have_addresses_of_the_nodes_subnet_where_this_nodes_pods_have() {
    let own = Own { transport_subnets: vec!["10.0.0.0/8".parse().unwrap()], ..own(Mode::NoEncap) };
    let mut brain = Agent::new(own);
    sync(&mut brain);
    brain.handle(set(with_subnet("n2", "10.0.0.2", "10.10.2.0/24")));
    assert_eq!(problems(&brain), [""; 0]);
    assert!(destinations(&brain).contains(&"10.10.2.0/24".to_owned()));
    brain.handle(set(with_subnet("n3", "10.0.0.3", "10.0.0.0/24")));
    assert_eq!(brain.peers().len(), 1);
}

#[test]
fn a_node_at_the_address_of_an_older_nodes_pod_is_rejected() {
    let mut brain = synced(Mode::Encap);
    brain.handle(set(created(node(2), 2025)));
    brain.handle(set(created(with_subnet("a-rogue", "10.10.2.7", "10.10.9.0/24"), 2026)));
    assert_eq!(brain.peers().keys().collect::<Vec<_>>(), ["n2"]);
    assert_eq!(
        problems(&brain),
        ["Node a-rogue: status.addresses: 10.10.2.7 is in 10.10.2.0/24, the Pod subnet of Node n2, so its Pods \
          are unreachable; correct the address, or delete the Node that claims it wrongly"]
    );
}

/// The problems and the routes, with a Service at this external address.
fn with_external(brain: &mut Agent, ip: &str) -> (Vec<String>, Vec<String>) {
    let mut claiming = service(9, 0);
    claiming.spec.external_ips = vec![ip.to_owned(), "192.0.2.200".to_owned()];
    brain.handle(set_service(claiming));
    (problems(brain), destinations(brain))
}

#[test]
fn an_external_address_that_the_node_has_to_reach_gets_no_route_and_is_reported() {
    let mut brain = synced(Mode::Encap);
    brain.handle(set(node(2)));
    brain.handle(Event::EndpointSlice(Change::Set(api_server("kubernetes", "203.0.113.7"))));
    let mut controller = api_server("antrea-x", "203.0.113.8");
    controller.metadata.namespace = "kube-system".to_owned();
    controller.metadata.labels.insert("kubernetes.io/service-name".to_owned(), "antrea".to_owned());
    brain.handle(Event::EndpointSlice(Change::Set(controller)));
    for (ip, role) in [
        ("192.168.77.200", "an address of the Kubernetes API"),
        ("203.0.113.7", "an address of the Kubernetes API"),
        ("203.0.113.8", "an address of antrea-controller"),
        ("192.168.77.254", "the default gateway of this Node"),
        ("192.168.77.2", "an address of Node n2"),
    ] {
        let (reported, routes) = with_external(&mut brain, ip);
        let why =
            format!("{ip} is {role}, so this Node itself does not reach the Service there; choose another address");
        assert_eq!(reported, [format!("Service shop/s9: spec.externalIPs: {why}")]);
        assert!(!routes.contains(&format!("{ip}/32")) && routes.contains(&"192.0.2.200/32".to_owned()), "{routes:?}");
        assert!(
            flows(&brain).iter().any(|flow| flow.contains(ip)),
            "Pods reach the Service there, as Kubernetes requires"
        );
        assert!(brain.host().clear.contains(&ip.parse().unwrap()));
    }
    // An address of this Node itself needs no route, and other addresses of the subnet are free.
    let (reported, routes) = with_external(&mut brain, "192.168.77.1");
    assert!(reported.is_empty() && !routes.contains(&"192.168.77.1/32".to_owned()), "{reported:?} {routes:?}");
    let (reported, routes) = with_external(&mut brain, "192.168.77.77");
    assert!(reported.is_empty() && routes.contains(&"192.168.77.77/32".to_owned()), "{reported:?} {routes:?}");
    // The problem names the field, and ends when no Node has the address any more.
    let mut balanced = service(9, 30009);
    balanced.spec.kind = "LoadBalancer".to_owned();
    let ingress = serde_json::json!({"ingress": [{"ip": "192.168.77.2"}]});
    balanced.status.load_balancer = serde_json::from_value(ingress).unwrap();
    brain.handle(set_service(balanced));
    assert!(problems(&brain)[0].starts_with("Service shop/s9: status.loadBalancer.ingress: 192.168.77.2 is"));
    let n2 = types::ObjectName { namespace: String::new(), name: "n2".to_owned() };
    brain.handle(Event::Node(Change::Gone(n2)));
    assert_eq!(problems(&brain), [""; 0]);
    assert!(destinations(&brain).contains(&"192.168.77.2/32".to_owned()));
}

#[test]
fn only_the_api_servers_own_slice_protects_addresses() {
    let mut brain = synced(Mode::Encap);
    brain.handle(set(node(2)));
    brain.handle(Event::EndpointSlice(Change::Set(api_server("kubernetes-too", "10.10.2.7"))));
    assert_eq!((problems(&brain).len(), brain.peers().len()), (0, 1));
}

#[test]
fn an_external_address_in_a_pod_subnet_is_not_served() {
    let mut brain = synced(Mode::Encap);
    let (reported, _) = with_external(&mut brain, "10.10.2.7");
    assert_eq!(reported, [""; 0], "the subnet belongs to no Node");
    assert!(flows(&brain).iter().any(|flow| flow.contains("10.10.2.7")));
    brain.handle(set(node(2)));
    let why = "10.10.2.7 is in 10.10.2.0/24, the Pod subnet of Node n2, and is not served; choose another address";
    assert_eq!(problems(&brain), [format!("Service shop/s9: spec.externalIPs: {why}")]);
    assert!(!flows(&brain).iter().any(|flow| flow.contains("10.10.2.7")));
    assert!(!destinations(&brain).contains(&"10.10.2.7/32".to_owned()));
}

#[test]
fn the_cluster_ip_of_the_api_is_reserved_if_the_agent_uses_it() {
    let mut own = own(Mode::Encap);
    own.control_path.api_servers = vec!["10.96.0.1".parse().unwrap()];
    own.control_path.by_cluster_ip = true;
    let mut brain = Agent::new(own);
    assert!(brain.host().clear.is_empty(), "the route to the API stays until the initial sync");
    sync(&mut brain);
    brain.handle(set_service(kubernetes()));
    brain.handle(Event::EndpointSlice(Change::Set(api_server("kubernetes", "192.168.77.200"))));
    assert!(destinations(&brain).contains(&"10.96.0.1/32".to_owned()), "{:?}", destinations(&brain));
    let before = flows(&brain);
    let mut claiming = service(9, 0);
    claiming.metadata.namespace = "a".to_owned();
    claiming.spec.external_ips = vec!["10.96.0.1".to_owned()];
    brain.handle(set_service(claiming));
    let why = "10.96.0.1 is the cluster IP of Service default/kubernetes, and is not served; choose another address";
    assert_eq!(problems(&brain), [format!("Service a/s9: spec.externalIPs: {why}")]);
    let to_api =
        |flows: &[String]| flows.iter().filter(|flow| flow.contains("nw_dst=10.96.0.1,")).cloned().collect::<Vec<_>>();
    assert_eq!(to_api(&flows(&brain)), to_api(&before));
    assert!(destinations(&brain).contains(&"10.96.0.0/28".to_owned()), "{:?}", destinations(&brain));
}

#[test]
fn a_cluster_ip_belongs_to_the_service_that_the_api_server_gave_it() {
    let mut brain = synced(Mode::Encap);
    let mut claiming = service(9, 0);
    claiming.metadata.namespace = "a".to_owned();
    claiming.spec.external_ips = vec!["10.96.0.2".to_owned(), "192.0.2.7".to_owned()];
    claiming.spec.external_traffic_policy = "Local".to_owned();
    brain.handle(set_service(claiming));
    assert_eq!(problems(&brain), [""; 0]);
    let to = |brain: &Agent, ip: &str| {
        let to = format!("nw_dst={ip},");
        flows(brain).into_iter().filter(|flow| flow.contains(&to)).count()
    };
    let claimed = to(&brain, "10.96.0.2");
    assert!(claimed > 0);
    brain.handle(set_service(service(2, 0)));
    let why = "10.96.0.2 is the cluster IP of Service shop/s2, and is not served; choose another address";
    assert_eq!(problems(&brain), [format!("Service a/s9: spec.externalIPs: {why}")]);
    let mut alone = synced(Mode::Encap);
    alone.handle(set_service(service(2, 0)));
    assert_eq!(to(&brain, "10.96.0.2"), to(&mut alone, "10.96.0.2"));
    assert_eq!(to(&brain, "192.0.2.7"), claimed);
    brain.handle(Event::Service(Change::Gone(name("s2"))));
    assert_eq!((problems(&brain).len(), to(&brain, "10.96.0.2")), (0, claimed));
}

#[test]
fn routes_to_cluster_ips_lead_around_nodes() {
    let mut brain = synced(Mode::Encap);
    for (n, ip) in [(1, "10.96.0.1"), (2, "10.96.0.9"), (3, "10.97.0.1"), (4, "10.97.0.2"), (5, "192.168.77.7")] {
        let mut service = service(n, 0);
        service.spec.cluster_ip = ip.to_owned();
        service.spec.cluster_ips = vec![ip.to_owned()];
        brain.handle(set_service(service));
    }
    let services = |brain: &Agent| {
        let virtual_service = "169.254.0.253".parse().unwrap();
        let routes = brain.host().routes.into_iter().filter(|route| route.via == Some(virtual_service));
        routes.map(|route| route.destination.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(services(&brain), ["10.96.0.0/15", "192.168.77.7/32"]);
    // One Node with an address between them, and one with an address of theirs.
    brain.handle(set(with_subnet("n2", "10.96.200.1", "10.10.2.0/24")));
    assert_eq!(services(&brain), ["10.96.0.0/28", "10.97.0.0/30", "192.168.77.7/32"]);
    brain.handle(set(with_subnet("n3", "10.97.0.1", "10.10.3.0/24")));
    assert_eq!(services(&brain), ["10.96.0.0/28", "10.97.0.2/32", "192.168.77.7/32"]);
    let why = "10.97.0.1 is an address of Node n3, so this Node itself does not reach the Service there; choose another address";
    assert_eq!(problems(&brain), [format!("Service shop/s3: spec.clusterIPs: {why}")]);
}

#[test]
fn each_traffic_mode_guards_the_devices_of_pod_packets() {
    let guard = |mode| {
        let mut brain = synced(mode);
        brain.handle(set(with_subnet("n2", "192.168.77.2", "10.10.2.0/24")));
        brain.handle(set(with_subnet("n3", "192.168.78.3", "10.10.3.0/24")));
        // A Node without Pods of its own can still be the end of a tunnel.
        brain.handle(set(with_subnet("n4", "192.168.77.4", "10.10.2.0/24")));
        let guard = brain.host().firewall.unwrap().guard;
        assert_eq!(guard.transport, "eth0");
        let nodes: Vec<String> = guard.nodes.iter().map(ToString::to_string).collect();
        assert_eq!(nodes, ["192.168.77.1", "192.168.77.2", "192.168.77.4", "192.168.78.3"]);
        let written = |nets: std::collections::BTreeSet<ipnet::IpNet>| {
            nets.iter().filter(|net| net.addr().is_ipv4()).map(ToString::to_string).collect::<Vec<_>>()
        };
        (written(guard.bridged), written(guard.routed))
    };
    let (own, near, far) = ("10.10.1.0/24", "10.10.2.0/24", "10.10.3.0/24");
    // Addresses that only the switch uses: the virtual Service address, which is masqueraded as the gateway, and the hairpin address.
    let (service, hairpin) = ("169.254.0.253/32", "169.254.169.252/32");
    let nets = |nets: &[&str]| nets.iter().map(|net| (*net).to_owned()).collect::<Vec<_>>();
    assert_eq!(guard(Mode::Encap), (nets(&[own, near, far, service, hairpin]), nets(&[])));
    assert_eq!(guard(Mode::Hybrid), (nets(&[own, far, service, hairpin]), nets(&[near])));
    assert_eq!(guard(Mode::NoEncap), (nets(&[own, service, hairpin]), nets(&[near, far])));
    assert_eq!(guard(Mode::NetworkPolicyOnly), (nets(&[]), nets(&[])));
}

#[test]
fn a_pod_subnet_that_would_cut_this_node_off_is_rejected() {
    let mut own = own(Mode::Encap);
    own.check().unwrap();
    own.control_path.api_servers.push("10.10.1.7".parse().unwrap());
    let why = "10.10.1.0/24 contains 10.10.1.7, which this Node reaches outside of the Pod network; recreate \
               the Node with another podCIDR";
    assert_eq!(own.check().unwrap_err().to_string(), format!("Node n1: spec.podCIDRs: {why}"));
}

#[test]
fn loopback_is_routed_only_where_the_firewall_guards_it() {
    let key = "net/ipv4/conf/antrea-gw0/route_localnet";
    assert!(!Agent::new(own(Mode::Encap)).host().sysctls.contains_key(key));
    let host = synced(Mode::Encap).host();
    assert!(host.firewall.is_some() && host.sysctls.contains_key(key));
}
