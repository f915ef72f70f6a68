//! Desired state of the host's kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use pipeline::model::{Datapath, Mode, PeerPath};
use proxy::FrontendKind;
use types::host::{self, Desired, Firewall, Guard, Link, Neighbour, NodePort, Route, SwitchTunnel, Virtual};
use types::{Mac, ObjectName};

use crate::addressing::Own;
use crate::database::TRANSPORT_BRIDGE;
use crate::peers::PeerNode;
use crate::underlay::{Role, Underlay};

/// Mark on the host's own packets, where the datapath sees marks.
const HOST_MARK: u32 = 0x1;

/// Open vSwitch decapsulates packets only on a bridge that has an address, whichever that is.
const LOCAL_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 251);

/// Which inputs are complete enough to be applied.
pub(crate) struct Known {
    /// The initial sync of Nodes is done.
    pub(crate) nodes: bool,
    /// The initial sync of Services and EndpointSlices is done, or not needed.
    pub(crate) services: bool,
}

/// Namespace and name of the Service of the Kubernetes API.
pub(crate) const KUBERNETES: (&str, &str) = ("default", "kubernetes");

/// The complete desired state of the host.
pub(crate) fn desired<'a>(
    own: &Own,
    known: &Known,
    (peers, underlay): (&BTreeMap<String, PeerNode>, &Underlay),
    ports: impl Iterator<Item = &'a proxy::ServicePort>,
) -> Desired {
    let gateway = own.gateway_device.as_str();
    let known_all = known.nodes && known.services;
    let mut desired = Desired { sysctls: sysctls(own, known_all), ..Desired::default() };
    // The API may be reached by a route to Services that is not computed yet: keep it until then.
    if known_all || !own.control_path.by_cluster_ip {
        desired.clear = underlay.addresses().collect();
    }
    desired.links.insert(gateway.to_owned(), Link { up: true, ..Link::default() });
    if own.transport_bridge.is_some() {
        let device = TRANSPORT_BRIDGE.to_owned();
        desired.links.insert(device.clone(), Link { up: true, ..Link::default() });
        desired.addresses.insert(host::Address { device, net: IpAddr::from(LOCAL_ADDRESS).into() });
        // A packet that was merged from several is longer than the MTU, and the switch drops it.
        desired.unmerged.insert(own.transport_device.clone());
    }
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
        let mut services = ServiceAddresses::default();
        for (port, frontend) in ports.flat_map(|port| port.frontends.iter().map(move |frontend| (port, frontend))) {
            match frontend.kind {
                FrontendKind::NodePort { ipv6 } => {
                    let addresses = own.node_port_addresses.iter().filter(|ip| ip.is_ipv6() == ipv6);
                    let (protocol, port) = (port.protocol, frontend.port);
                    node_ports.extend(addresses.map(|ip| NodePort { ip: *ip, protocol, port }));
                }
                kind => services.insert(underlay, &port.service, kind),
            }
        }
        desired.routes.extend(service_routes(own, underlay, &services));
    }
    // The rules are replaced as a whole, so incomplete input must not remove any.
    if known_all {
        desired.firewall = Some(firewall(own, peers, underlay, node_ports));
    }
    desired
}

/// Why the host gets no route to an address of a Service; `None` if it gets one, or needs none.
pub(crate) fn refusal<'a>(underlay: &'a Underlay, service: &ObjectName, kind: FrontendKind) -> Option<&'a Role> {
    let (FrontendKind::ClusterIp(ip) | FrontendKind::External(ip)) = kind else { return None };
    let role = underlay.role(ip)?;
    let is_the_api = matches!(kind, FrontendKind::ClusterIp(_)) && (&*service.namespace, &*service.name) == KUBERNETES;
    (!is_the_api || *role != Role::ApiServer).then_some(role)
}

/// Addresses of Services that the host has routes to.
#[derive(Default)]
struct ServiceAddresses {
    cluster: BTreeSet<IpAddr>,
    external: BTreeSet<IpAddr>,
}

impl ServiceAddresses {
    fn insert(&mut self, underlay: &Underlay, service: &ObjectName, kind: FrontendKind) {
        if refusal(underlay, service, kind).is_none() {
            match kind {
                FrontendKind::ClusterIp(ip) => _ = self.cluster.insert(ip),
                FrontendKind::External(ip) => _ = self.external.insert(ip),
                FrontendKind::NodePort { .. } => {}
            }
        }
    }
}

fn sysctls(own: &Own, guarded: bool) -> BTreeMap<String, String> {
    let gateway = &own.gateway_device;
    let mut sysctls = BTreeMap::new();
    let mut set = |key: String, value: &str| _ = sysctls.insert(key, value.to_owned());
    if own.addresses.v4.is_some() {
        set("net/ipv4/ip_forward".to_owned(), "1");
        // The spoof guard accepts only the gateway's address from the gateway, no other address of the host.
        set(format!("net/ipv4/conf/{gateway}/arp_announce"), "1");
        if guarded && own.features.antrea_proxy && own.features.proxy_all {
            // Connections of the host to its own 127.0.0.1:nodePort leave by the gateway, and replies return to 127.0.0.1 after
            // reverse translation. The firewall drops packets that arrive with a loopback address, so this is set only together
            // with it.
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
        // Behind a router, the router has the route.
        PeerPath::Route => {
            let via = node.neighbour(peer.pod_cidr, &own.transport_subnets)?;
            Some(Route { via: Some(via), ..Route::link(peer.pod_cidr, &own.transport_device) })
        }
    })
}

/// The host's routes to Services: a few subnets that contain all cluster IPs, and one for each external address.
fn service_routes(own: &Own, underlay: &Underlay, services: &ServiceAddresses) -> Vec<Route> {
    let mut routes = Vec::new();
    for address in own.families() {
        let of_family = |ip: &IpAddr| ip.is_ipv4() == address.gateway.is_ipv4();
        let cluster: BTreeSet<IpAddr> = services.cluster.iter().copied().filter(of_family).collect();
        let external = services.external.iter().copied().filter(of_family).map(IpNet::from);
        let destinations = cover(&cluster, &|net| underlay.is_clear_of(net, &cluster)).into_iter().chain(external);
        routes.extend(destinations.map(|net| Route::onlink(net, address.virtual_service, &own.gateway_device)));
    }
    routes
}

/// As few subnets as possible that contain all addresses and only cover free address space.
fn cover(addresses: &BTreeSet<IpAddr>, is_free: &impl Fn(IpNet) -> bool) -> Vec<IpNet> {
    // A larger subnet would contain more than the Services of one cluster.
    const LARGEST_V4: u8 = 8;
    const LARGEST_V6: u8 = 32;
    let (Some(first), Some(last)) = (addresses.first(), addresses.last()) else { return Vec::new() };
    let mut net = IpNet::from(*first);
    while !net.contains(last) {
        match net.supernet() {
            Some(wider) => net = wider,
            None => break,
        }
    }
    let largest = if first.is_ipv4() { LARGEST_V4 } else { LARGEST_V6 };
    if first == last || net.prefix_len() >= largest && is_free(net) {
        return vec![net];
    }
    let half = net.subnets(net.prefix_len() + 1).ok().and_then(|mut halves| halves.nth(1));
    let Some(half) = half else { return vec![net] };
    let mut lower = addresses.clone();
    let upper = lower.split_off(&half.network());
    [lower, upper].iter().flat_map(|part| cover(part, is_free)).collect()
}

fn firewall(
    own: &Own,
    peers: &BTreeMap<String, PeerNode>,
    underlay: &Underlay,
    node_ports: BTreeSet<NodePort>,
) -> Firewall {
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
        switch_tunnel: own
            .transport_bridge
            .map(|bridge| SwitchTunnel { device: own.transport_device.clone(), packets: bridge.tunnel }),
        host_mark: (own.datapath == Datapath::System).then_some(HOST_MARK),
        policy_only: None,
        guard: guard(own, peers, underlay),
    }
}

/// The devices on which Pods' packets arrive. In policy-only mode another CNI assigns Pod addresses and routes.
fn guard(own: &Own, peers: &BTreeMap<String, PeerNode>, underlay: &Underlay) -> Guard {
    let (mut bridged, mut routed) = (BTreeSet::new(), BTreeSet::new());
    if own.mode != Mode::NetworkPolicyOnly {
        bridged.extend(own.families().map(|address| address.pod_cidr));
        // Used by the switch for connections of Services. The host masquerades the first as the gateway, which policies admit.
        let internal = own.families().flat_map(|address| [address.virtual_service, address.hairpin]);
        bridged.extend(internal.map(IpNet::from));
        for peer in peers.values().flat_map(|node| &node.peers) {
            match peer.path {
                PeerPath::Tunnel(_) => bridged.insert(peer.pod_cidr),
                PeerPath::Route => routed.insert(peer.pod_cidr),
            };
        }
    }
    Guard { bridged, routed, transport: own.transport_device.clone(), nodes: underlay.nodes().collect() }
}

/// An address with the prefix length of its subnet.
fn with_prefix(address: IpAddr, subnet: IpNet) -> IpNet {
    IpNet::new(address, subnet.prefix_len()).unwrap_or_else(|_| address.into())
}
