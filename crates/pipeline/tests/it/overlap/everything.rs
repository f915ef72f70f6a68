//! A Node with at least one object of every kind.

use std::net::IpAddr;

use openflow::port::Port;
use pipeline::model::{
    Address, Affinity, Applied, Datapath, Direction, Endpoint, Families, Features, Frontend, FrontendKind, Gateway,
    IpBlock, Mac, Mode, Node, Peer, PeerPath, Pod, Ports, Protocol, Rule, RuleAction, RuleKind, ServiceFrontend,
    ServiceGroup, Uplink,
};

use crate::cluster::{Cluster, Service};

/// The Node with every object that this variant supports.
pub(super) fn on(mode: Mode, features: Features, datapath: Datapath) -> Cluster {
    let mut cluster = Cluster::new(node(mode, features, datapath));
    cluster.pods = (1..=4).map(pod).collect();
    if mode != Mode::NetworkPolicyOnly {
        cluster.peers = peers(mode);
    }
    if features.antrea_proxy {
        cluster.services = services(features.proxy_all);
    }
    cluster.rules = rules(features.antrea_policy);
    for pod in cluster.pods.iter().skip(1).map(applied) {
        cluster.isolated.push((Direction::Ingress, pod.clone()));
        cluster.isolated.push((Direction::Egress, pod));
    }
    cluster
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn node(mode: Mode, features: Features, datapath: Datapath) -> Node {
    let v4 = Address {
        node: ip("192.168.77.101"),
        gateway: ip("10.10.0.1"),
        snat: ip("10.10.0.254"),
        virtual_service: Address::VIRTUAL_SERVICE.into(),
        hairpin: Address::HAIRPIN.into(),
        pod_cidr: "10.10.0.0/24".parse().unwrap(),
    };
    let v6 = Address {
        node: ip("fd00:77::101"),
        gateway: ip("fd00:10::1"),
        snat: ip("fd00:10::fe"),
        virtual_service: Address::VIRTUAL_SERVICE6.into(),
        hairpin: Address::HAIRPIN6.into(),
        pod_cidr: "fd00:10::/64".parse().unwrap(),
    };
    Node {
        mode,
        features,
        datapath,
        gateway: Gateway { port: Port(2), mac: Mac([0x0a, 0, 0, 0, 0, 1]) },
        // A shared tunnel and two of single peers, as with IPsec; policy-only mode has none.
        tunnels: if mode == Mode::NetworkPolicyOnly { Vec::new() } else { vec![Port(1), Port(20), Port(21)] },
        tunnel_port: Some(8472),
        uplink: (datapath == Datapath::Windows).then_some(Uplink { port: Port(30) }),
        addresses: Families { v4: Some(v4), v6: Some(v6) },
        node_port_addresses: vec![ip("192.168.77.101"), ip("172.17.0.1"), ip("fd00:77::101")],
        service_cidrs: vec!["10.96.0.0/12".parse().unwrap(), "fd00:96::/108".parse().unwrap()],
        all_zero_snat: false,
        host_balances: false,
    }
}

fn pod(n: u8) -> Pod {
    let addresses = vec![ip(&format!("10.10.0.1{n}")), ip(&format!("fd00:10::1{n}"))];
    Pod { port: Port(2 + u32::from(n)), mac: Mac([0x0a, 0, 0, 0, 1, n]), addresses }
}

fn applied(pod: &Pod) -> Applied {
    Applied { port: pod.port, addresses: pod.addresses.clone() }
}

fn peers(mode: Mode) -> Vec<Peer> {
    let peer = |n: u8, routed: bool| {
        let path = |node: String| if routed { PeerPath::Route } else { PeerPath::Tunnel(ip(&node)) };
        let v4 = (format!("10.10.{n}.0/24"), format!("10.10.{n}.1"), path(format!("192.168.77.10{n}")));
        let v6 = (format!("fd00:10:{n}::/64"), format!("fd00:10:{n}::1"), path(format!("fd00:77::10{n}")));
        [v4, v6].map(|(cidr, gateway, path)| Peer { pod_cidr: cidr.parse().unwrap(), gateway: ip(&gateway), path })
    };
    let routed = |n: u8| match mode {
        Mode::Encap | Mode::NetworkPolicyOnly => false,
        Mode::NoEncap => true,
        Mode::Hybrid => n % 2 == 1,
    };
    (2..=5).flat_map(|n| peer(n, routed(n))).collect()
}

/// Services of every frontend, with and without affinity, with endpoints of every kind, for every protocol and family.
fn services(proxy_all: bool) -> Vec<Service> {
    let mut services = Vec::new();
    let mut group = 0;
    for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
        for ipv6 in [false, true] {
            for affinity in [None, Some(Affinity { seconds: 300 })] {
                group += 10;
                services.push(service(protocol, ipv6, affinity, group, proxy_all));
            }
        }
    }
    services
}

fn service(protocol: Protocol, ipv6: bool, affinity: Option<Affinity>, group: u32, proxy_all: bool) -> Service {
    let endpoint = |v4: &str, v6: &str, is_local_pod| Endpoint {
        address: ip(if ipv6 { v6 } else { v4 }),
        port: 8080,
        is_local_pod,
    };
    let local = endpoint("10.10.0.11", "fd00:10::11", true);
    let everywhere = [
        local,
        endpoint("10.10.0.12", "fd00:10::12", true),
        endpoint("10.10.2.11", "fd00:10:2::11", false),
        endpoint("10.10.3.11", "fd00:10:3::11", false),
        endpoint("192.168.77.101", "fd00:77::101", false),
        endpoint("192.168.77.102", "fd00:77::102", false),
    ];
    let groups = [(group, everywhere.into()), (group + 1, [local].into())];
    let groups = groups.map(|(id, endpoints)| ServiceGroup { id, endpoints, affinity: affinity.is_some() });
    let address = |net: u16| {
        let last = group % 250;
        if ipv6 { ip(&format!("fd00:{net}::{last}")) } else { ip(&format!("10.{net}.0.{last}")) }
    };
    let serve = |frontend: Frontend| ServiceFrontend {
        protocol,
        group: Some(if frontend.local_only { group + 1 } else { group }),
        in_cluster_group: (frontend.local_only && frontend.kind.is_external()).then_some(group),
        drops: false,
        affinity,
        frontend,
    };
    let frontend =
        |kind, local_only: bool| Frontend { kind, port: if local_only { 81 } else { 80 }, local_only, clients: None };
    let mut frontends = Vec::new();
    for local in [false, true] {
        frontends.push(serve(frontend(FrontendKind::ClusterIp(address(96)), local)));
        frontends.push(serve(frontend(FrontendKind::External(address(97)), local)));
        let ranges: [&str; 3] = if ipv6 {
            ["fd00::/16", "fd00:1::/32", "fd01::/16"]
        } else {
            ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24"]
        };
        let clients = Some(ranges.iter().map(|range| range.parse().unwrap()).collect());
        frontends.push(serve(Frontend { clients, ..frontend(FrontendKind::External(address(99)), local) }));
        if proxy_all {
            let port = u16::try_from(30000 + group + u32::from(local)).unwrap();
            frontends.push(serve(Frontend { port, ..frontend(FrontendKind::NodePort { ipv6 }, local) }));
        }
    }
    let without_endpoints = FrontendKind::ClusterIp(address(98));
    frontends.push(ServiceFrontend { group: None, affinity: None, ..serve(frontend(without_endpoints, false)) });
    Service { protocol, frontends, groups: groups.into() }
}

/// Rules of every kind, action, direction and shape; some share a priority, as those of one policy do.
fn rules(antrea_policy: bool) -> Vec<Rule> {
    use RuleAction::{Allow, Drop, Pass, Reject};
    let mut kinds = vec![RuleKind::Kubernetes; 2];
    if antrea_policy {
        let actions = [(14500, Allow), (14500, Drop), (14499, Drop), (14499, Reject), (44900, Pass), (44900, Allow)];
        kinds.extend(actions.map(|(priority, action)| RuleKind::Antrea { priority, action }));
        let actions = [(180, Allow), (180, Drop), (170, Reject), (170, Allow)];
        kinds.extend(actions.map(|(priority, action)| RuleKind::Baseline { priority, action }));
    }
    let mut rules = Vec::new();
    for direction in [Direction::Ingress, Direction::Egress] {
        for kind in &kinds {
            for (peers, ports) in shapes() {
                let id = u32::try_from(rules.len()).unwrap() + 1;
                let applied_to = (1..=2).map(|n| applied(&pod(n + (id % 2) as u8))).collect();
                rules.push(Rule { id, direction, kind: *kind, applied_to, peers, ports });
            }
        }
    }
    rules
}

type Shape = (Option<std::collections::BTreeSet<IpBlock>>, Option<std::collections::BTreeSet<Ports>>);

fn shapes() -> Vec<Shape> {
    let block = |cidr: &str, except: &[&str]| IpBlock {
        cidr: cidr.parse().unwrap(),
        except: except.iter().map(|hole| hole.parse().unwrap()).collect(),
    };
    let pods = [block("10.10.0.13/32", &[]), block("10.10.2.11/32", &[]), block("fd00:10::13/128", &[])];
    let outside = [block("0.0.0.0/0", &["10.0.0.0/8", "192.168.77.0/24"]), block("::/0", &["fd00::/16"])];
    let web = Ports { protocol: Protocol::Tcp, range: Some((80, 80)) };
    let high = Ports { protocol: Protocol::Udp, range: Some((30000, 32767)) };
    let all_sctp = Ports { protocol: Protocol::Sctp, range: None };
    vec![
        (None, None),
        (Some(pods.clone().into()), None),
        (Some(pods.into()), Some([web].into())),
        (Some(outside.into()), Some([web, high].into())),
        (None, Some([high, all_sctp].into())),
    ]
}
