//! Which addresses a Node has, by what Kubernetes says of it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use pipeline::model::{Address, Datapath, Families, Features, Gateway, Mode, Node};
use types::InvalidField;
use types::node::TRANSPORT_ADDRESSES;

/// What this Node is, found out when the agent starts: it does not change while it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Own {
    /// Its name.
    pub name: String,
    /// How packets travel between Nodes.
    pub mode: Mode,
    /// What is in use.
    pub features: Features,
    /// What moves the packets.
    pub datapath: Datapath,
    /// The name of the host's end of the bridge.
    pub gateway_device: String,
    /// The port and the Ethernet address of the host's end of the bridge.
    pub gateway: Gateway,
    /// The ports of tunnels.
    pub tunnels: Vec<openflow::port::Port>,
    /// The UDP port of tunnels, if that is how they travel: the host does not track their packets.
    pub tunnel_port: Option<u16>,
    /// Its addresses.
    pub addresses: Families<Address>,
    /// The device by which it reaches other Nodes.
    pub transport_device: String,
    /// The subnets that it shares with other Nodes.
    pub transport_subnets: Vec<IpNet>,
    /// What a packet may have that enters or leaves a Pod.
    pub mtu: u32,
    /// Whether connections of Pods to the outside keep the Pods' addresses.
    pub no_snat: bool,
    /// Addresses on which NodePorts listen.
    pub node_port_addresses: Vec<IpAddr>,
    /// Addresses of Services, where kube-proxy balances them.
    pub service_cidrs: Vec<IpNet>,
    /// Which Services are served.
    pub serving: proxy::Serving,
}

impl Own {
    /// The Node, as its flows depend on it.
    pub fn model(&self) -> Node {
        Node {
            mode: self.mode,
            features: self.features,
            datapath: self.datapath,
            gateway: self.gateway,
            uplink: None,
            tunnels: self.tunnels.clone(),
            addresses: self.addresses,
            // The host translates what it sends to itself before the bridge sees it.
            node_port_addresses: self.node_port_addresses.iter().copied().filter(|ip| !ip.is_loopback()).collect(),
            service_cidrs: self.service_cidrs.clone(),
        }
    }

    /// The Node's own addresses: an endpoint that has one is on the host's network.
    pub fn own_addresses(&self) -> BTreeSet<IpAddr> {
        self.families().map(|address| address.node).collect()
    }

    /// Its addresses, a family at a time.
    pub fn families(&self) -> impl Iterator<Item = Address> {
        [self.addresses.v4, self.addresses.v6].into_iter().flatten()
    }
}

fn invalid(node: &types::node::Node, field: &str, problem: String) -> InvalidField {
    InvalidField { kind: "Node", name: node.metadata.object_name(), field: field.to_owned(), problem }
}

/// A Node's Pod subnets, at most one a family.
pub fn pod_cidrs(node: &types::node::Node) -> Result<Vec<IpNet>, InvalidField> {
    let spec = &node.spec;
    let (field, written) = match spec.pod_cidrs.as_slice() {
        [] => ("spec.podCIDR", std::slice::from_ref(&spec.pod_cidr)),
        list => ("spec.podCIDRs", list),
    };
    let mut cidrs: Vec<IpNet> = Vec::new();
    for text in written.iter().filter(|text| !text.is_empty()) {
        let Ok(cidr) = text.parse::<IpNet>() else {
            return Err(invalid(node, field, format!("`{text}` is not a range of addresses, as 10.10.1.0/24 is")));
        };
        let cidr = cidr.trunc();
        if let Some(other) = cidrs.iter().find(|other| other.addr().is_ipv4() == cidr.addr().is_ipv4()) {
            return Err(invalid(
                node,
                field,
                format!("{other} and {cidr} are of one family, and one a family is the limit"),
            ));
        }
        cidrs.push(cidr);
    }
    Ok(cidrs)
}

/// A Node's own addresses, in the order in which it gives them.
pub fn node_addresses(node: &types::node::Node) -> Vec<IpAddr> {
    let internal = node.status.addresses.iter().filter(|address| address.kind == "InternalIP");
    internal.filter_map(|address| address.address.parse().ok()).collect()
}

/// The addresses at which other Nodes reach a Node: those that it tells, or else its own.
pub fn transport_addresses(node: &types::node::Node) -> Result<Vec<IpAddr>, InvalidField> {
    let Some(told) = node.metadata.annotations.get(TRANSPORT_ADDRESSES) else { return Ok(node_addresses(node)) };
    let field = format!("metadata.annotations[{TRANSPORT_ADDRESSES}]");
    let address = |text: &str| {
        let problem = || format!("`{text}` is not an address, as 192.168.1.1 is");
        text.trim().parse().map_err(|_| invalid(node, &field, problem()))
    };
    told.split(',').map(address).collect()
}

/// The addresses at the beginning of a Pod subnet that are no Pod's: the gateway's, and the source of connections to Services.
pub fn reserved(cidr: IpNet) -> Option<(IpAddr, IpAddr)> {
    // The first address is the subnet's own, and none of its hosts' in IPv6 either: routers answer to it.
    let mut hosts = cidr.hosts().filter(|host| *host != cidr.network());
    let reserved = (hosts.next()?, hosts.next()?);
    // Without a single address for a Pod it is no Pod subnet.
    hosts.next().map(|_| reserved)
}

/// The addresses that the flows of a Node depend on.
pub fn local_addresses(node: &types::node::Node) -> Result<Families<Address>, InvalidField> {
    let own = node_addresses(node);
    let mut addresses = Families { v4: None, v6: None };
    for cidr in pod_cidrs(node)? {
        let v4 = cidr.addr().is_ipv4();
        let Some((gateway, snat)) = reserved(cidr) else {
            return Err(invalid(node, "spec.podCIDRs", format!("{cidr} has no room for a gateway and a Pod")));
        };
        let Some(node) = own.iter().find(|ip| ip.is_ipv4() == v4).or(own.first()) else {
            return Err(invalid(node, "status.addresses", "has no InternalIP".to_owned()));
        };
        let (virtual_service, hairpin): (IpAddr, IpAddr) = if v4 {
            (Address::VIRTUAL_SERVICE.into(), Address::HAIRPIN.into())
        } else {
            (Address::VIRTUAL_SERVICE6.into(), Address::HAIRPIN6.into())
        };
        let address = Address { node: *node, gateway, snat, virtual_service, hairpin, pod_cidr: cidr };
        *if v4 { &mut addresses.v4 } else { &mut addresses.v6 } = Some(address);
    }
    if addresses.v4.is_none() && addresses.v6.is_none() {
        let problem =
            "is missing: give the Node a Pod subnet, by kube-controller-manager's --allocate-node-cidrs or by hand";
        return Err(invalid(node, "spec.podCIDR", problem.to_owned()));
    }
    Ok(addresses)
}
