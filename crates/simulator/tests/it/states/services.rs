//! Random Services: every kind of frontend, with local, remote, host-network or no endpoints.

use std::net::IpAddr;

use pipeline::model::{
    Affinity, Endpoint, EndpointSet, Frontend, FrontendKind, Protocol, ServiceFrontend, ServiceGroup,
};

use super::scene::{either, families};
use crate::cluster::{Cluster, Service};
use testkit::dice::Dice;

/// Ports of the endpoints.
const TARGETS: [u16; 3] = [8080, 80, 1000];

pub(super) fn services(dice: &mut Dice, cluster: &Cluster) -> Vec<Service> {
    let families = families(&cluster.node);
    (1..1 + dice.below(6)).map(|n| service(dice, cluster, &families, n)).collect()
}

fn service(dice: &mut Dice, cluster: &Cluster, families: &[bool], n: usize) -> Service {
    let ipv6 = dice.one(families);
    let protocol =
        dice.one(&[Protocol::Tcp, Protocol::Tcp, Protocol::Tcp, Protocol::Udp, Protocol::Udp, Protocol::Sctp]);
    let affinity = dice.percent(30).then_some(Affinity { seconds: 10_800 });
    let target = dice.one(&TARGETS);
    let all = endpoints(dice, cluster, ipv6, target);
    let nearby: EndpointSet = all.iter().filter(|endpoint| is_here(cluster, endpoint)).copied().collect();
    let id = u32::try_from(n).unwrap() * 10;
    let group = |id: u32, endpoints: &EndpointSet| {
        (!endpoints.is_empty()).then(|| ServiceGroup { id, endpoints: endpoints.clone(), affinity: affinity.is_some() })
    };
    let groups: Vec<ServiceGroup> = group(id, &all).into_iter().chain(group(id + 1, &nearby)).collect();
    let id_of = |id: u32| groups.iter().find(|group| group.id == id).map(|group| group.id);
    let external_local = dice.percent(40);
    let internal_local = dice.percent(20);
    let frontend = |kind, port| {
        let is_external = FrontendKind::is_external(kind);
        let local_only = if is_external { external_local } else { internal_local };
        ServiceFrontend {
            frontend: Frontend { kind, port, local_only, clients: None },
            protocol,
            group: id_of(if local_only { id + 1 } else { id }),
            in_cluster_group: if local_only && is_external { id_of(id) } else { None },
            drops: false,
            affinity,
        }
    };
    let port = dice.one(&[80, 80, 1000]);
    let address = |net: &str, net6: &str| either(ipv6, &format!("{net}.{n}"), &format!("{net6}::{n}"));
    let mut frontends = vec![frontend(FrontendKind::ClusterIp(address("10.96.0", "fd00:96")), port)];
    if cluster.node.features.proxy_all && dice.percent(60) {
        frontends.push(frontend(FrontendKind::NodePort { ipv6 }, 30000 + u16::try_from(n).unwrap()));
    }
    for (net, net6) in [("198.51.100", "fd00:51"), ("198.51.101", "fd00:52")] {
        if dice.percent(40) {
            frontends.push(frontend(FrontendKind::External(address(net, net6)), port));
        }
    }
    Service { protocol, frontends, groups }
}

fn endpoints(dice: &mut Dice, cluster: &Cluster, ipv6: bool, port: u16) -> EndpointSet {
    if dice.percent(10) {
        return EndpointSet::new();
    }
    let pods = cluster.pods.iter().flat_map(|pod| &pod.addresses).filter(|address| address.is_ipv6() == ipv6);
    let pods = pods.map(|address| Endpoint { address: *address, port, is_local_pod: true });
    let elsewhere = [
        ("10.10.2.11", "fd00:10:2::11"),
        ("10.10.3.11", "fd00:10:3::11"),
        ("192.168.77.101", "fd00:77::101"),
        ("192.168.77.102", "fd00:77::102"),
        ("203.0.113.9", "fd00:113::9"),
    ];
    let elsewhere = elsewhere.map(|(v4, v6)| Endpoint { address: either(ipv6, v4, v6), port, is_local_pod: false });
    let candidates: Vec<Endpoint> = pods.chain(elsewhere).collect();
    dice.some(&candidates, 30).into_iter().collect()
}

/// On this Node, Pod or host.
fn is_here(cluster: &Cluster, endpoint: &Endpoint) -> bool {
    let addresses = cluster.node.addresses;
    let hosts: [Option<IpAddr>; 2] = [addresses.v4.map(|a| a.node), addresses.v6.map(|a| a.node)];
    endpoint.is_local_pod || hosts.contains(&Some(endpoint.address))
}
