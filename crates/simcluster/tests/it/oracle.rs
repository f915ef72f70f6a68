//! Policies evaluated twice: by the flows of the real brains in the simulator, and by an oracle that follows the Kubernetes
//! documentation and knows nothing of flows.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use oracle::{Cluster, End};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};
use simulator::{Arrival, Verdict};
use types::meta::{IntOrString, LabelRequirement, LabelSelector, Labels, Protocol};
use types::network_policy::{EgressRule, IngressRule, IpBlock, NetworkPolicy, PolicyPeer, PolicyPort};
use types::node::{Node, NodeAddress};
use types::pod::{Container, ContainerPort, Pod, PodIp};

use simcluster::{Manifest, Object};

const NAMESPACES: [&str; 3] = ["x", "y", "z"];
const PODS: [&str; 3] = ["a", "b", "c"];
const OUTSIDE: &str = "192.168.50.7";
const GATEWAY_MAC: &str = "0a:00:0a:0a:00:01";
/// What is tried between any two ends.
const PROBES: [(Protocol, u16); 4] =
    [(Protocol::Tcp, 80), (Protocol::Tcp, 81), (Protocol::Udp, 80), (Protocol::Tcp, 8080)];

/// How many sets of policies; the long run asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40)
}

/// Nine Pods on one Node, with labels `pod` and `ns`; the port that `web` names differs.
fn pods() -> BTreeMap<(String, String), Pod> {
    let mut pods = BTreeMap::new();
    for (n, namespace) in (0u8..).zip(NAMESPACES) {
        for (p, name) in (0u8..).zip(PODS) {
            let mut pod = Pod::default();
            pod.metadata.name = name.to_owned();
            pod.metadata.namespace = namespace.to_owned();
            pod.metadata.labels = labels(&[("pod", name), ("tier", if p == 0 { "front" } else { "back" })]);
            pod.spec.node_name = "node1".to_owned();
            let number = if p == 1 { 81 } else { 80 };
            let port = ContainerPort { name: "web".to_owned(), container_port: number, protocol: Protocol::Tcp };
            pod.spec.containers = vec![Container { ports: vec![port] }];
            pod.status.pod_ips = vec![PodIp { ip: format!("10.10.0.{}", 10 + n * 10 + p) }];
            pods.insert((namespace.to_owned(), name.to_owned()), pod);
        }
    }
    pods
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn namespace_labels(namespace: &str) -> Labels {
    labels(&[("ns", namespace), ("kind", if namespace == "z" { "odd" } else { "even" })])
}

fn selector(keys: &'static [(&'static str, &'static [&'static str])]) -> impl Strategy<Value = LabelSelector> {
    let key = select(keys);
    let by_label = key.clone().prop_flat_map(|(key, values)| select(values).prop_map(move |value| (key, value)));
    let operator = select(&["In", "NotIn", "Exists", "DoesNotExist"][..]);
    let expression = (key, operator, any::<bool>()).prop_map(|((key, values), operator, both)| {
        let values = if operator.ends_with("In") { &values[..if both { 2 } else { 1 }] } else { &[] };
        LabelRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: values.iter().map(|v| (*v).to_owned()).collect(),
        }
    });
    prop_oneof![
        1 => Just(LabelSelector::default()),
        3 => by_label.prop_map(|pair| LabelSelector { match_labels: labels(&[pair]), ..LabelSelector::default() }),
        2 => expression.prop_map(|e| LabelSelector { match_expressions: vec![e], ..LabelSelector::default() }),
    ]
}

fn pod_selector() -> impl Strategy<Value = LabelSelector> {
    selector(&[("pod", &["a", "b", "c"]), ("tier", &["front", "back"])])
}

fn namespace_selector() -> impl Strategy<Value = LabelSelector> {
    selector(&[("ns", &["x", "y", "z"]), ("kind", &["odd", "even"])])
}

fn peer() -> impl Strategy<Value = PolicyPeer> {
    let cidr = select(&["10.10.0.0/24", "10.10.0.0/28", "192.168.0.0/16", "0.0.0.0/0", "10.10.0.20/30"][..]);
    let except = vec(select(&["10.10.0.10/32", "192.168.50.0/24", "10.10.0.8/29"][..]), 0..3);
    let block = (cidr, except).prop_map(|(cidr, except)| {
        let inside = |hole: &&str| {
            let (outer, inner): (ipnet::IpNet, ipnet::IpNet) = (cidr.parse().unwrap(), hole.parse().unwrap());
            outer.contains(&inner)
        };
        let except = except.into_iter().filter(inside).map(str::to_owned).collect();
        PolicyPeer {
            ip_block: Some(IpBlock { cidr: cidr.to_owned(), except, ..Default::default() }),
            ..PolicyPeer::default()
        }
    });
    prop_oneof![
        2 => pod_selector().prop_map(|s| PolicyPeer { pod_selector: Some(s), ..PolicyPeer::default() }),
        2 => namespace_selector().prop_map(|s| PolicyPeer { namespace_selector: Some(s), ..PolicyPeer::default() }),
        2 => (pod_selector(), namespace_selector()).prop_map(|(p, n)| PolicyPeer {
            pod_selector: Some(p),
            namespace_selector: Some(n),
            ..PolicyPeer::default()
        }),
        2 => block,
    ]
}

fn port() -> impl Strategy<Value = PolicyPort> {
    let number = select(&[80i64, 81, 8080][..]).prop_map(|n| (Some(IntOrString::Int(n)), None));
    let range = (select(&[1i64, 80][..]), select(&[80i64, 81, 9000][..]))
        .prop_map(|(a, b)| (Some(IntOrString::Int(a)), Some(b)));
    let what = prop_oneof![
        1 => Just((None, None)),
        3 => number,
        2 => range,
        2 => Just((Some(IntOrString::String("web".to_owned())), None)),
    ];
    (select(&[Protocol::Tcp, Protocol::Tcp, Protocol::Udp][..]), what).prop_map(|(protocol, (port, end_port))| {
        PolicyPort { protocol: protocol.into(), port, end_port, ..Default::default() }
    })
}

fn policy() -> impl Strategy<Value = NetworkPolicy> {
    let types = select(vec![&[][..], &["Ingress"], &["Egress"], &["Ingress", "Egress"]]);
    let rules = || vec((vec(peer(), 0..3), vec(port(), 0..3)), 0..3);
    (select(&NAMESPACES[..]), pod_selector(), types, rules(), rules()).prop_map(
        |(namespace, pod_selector, types, ingress, egress)| {
            let mut policy = NetworkPolicy::default();
            policy.metadata.namespace = namespace.to_owned();
            policy.spec.pod_selector = pod_selector;
            policy.spec.policy_types = types.iter().map(|t| (*t).to_owned()).collect();
            policy.spec.ingress =
                ingress.into_iter().map(|(from, ports)| IngressRule { from, ports, ..Default::default() }).collect();
            policy.spec.egress =
                egress.into_iter().map(|(to, ports)| EgressRule { to, ports, ..Default::default() }).collect();
            policy
        },
    )
}

/// A cluster of one Node that holds the Pods and policies.
fn cluster(
    pods: &BTreeMap<(String, String), Pod>,
    policies: &[NetworkPolicy],
) -> Result<simcluster::Cluster, simcluster::Error> {
    let mut manifest = Manifest::read("kind: NodeState\nnode: node1\ndatapath: netdev\n")?;
    let mut node = Node::default();
    node.metadata.name = "node1".to_owned();
    node.spec.pod_cidr = "10.10.0.0/24".to_owned();
    node.status.addresses = vec![NodeAddress { kind: "InternalIP".to_owned(), address: "192.168.77.101".to_owned() }];
    manifest.objects.push(Object::Node(node));
    for namespace in NAMESPACES {
        let mut object = types::node::Namespace::default();
        object.metadata.name = namespace.to_owned();
        object.metadata.labels = namespace_labels(namespace);
        manifest.objects.push(Object::Namespace(object));
    }
    manifest.objects.extend(pods.values().map(|pod| Object::Pod(Box::new(pod.clone()))));
    for (number, policy) in policies.iter().enumerate() {
        let mut policy = policy.clone();
        policy.metadata.name = format!("policy-{number}");
        manifest.objects.push(Object::NetworkPolicy(Box::new(policy)));
    }
    simcluster::Cluster::start(&manifest)
}

/// The MAC address of a Pod.
fn mac(ip: IpAddr) -> String {
    types::Mac::of_ip(ip).to_string()
}

#[test]
fn flows_and_documentation_agree_about_every_connection() {
    let pods = pods();
    let ofport: BTreeMap<IpAddr, usize> =
        (3..).zip(pods.values()).map(|(n, pod)| (pod.status.pod_ips[0].ip.parse().unwrap(), n)).collect();
    let config = Config { cases: cases(), failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let judged = Cell::new((0, 0));
    let outcome = TestRunner::new(config).run(&vec(policy(), 0..4), |policies| {
        let cluster = self::cluster(&pods, &policies).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let mut simulator = cluster.agent("node1").unwrap().switch().clone();
        let end = |pod| End { pod: Some(pod), ip: pod.status.pod_ips[0].ip.parse().unwrap() };
        let outside = End { pod: None, ip: OUTSIDE.parse().unwrap() };
        let ends: Vec<End<'_>> = pods.values().map(end).chain([outside]).collect();
        let documented = Cluster {
            namespaces: NAMESPACES.map(|name| (name.to_owned(), namespace_labels(name))).into(),
            policies: policies.clone(),
            ..Cluster::default()
        };
        let mut client_port = 1024;
        for from in &ends {
            for to in &ends {
                if from.ip == to.ip {
                    continue;
                }
                let (in_port, from_mac) = match from.pod {
                    Some(_) => (ofport[&from.ip], mac(from.ip)),
                    None => (2, GATEWAY_MAC.to_owned()),
                };
                let to_mac = if to.pod.is_some() { mac(to.ip) } else { GATEWAY_MAC.to_owned() };
                for (protocol, number) in PROBES {
                    client_port += 1;
                    let word = if protocol == Protocol::Tcp { "tcp" } else { "udp" };
                    let flags = if protocol == Protocol::Tcp { ",tcp_flags=syn" } else { "" };
                    let packet = format!(
                        "in_port={in_port},{word},dl_src={from_mac},dl_dst={to_mac},nw_src={},nw_dst={},tp_src={client_port},tp_dst={number}{flags}",
                        from.ip, to.ip,
                    );
                    let arrival: Arrival = packet.parse().unwrap();
                    let trace = simulator.run(Duration::from_secs(1), &arrival);
                    let passed = matches!(trace.verdict, Verdict::Sent(_));
                    let expected = oracle::connects(&documented, *from, *to, protocol, number);
                    prop_assert_eq!(passed, expected, "{}\n{}", packet, trace);
                    let (asked, allowed) = judged.get();
                    judged.set((asked + 1, allowed + usize::from(passed)));
                }
            }
        }
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    let (asked, allowed) = judged.get();
    println!("{} sets of policies, {asked} connections, {allowed} of them allowed: no difference", cases());
    assert!(allowed > 0 && allowed < asked);
}
