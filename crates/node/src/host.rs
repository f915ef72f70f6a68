//! What the host's kernel should hold.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use pipeline::model::{Address, Datapath, Mode, PeerPath};
use proxy::FrontendKind;
use types::Mac;
use types::host::{self, Desired, Firewall, Link, Neighbour, NodePort, Route, Virtual};

use crate::addressing::Own;
use crate::peers::PeerNode;

/// Marks the host's own packets, where the datapath sees marks.
const HOST_MARK: u32 = 0x1;

/// What is known well enough to be carried out.
pub(crate) struct Known {
    /// All other Nodes.
    pub(crate) nodes: bool,
    /// All Services and their endpoints, or there is no need to.
    pub(crate) services: bool,
}

/// Everything that the host should hold.
pub(crate) fn desired<'a>(
    own: &Own,
    known: &Known,
    peers: &BTreeMap<String, PeerNode>,
    ports: impl Iterator<Item = &'a proxy::ServicePort>,
) -> Desired {
    let gateway = own.gateway_device.as_str();
    let mut desired = Desired { sysctls: sysctls(own), ..Desired::default() };
    desired.links.insert(gateway.to_owned(), Link { up: true, ..Link::default() });
    for address in own.families() {
        let net = with_prefix(address.gateway, address.pod_cidr);
        desired.addresses.insert(host::Address { device: gateway.to_owned(), net });
    }
    desired.routes.extend(peers.values().flat_map(|peer| peer_routes(own, peer)));
    let mut node_ports = BTreeSet::new();
    if own.features.antrea_proxy && own.features.proxy_all {
        for address in own.families() {
            let device = gateway.to_owned();
            desired.neighbours.insert(Neighbour { device, ip: address.virtual_service, mac: Mac::GLOBAL_VIRTUAL });
            desired.routes.insert(Route::link(address.virtual_service.into(), gateway));
        }
        let frontends: Vec<_> = ports.flat_map(|port| port.frontends.iter().map(move |f| (port.protocol, f))).collect();
        desired.routes.extend(service_routes(own, frontends.iter().map(|(_, frontend)| frontend.kind)));
        for (protocol, frontend) in frontends {
            if let FrontendKind::NodePort { ipv6 } = frontend.kind {
                let addresses = own.node_port_addresses.iter().filter(|ip| ip.is_ipv6() == ipv6);
                node_ports.extend(addresses.map(|ip| NodePort { ip: *ip, protocol, port: frontend.port }));
            }
        }
    }
    // Rules that are replaced as a whole must not lose what only was not known yet.
    if known.nodes && known.services {
        desired.firewall = Some(firewall(own, peers, node_ports));
    }
    desired
}

fn sysctls(own: &Own) -> BTreeMap<String, String> {
    let gateway = &own.gateway_device;
    let mut sysctls = BTreeMap::new();
    let mut set = |key: String, value: &str| _ = sysctls.insert(key, value.to_owned());
    if own.addresses.v4.is_some() {
        set("net/ipv4/ip_forward".to_owned(), "1");
        // The spoof guard knows the gateway by the gateway's address, not by any other of the host.
        set(format!("net/ipv4/conf/{gateway}/arp_announce"), "1");
        if own.features.antrea_proxy && own.features.proxy_all {
            // Connections of the host to its own 127.0.0.1:nodePort leave by the gateway.
            set(format!("net/ipv4/conf/{gateway}/route_localnet"), "1");
        }
    }
    if own.addresses.v6.is_some() {
        set("net/ipv6/conf/all/forwarding".to_owned(), "1");
    }
    sysctls
}

fn peer_routes<'a>(own: &'a Own, node: &'a PeerNode) -> impl Iterator<Item = Route> + 'a {
    node.peers.iter().filter_map(move |peer| match peer.path {
        PeerPath::Tunnel(_) => Some(Route::onlink(peer.pod_cidr, peer.gateway, &own.gateway_device)),
        // Beyond a router it is the router that knows the way.
        PeerPath::Route => {
            let via = node.neighbour(peer.pod_cidr, &own.transport_subnets)?;
            Some(Route { via: Some(via), ..Route::link(peer.pod_cidr, &own.transport_device) })
        }
    })
}

/// The host's ways to Services: the smallest subnet with all cluster IPs, and the external addresses one by one.
fn service_routes(own: &Own, frontends: impl Iterator<Item = FrontendKind> + Clone) -> Vec<Route> {
    let through = |destination: IpNet, address: &Address| {
        Route::onlink(destination, address.virtual_service, &own.gateway_device)
    };
    let mut routes = Vec::new();
    for address in own.families() {
        let of_family = |ip: &IpAddr| ip.is_ipv4() == address.gateway.is_ipv4();
        let cluster = frontends.clone().filter_map(|kind| match kind {
            FrontendKind::ClusterIp(ip) => Some(ip).filter(of_family),
            _ => None,
        });
        routes.extend(cover(cluster).into_iter().map(|net| through(net, &address)));
        let external = frontends.clone().filter_map(|kind| match kind {
            FrontendKind::External(ip) => Some(ip).filter(of_family),
            _ => None,
        });
        // An address of the host itself is reached without a route, and must stay so.
        let foreign = external.filter(|ip| !own.node_port_addresses.contains(ip));
        routes.extend(foreign.map(|ip| through(ip.into(), &address)));
    }
    routes
}

/// One subnet that holds all addresses; each by itself if they have nothing in common.
fn cover(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpNet> {
    // A subnet larger than this belongs to more than the Services of a cluster.
    const LARGEST_V4: u8 = 8;
    const LARGEST_V6: u8 = 32;
    let all: BTreeSet<IpAddr> = addresses.collect();
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return Vec::new() };
    let mut net = IpNet::from(*first);
    while !net.contains(last) {
        match net.supernet() {
            Some(wider) => net = wider,
            None => break,
        }
    }
    let largest = if first.is_ipv4() { LARGEST_V4 } else { LARGEST_V6 };
    if net.prefix_len() < largest { all.into_iter().map(IpNet::from).collect() } else { vec![net] }
}

fn firewall(own: &Own, peers: &BTreeMap<String, PeerNode>, node_ports: BTreeSet<NodePort>) -> Firewall {
    let local: BTreeSet<IpNet> = own.families().map(|address| address.pod_cidr).collect();
    let remote = peers.values().flat_map(|node| node.peers.iter().map(|peer| peer.pod_cidr));
    let masquerade = !own.no_snat && own.mode != Mode::NetworkPolicyOnly;
    let virtual_service = Virtual {
        v4: own.addresses.v4.and_then(|address| match address.virtual_service {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        }),
        v6: own.addresses.v6.and_then(|address| match address.virtual_service {
            IpAddr::V6(ip) => Some(ip),
            IpAddr::V4(_) => None,
        }),
    };
    Firewall {
        gateway: own.gateway_device.clone(),
        masquerade: if masquerade { local.clone() } else { BTreeSet::new() },
        cluster: local.into_iter().chain(remote).collect(),
        random_ports: false,
        node_ports,
        virtual_service,
        tunnel_ports: own.tunnel_port.into_iter().collect(),
        host_mark: (own.datapath == Datapath::System).then_some(HOST_MARK),
        policy_only: None,
    }
}

/// An address with the length of the prefix of its subnet.
fn with_prefix(address: IpAddr, subnet: IpNet) -> IpNet {
    IpNet::new(address, subnet.prefix_len()).unwrap_or_else(|_| address.into())
}
