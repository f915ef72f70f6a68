//! The addresses of a Node, from its Kubernetes object.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use pipeline::TransportBridge;
use pipeline::model::{Address, Datapath, Families, Features, Gateway, Mode, Node};
use serde::{Deserialize, Serialize};
use types::InvalidField;
use types::node::TRANSPORT_ADDRESSES;

use crate::underlay::ControlPath;

/// This Node, as determined at start: it does not change while the agent runs.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
pub struct Own {
    /// Name of the Node object.
    pub name: String,
    /// Traffic mode: how packets travel between Nodes.
    pub mode: Mode,
    /// The features in use.
    pub features: Features,
    /// The OVS datapath type.
    pub datapath: Datapath,
    /// Whether the datapath can resolve collisions of source ports, see [`Node::all_zero_snat`].
    #[serde(default)]
    pub all_zero_snat: bool,
    /// The name of the gateway interface on the host.
    pub gateway_device: String,
    /// The OpenFlow port and the MAC of the gateway.
    pub gateway: Gateway,
    /// The OpenFlow ports of tunnels.
    pub tunnels: Vec<openflow::port::Port>,
    /// The UDP port of tunnels that use UDP: the host does not track their packets.
    pub tunnel_port: Option<u16>,
    /// The Node's addresses in each family.
    pub addresses: Families<Address>,
    /// The device towards other Nodes.
    pub transport_device: String,
    /// The subnets that it shares with other Nodes.
    pub transport_subnets: Vec<IpNet>,
    /// MTU of the Pods' interfaces.
    pub mtu: u32,
    /// Whether connections of Pods to the outside keep the Pods' addresses (`noSNAT`).
    pub no_snat: bool,
    /// Host addresses with NodePorts.
    pub node_port_addresses: Vec<IpAddr>,
    /// Subnets of Service addresses, if kube-proxy balances them.
    pub service_cidrs: Vec<IpNet>,
    /// Which Services AntreaProxy serves.
    pub serving: proxy::Serving,
    /// How this Node reaches the Kubernetes API and antrea-controller.
    pub control_path: ControlPath,
    /// The bridge with the transport device, if tunnels end in the userspace datapath.
    #[serde(default)]
    pub transport_bridge: Option<TransportBridge>,
    /// Why there is no transport bridge although tunnels need one.
    #[serde(default)]
    pub tunnel_problem: Option<String>,
}

impl Own {
    /// Rejects a Pod subnet that contains this Node's address, or an address on the path to the Kubernetes API.
    pub fn check(&self) -> Result<(), InvalidField> {
        let path = &self.control_path;
        let reached: Vec<IpAddr> =
            self.own_addresses().into_iter().chain(path.api_servers.clone()).chain(path.routers.clone()).collect();
        for cidr in self.families().map(|address| address.pod_cidr) {
            if let Some(ip) = reached.iter().find(|ip| cidr.contains(*ip)) {
                let problem = format!(
                    "{cidr} contains {ip}, which this Node reaches outside of the Pod network; recreate the Node with another podCIDR"
                );
                let name = types::ObjectName { namespace: String::new(), name: self.name.clone() };
                return Err(InvalidField { kind: "Node", name, field: "spec.podCIDRs".to_owned(), problem });
            }
        }
        Ok(())
    }

    /// Whether these are the addresses of this Node, apart from the SNAT addresses, which may have been chosen by [`avoid_taken`].
    pub(crate) fn has(&self, addresses: Families<Address>) -> bool {
        let same = |ours: Option<Address>, theirs: Option<Address>| match (ours, theirs) {
            (Some(ours), Some(theirs)) => ours == Address { snat: ours.snat, ..theirs },
            (None, None) => true,
            _ => false,
        };
        same(self.addresses.v4, addresses.v4) && same(self.addresses.v6, addresses.v6)
    }

    /// The pipeline's model of this Node.
    pub fn model(&self) -> Node {
        Node {
            mode: self.mode,
            features: self.features,
            datapath: self.datapath,
            // In userspace, Open vSwitch before 3.1.3 aborts when such a connection is closed and its ports are used again.
            all_zero_snat: self.all_zero_snat && self.datapath == Datapath::System,
            gateway: self.gateway,
            uplink: None,
            tunnels: self.tunnels.clone(),
            tunnel_port: self.tunnel_port,
            addresses: self.addresses,
            // The host DNATs its packets to loopback addresses before the bridge sees them.
            node_port_addresses: self.node_port_addresses.iter().copied().filter(|ip| !ip.is_loopback()).collect(),
            service_cidrs: self.service_cidrs.clone(),
            // Services that AntreaProxy skips are balanced by another proxy on the host.
            host_balances: self.serving.proxy_name.is_some() || !self.serving.skip.is_empty(),
        }
    }

    /// The Node's own addresses: an endpoint with one of them is on the host network.
    pub fn own_addresses(&self) -> BTreeSet<IpAddr> {
        self.families().map(|address| address.node).collect()
    }

    /// Its addresses, one for each family in use.
    pub fn families(&self) -> impl Iterator<Item = Address> {
        [self.addresses.v4, self.addresses.v6].into_iter().flatten()
    }
}

fn invalid(node: &types::node::Node, field: &str, problem: String) -> InvalidField {
    InvalidField { kind: "Node", name: node.metadata.object_name(), field: field.to_owned(), problem }
}

/// A Node's Pod subnets, at most one for each family.
pub fn pod_cidrs(node: &types::node::Node) -> Result<Vec<IpNet>, InvalidField> {
    let spec = &node.spec;
    let (field, written) = match spec.pod_cidrs.as_slice() {
        [] => ("spec.podCIDR", std::slice::from_ref(&spec.pod_cidr)),
        list => ("spec.podCIDRs", list),
    };
    let mut cidrs: Vec<IpNet> = Vec::new();
    for text in written.iter().filter(|text| !text.is_empty()) {
        let Ok(cidr) = text.parse::<IpNet>() else {
            return Err(invalid(node, field, format!("`{text}` is not a range of addresses such as 10.10.1.0/24")));
        };
        let cidr = cidr.trunc();
        if let Some(other) = cidrs.iter().find(|other| other.addr().is_ipv4() == cidr.addr().is_ipv4()) {
            return Err(invalid(
                node,
                field,
                format!("{other} and {cidr} have the same address family; only one per family is allowed"),
            ));
        }
        cidrs.push(cidr);
    }
    Ok(cidrs)
}

/// All addresses in the Node's status, also those that other Nodes do not use.
pub(crate) fn all_addresses(node: &types::node::Node) -> BTreeSet<IpAddr> {
    node.status.addresses.iter().filter_map(|address| address.address.parse().ok()).collect()
}

/// A Node's internal addresses, in the order of its status.
pub fn node_addresses(node: &types::node::Node) -> Vec<IpAddr> {
    let internal = node.status.addresses.iter().filter(|address| address.kind == "InternalIP");
    internal.filter_map(|address| address.address.parse().ok()).collect()
}

/// The addresses at which other Nodes reach a Node: its transport addresses if annotated, otherwise its own.
pub fn transport_addresses(node: &types::node::Node) -> Result<Vec<IpAddr>, InvalidField> {
    let Some(published) = node.metadata.annotations.get(TRANSPORT_ADDRESSES) else { return Ok(node_addresses(node)) };
    let field = format!("metadata.annotations[{TRANSPORT_ADDRESSES}]");
    let address = |text: &str| {
        let problem = || format!("`{text}` is not an IP address such as 192.168.1.1");
        text.trim().parse().map_err(|_| invalid(node, &field, problem()))
    };
    published.split(',').map(address).collect()
}

/// The reserved addresses at the start of a Pod subnet: the gateway's, and the SNAT address of connections to Services.
pub fn reserved(cidr: IpNet) -> Option<(IpAddr, IpAddr)> {
    // The first address is the network address; in IPv6 it is the subnet-router anycast address.
    let mut hosts = cidr.hosts().filter(|host| *host != cidr.network());
    let reserved = (hosts.next()?, hosts.next()?);
    // A Pod subnet needs at least one address for a Pod.
    hosts.next().map(|_| reserved)
}

/// Replaces SNAT addresses that Pods have: Antrea reserves the gateway's only, and its Pods keep their addresses. The next free
/// address takes its place; in a full subnet there is none.
pub fn avoid_taken(addresses: &mut Families<Address>, taken: &BTreeSet<IpAddr>) {
    for address in [&mut addresses.v4, &mut addresses.v6].into_iter().flatten() {
        let cidr = address.pod_cidr;
        let mut free = cidr.hosts().filter(|host| *host != cidr.network() && *host != address.gateway);
        address.snat = free.find(|host| !taken.contains(host)).unwrap_or(address.snat);
    }
}

/// The addresses of a Node that its flows depend on.
pub fn local_addresses(node: &types::node::Node) -> Result<Families<Address>, InvalidField> {
    let own = node_addresses(node);
    let mut addresses = Families { v4: None, v6: None };
    for cidr in pod_cidrs(node)? {
        let v4 = cidr.addr().is_ipv4();
        let Some((gateway, snat)) = reserved(cidr) else {
            return Err(invalid(node, "spec.podCIDRs", format!("{cidr} is too small for a gateway and a Pod")));
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
        let problem = "is missing: set it, or start kube-controller-manager with --allocate-node-cidrs";
        return Err(invalid(node, "spec.podCIDR", problem.to_owned()));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_address_of_a_pod_is_not_the_source_of_service_connections() {
        let node = json!({"metadata": {"name": "n1"}, "spec": {"podCIDRs": ["10.10.1.0/29", "fd00:1::/64"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}});
        let default = local_addresses(&serde_json::from_value(node).unwrap()).unwrap();
        let snat = |taken: &[&str]| {
            let mut addresses = default;
            avoid_taken(&mut addresses, &taken.iter().map(|ip| ip.parse().unwrap()).collect());
            [addresses.v4, addresses.v6].map(|address| address.unwrap().snat.to_string())
        };
        assert_eq!(snat(&[]), ["10.10.1.2", "fd00:1::2"]);
        assert_eq!(snat(&["10.10.1.4"]), ["10.10.1.2", "fd00:1::2"]);
        assert_eq!(snat(&["10.10.1.2", "10.10.1.3", "fd00:1::2"]), ["10.10.1.4", "fd00:1::3"]);
        // A full subnet.
        assert_eq!(snat(&["10.10.1.2", "10.10.1.3", "10.10.1.4", "10.10.1.5", "10.10.1.6"])[0], "10.10.1.2");
    }
}
