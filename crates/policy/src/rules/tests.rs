use std::collections::BTreeMap;

use types::meta::{IntOrString, LabelRequirement, LabelSelector, Protocol, UnknownFields, WrittenProtocol};
use types::network_policy::{NetworkPolicy, PolicyPeer, PolicyPort};
use types::pod::{Container, ContainerPort, Pod, PodIp};

use super::*;

fn labels(text: &str) -> BTreeMap<String, String> {
    text.split(',').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn name(text: &str) -> ObjectName {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectName { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn pod(text: &str, label: &str, ip: &str, http: u16) -> Pod {
    let mut pod = Pod::default();
    let name = name(text);
    (pod.metadata.name, pod.metadata.namespace) = (name.name, name.namespace);
    pod.metadata.labels = labels(label);
    pod.status.pod_ips = vec![PodIp { ip: ip.to_owned() }];
    let port = ContainerPort { name: "http".to_owned(), container_port: http, protocol: Protocol::Tcp };
    pod.spec.containers = vec![Container { ports: vec![port] }];
    pod
}

/// Two namespaces; in each a `web` and a `db`.
fn cluster(policy: NetworkPolicy) -> Cluster {
    let mut cluster = Cluster::default();
    cluster.namespaces.insert("a".to_owned(), labels("team=a"));
    cluster.namespaces.insert("b".to_owned(), labels("team=b"));
    for (text, label, ip, http) in [
        ("a/web", "app=web", "10.0.0.1", 80),
        ("a/db", "app=db", "10.0.0.2", 8080),
        ("b/web", "app=web", "10.0.1.1", 8080),
        ("b/db", "app=db", "10.0.1.2", 80),
    ] {
        cluster.add_pod(&pod(text, label, ip, http)).unwrap();
    }
    cluster.policies.insert(name("a/policy"), policy);
    cluster
}

fn selecting(text: &str) -> LabelSelector {
    LabelSelector { match_labels: labels(text), ..LabelSelector::default() }
}

fn ingress(from: Vec<PolicyPeer>, ports: Vec<PolicyPort>) -> NetworkPolicy {
    let mut policy = NetworkPolicy::default();
    policy.spec.pod_selector = selecting("app=web");
    policy.spec.ingress = vec![types::network_policy::IngressRule { from, ports, ..Default::default() }];
    policy
}

fn peers(rule: &PolicyRule) -> Vec<String> {
    rule.peers.iter().flatten().map(|block| block.cidr.to_string()).collect()
}

#[test]
fn an_empty_policy_isolates_and_allows_nothing() {
    let mut policy = NetworkPolicy::default();
    let computed = compute(&cluster(policy.clone()));
    let isolated = |direction| [(direction, name("a/db")), (direction, name("a/web"))];
    assert_eq!(computed.isolated, isolated(Direction::Ingress).into());
    assert!(computed.rules.is_empty());
    policy.spec.policy_types = vec!["Egress".to_owned()];
    assert_eq!(compute(&cluster(policy)).isolated, isolated(Direction::Egress).into());
}

#[test]
fn rules_of_a_direction_that_the_policy_is_not_about_say_nothing() {
    let mut policy = ingress(vec![], vec![]);
    policy.spec.policy_types = vec!["Egress".to_owned()];
    assert!(compute(&cluster(policy)).rules.is_empty());
}

#[test]
fn a_pod_selector_alone_means_the_policy_s_namespace() {
    let peer = PolicyPeer { pod_selector: Some(selecting("app=db")), ..PolicyPeer::default() };
    let rules = compute(&cluster(ingress(vec![peer], vec![]))).rules;
    assert_eq!(rules.iter().map(peers).collect::<Vec<_>>(), [["10.0.0.2/32"]]);
}

#[test]
fn both_selectors_together_mean_those_pods_of_those_namespaces() {
    let peer = PolicyPeer {
        pod_selector: Some(selecting("app=db")),
        namespace_selector: Some(selecting("team=b")),
        ..PolicyPeer::default()
    };
    let rules = compute(&cluster(ingress(vec![peer], vec![]))).rules;
    assert_eq!(rules.iter().map(peers).collect::<Vec<_>>(), [["10.0.1.2/32"]]);
}

#[test]
fn an_empty_list_of_peers_allows_all_and_a_selector_without_pods_none() {
    let rules = compute(&cluster(ingress(vec![], vec![]))).rules;
    assert_eq!(rules.iter().map(|r| r.peers.is_none()).collect::<Vec<_>>(), [true]);
    let none = PolicyPeer { pod_selector: Some(selecting("app=none")), ..PolicyPeer::default() };
    let rules = compute(&cluster(ingress(vec![none], vec![]))).rules;
    assert_eq!(rules.iter().map(|r| r.peers.clone()).collect::<Vec<_>>(), [Some(BTreeSet::new())]);
}

#[test]
fn a_named_port_is_the_number_of_the_pod_that_is_connected_to() {
    let http = PolicyPort { port: Some(IntOrString::String("http".to_owned())), ..PolicyPort::default() };
    let rules = compute(&cluster(ingress(vec![], vec![http.clone()]))).rules;
    let number = |rule: &PolicyRule| rule.ports.iter().flatten().map(|p| p.range.unwrap().0).collect::<Vec<_>>();
    assert_eq!(rules.iter().map(number).collect::<Vec<_>>(), [[80]]);

    let mut policy = NetworkPolicy::default();
    policy.spec.pod_selector = selecting("app=web");
    policy.spec.egress = vec![types::network_policy::EgressRule { ports: vec![http], ..Default::default() }];
    let rules = compute(&cluster(policy)).rules;
    let by_number: Vec<_> = rules.iter().map(|rule| (number(rule), peers(rule))).collect();
    assert_eq!(by_number.len(), 2);
    assert!(by_number.contains(&(vec![80], vec!["10.0.0.1/32".to_owned(), "10.0.1.2/32".to_owned()])), "{by_number:?}");
}

#[test]
fn a_named_port_of_a_pod_within_a_range_of_addresses_is_known_by_its_name() {
    let http = PolicyPort { port: Some(IntOrString::String("http".to_owned())), ..PolicyPort::default() };
    let block = types::network_policy::IpBlock {
        cidr: "10.0.0.0/16".to_owned(),
        except: vec!["10.0.0.2/32".to_owned()],
        ..Default::default()
    };
    let mut policy = NetworkPolicy::default();
    policy.spec.pod_selector = selecting("app=web");
    let to = vec![PolicyPeer { ip_block: Some(block), ..PolicyPeer::default() }];
    policy.spec.egress = vec![types::network_policy::EgressRule { to, ports: vec![http], ..Default::default() }];
    let rules = compute(&cluster(policy)).rules;
    assert_eq!(rules.iter().map(peers).collect::<Vec<_>>(), [vec!["10.0.0.1/32", "10.0.1.2/32"], vec!["10.0.1.1/32"]]);
}

#[test]
fn invalid_fields_are_reported_and_allow_nothing() {
    let block = types::network_policy::IpBlock { cidr: "10.0.0.0/40".to_owned(), ..Default::default() };
    let peer = PolicyPeer { ip_block: Some(block), ..PolicyPeer::default() };
    let port = PolicyPort { port: Some(IntOrString::Int(70000)), ..PolicyPort::default() };
    let computed = compute(&cluster(ingress(vec![peer], vec![port])));
    let errors: Vec<String> = computed.errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "NetworkPolicy a/policy: spec.ingress[0].ports[0].port: needs a number from 1 to 65535, or a name",
            "NetworkPolicy a/policy: spec.ingress[0].from[0].ipBlock.cidr: `10.0.0.0/40` is not a CIDR such as 10.0.0.0/8",
        ]
    );
    assert!(computed.rules.is_empty());
    assert!(computed.isolated.contains(&(Direction::Ingress, name("a/web"))));
}

#[test]
fn host_network_and_terminated_pods_are_not_selected() {
    let mut cluster = cluster(NetworkPolicy::default());
    for (n, change) in
        [|pod: &mut Pod| pod.spec.host_network = true, |pod: &mut Pod| pod.status.phase = "Failed".to_owned()]
            .into_iter()
            .enumerate()
    {
        let mut pod = pod(&format!("a/odd{n}"), "app=web", "10.0.0.9", 80);
        change(&mut pod);
        cluster.add_pod(&pod).unwrap();
    }
    assert_eq!(cluster.pods.len(), 4);
}

#[test]
fn an_unknown_protocol_is_reported_and_other_ports_apply() {
    let odd = PolicyPort { protocol: WrittenProtocol::Other("ICMP".to_owned()), ..PolicyPort::default() };
    let http = PolicyPort { port: Some(IntOrString::Int(80)), ..PolicyPort::default() };
    let computed = compute(&cluster(ingress(vec![], vec![odd, http])));
    let expected = "NetworkPolicy a/policy: spec.ingress[0].ports[0].protocol: `ICMP` is not TCP, UDP or SCTP";
    assert_eq!(computed.errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    assert_eq!(computed.rules.iter().map(|rule| rule.ports.as_ref().unwrap().len()).collect::<Vec<_>>(), [1]);
}

#[test]
fn an_invalid_selector_or_type_isolates_and_allows_nothing() {
    let mut policy = ingress(vec![], vec![]);
    let like = LabelRequirement { key: "tier".to_owned(), operator: "Like".to_owned(), values: vec![] };
    policy.spec.pod_selector.match_expressions = vec![like];
    let computed = compute(&cluster(policy));
    assert_eq!((computed.isolated, computed.rules.len()), ([(Direction::Ingress, name("a/web"))].into(), 0));
    assert_eq!(computed.errors[0].field, "spec.podSelector.matchExpressions[0]");

    let mut policy = ingress(vec![], vec![]);
    policy.spec.policy_types = vec!["Sideways".to_owned()];
    let computed = compute(&cluster(policy));
    let both = [Direction::Ingress, Direction::Egress].map(|direction| (direction, name("a/web")));
    assert_eq!((computed.isolated, computed.rules.len()), (both.into(), 0));
}

#[test]
fn unknown_fields_are_reported_and_allow_nothing() {
    let unknown = || UnknownFields(["mood".to_owned()].into());
    let db = || PolicyPeer { pod_selector: Some(selecting("app=db")), ..PolicyPeer::default() };
    let odd = PolicyPeer { unknown: unknown(), ..db() };
    let computed = compute(&cluster(ingress(vec![odd, db()], vec![])));
    assert_eq!(computed.errors[0].field, "spec.ingress[0].from[0].mood");
    assert_eq!(computed.rules.iter().map(peers).collect::<Vec<_>>(), [["10.0.0.2/32"]]);

    let port = PolicyPort { unknown: unknown(), ..PolicyPort::default() };
    let mut of_rule = ingress(vec![], vec![]);
    of_rule.spec.ingress[0].unknown = unknown();
    let mut of_spec = ingress(vec![], vec![]);
    of_spec.spec.unknown = unknown();
    for (policy, field) in [
        (ingress(vec![], vec![port]), "spec.ingress[0].ports[0].mood"),
        (of_rule, "spec.ingress[0].mood"),
        (of_spec, "spec.mood"),
    ] {
        let computed = compute(&cluster(policy));
        assert_eq!((computed.errors[0].field.as_str(), computed.rules.len(), computed.isolated.len()), (field, 0, 1));
    }
}
