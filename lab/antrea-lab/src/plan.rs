//! What a lab consists of: names, addresses and choices. Pure; everything else follows from it.
//!
//! Every lab has the same addresses. That is no conflict: they exist in the lab's own namespaces only, and nothing connects
//! those with the host or with another lab.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clap::ValueEnum;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// More Nodes than anyone has started on one machine; the addresses would last for some more.
pub(crate) const MOST_NODES: u16 = 200;
/// As many controllers as there are addresses for them.
pub(crate) const MOST_CONTROLLERS: u16 = 5;
/// Where the Kubernetes API is, as the Nodes see it.
pub(crate) const API: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 2);
/// The port of the Kubernetes API, as the Nodes see it.
pub(crate) const API_PORT: u16 = 6443;
/// The client and server that is outside of the cluster.
pub(crate) const OUTSIDE: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(203, 0, 113, 10), Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 10));
/// All Pods' addresses are from these.
pub(crate) const POD_NETS: [&str; 2] = ["10.10.0.0/16", "fd00:10:10::/48"];
/// All Services' addresses are from these.
pub(crate) const SERVICE_NETS: [&str; 2] = ["10.96.0.0/16", "fd00:10:96::/112"];
/// The address of the cluster's DNS.
pub(crate) const DNS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// The domain of the cluster's names.
pub(crate) const DOMAIN: &str = "cluster.local";

/// How Pods' packets travel between Nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// In a tunnel
    Encap,
    /// As they are; the router knows the Pods' networks
    #[value(name = "noencap")]
    NoEncap,
    /// As they are within a subnet, in a tunnel between subnets
    Hybrid,
}

/// The protocol of the tunnels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tunnel {
    Geneve,
    Vxlan,
    Gre,
}

/// Who serves the Kubernetes API.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kubernetes {
    /// The small API server in the lab's own process
    Embedded,
    /// etcd, kube-apiserver, kube-controller-manager and kube-scheduler, as `make kubernetes` builds them
    Real,
}

/// Who connects the Pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Network {
    /// antrea-agent and antrea-cni, from the directory of antrea-lab
    Antrea,
    /// Debian's `bridge` plugin and static routes: Pods reach each other, and there are no Services
    Bridge,
}

/// Who leads to Services.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Services {
    /// antrea-agent, from everywhere
    Antrea,
    /// antrea-agent from Pods, kube-proxy from Nodes and the outside
    Both,
    /// kube-proxy, from everywhere; `make kubernetes` builds it
    KubeProxy,
}

/// What was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) tunnel: Tunnel,
    pub(crate) kubernetes: Kubernetes,
    pub(crate) network: Network,
    pub(crate) services: Services,
    /// How many controllers.
    pub(crate) controllers: u16,
    pub(crate) nodes: Vec<Node>,
}

/// A Node, as it is planned.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) segment: Segment,
    pub(crate) ipv4: Ipv4Addr,
    pub(crate) ipv6: Ipv6Addr,
    pub(crate) pod_cidrs: [IpNet; 2],
}

/// A wire that the router connects with the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum Segment {
    /// The subnet of most Nodes, and of the Kubernetes API.
    A,
    /// The subnet of every third Node.
    B,
    /// The world.
    Outside,
}

impl Segment {
    pub(crate) const ALL: [Self; 3] = [Self::A, Self::B, Self::Outside];

    /// The bridge that is this wire, and the router's interface on it.
    pub(crate) fn bridge(self) -> &'static str {
        match self {
            Self::A => "br-a",
            Self::B => "br-b",
            Self::Outside => "br-out",
        }
    }

    pub(crate) fn ipv4(self, host: u8) -> Ipv4Addr {
        match self {
            Self::A => Ipv4Addr::new(192, 168, 1, host),
            Self::B => Ipv4Addr::new(192, 168, 2, host),
            Self::Outside => Ipv4Addr::new(203, 0, 113, host),
        }
    }

    pub(crate) fn ipv6(self, host: u8) -> Ipv6Addr {
        let host = u16::from(host);
        match self {
            Self::A => Ipv6Addr::new(0xfd00, 0x192, 0x168, 1, 0, 0, 0, host),
            Self::B => Ipv6Addr::new(0xfd00, 0x192, 0x168, 2, 0, 0, 0, host),
            Self::Outside => Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, host),
        }
    }

    /// The router's addresses on this wire.
    pub(crate) fn router(self) -> (Ipv4Addr, Ipv6Addr) {
        (self.ipv4(1), self.ipv6(1))
    }
}

impl Plan {
    /// A lab with so many Nodes.
    pub(crate) fn new(
        name: &str,
        nodes: u16,
        mode: Mode,
        tunnel: Tunnel,
        kubernetes: Kubernetes,
        network: Network,
    ) -> Self {
        let nodes = (1..=nodes.min(MOST_NODES)).filter_map(Node::new).collect();
        let controllers = u16::from(network == Network::Antrea);
        let services = Services::Antrea;
        Self { name: name.to_owned(), mode, tunnel, kubernetes, network, services, controllers, nodes }
    }

    /// The Node of that name.
    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// All Nodes but that one.
    pub(crate) fn peers<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        self.nodes.iter().filter(move |peer| peer.name != node.name)
    }

    /// All Nodes but that one that are in its subnet.
    pub(crate) fn near<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        self.peers(node).filter(|peer| peer.segment == node.segment)
    }

    /// A Node that could join: the first whose number nobody has.
    pub(crate) fn another(&self) -> Option<Node> {
        (1..=MOST_NODES).filter_map(Node::new).find(|node| self.node(&node.name).is_none())
    }

    /// Whether the router knows where the Pods are.
    pub(crate) fn router_knows_pods(&self) -> bool {
        self.network == Network::Bridge || self.mode == Mode::NoEncap
    }

    /// Whether Nodes run kube-proxy.
    pub(crate) fn has_kube_proxy(&self) -> bool {
        self.network == Network::Antrea && self.services != Services::Antrea
    }

    /// Whether Nodes can end tunnels.
    pub(crate) fn tunnels(&self) -> bool {
        self.mode != Mode::NoEncap
    }
}

impl Node {
    /// The Node with that number, from 1; nothing if there can't be so many.
    fn new(number: u16) -> Option<Self> {
        let host = u8::try_from(number).ok()?.checked_add(10)?;
        // With two Nodes there is one subnet; with three, Hybrid mode has something of both.
        let segment = if number.is_multiple_of(3) { Segment::B } else { Segment::A };
        let octet = u8::try_from(number).ok()?;
        let v4 = Ipv4Net::new(Ipv4Addr::new(10, 10, octet, 0), 24).ok()?;
        let v6 = Ipv6Net::new(Ipv6Addr::new(0xfd00, 0x10, 0x10, number, 0, 0, 0, 0), 64).ok()?;
        Some(Self {
            name: format!("node-{number}"),
            segment,
            ipv4: segment.ipv4(host),
            ipv6: segment.ipv6(host),
            pod_cidrs: [v4.into(), v6.into()],
        })
    }

    /// The address of its family as one of this Node's.
    pub(crate) fn address_for(&self, net: &IpNet) -> IpAddr {
        match net {
            IpNet::V4(_) => self.ipv4.into(),
            IpNet::V6(_) => self.ipv6.into(),
        }
    }
}

/// The MAC address of the interface with that address: so everybody knows everybody's.
pub(crate) fn mac(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("0a:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// Why a lab can't be called that.
pub(crate) fn wrong_name(name: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = !name.is_empty() && name.len() <= 40 && !name.starts_with('-') && name.chars().all(fits);
    (!good).then(|| format!("a lab can't be called {name:?}: use up to 40 small letters, digits and hyphens"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plan(nodes: u16) -> Plan {
        Plan::new("t", nodes, Mode::Encap, Tunnel::Geneve, Kubernetes::Embedded, Network::Antrea)
    }

    #[test]
    fn the_largest_lab_has_no_address_twice_and_all_are_where_they_belong() {
        let plan = plan(MOST_NODES);
        assert_eq!(plan.nodes.len(), usize::from(MOST_NODES));
        let mut seen = BTreeSet::from([IpAddr::from(API), OUTSIDE.0.into(), OUTSIDE.1.into()]);
        for (v4, v6) in Segment::ALL.map(Segment::router) {
            assert!(seen.insert(v4.into()) && seen.insert(v6.into()));
        }
        let pods: Vec<IpNet> = POD_NETS.iter().map(|net| net.parse().unwrap()).collect();
        for node in &plan.nodes {
            assert!(seen.insert(node.ipv4.into()) && seen.insert(node.ipv6.into()), "{node:?}");
            assert!(pods[0].contains(&node.pod_cidrs[0]) && pods[1].contains(&node.pod_cidrs[1]), "{node:?}");
            assert!(plan.peers(node).all(|peer| peer.pod_cidrs[0] != node.pod_cidrs[0]));
        }
        let services: Vec<IpNet> = SERVICE_NETS.iter().map(|net| net.parse().unwrap()).collect();
        assert!(services[0].contains(&IpAddr::from(DNS)));
        assert!(!services[0].contains(&pods[0]) && !services[1].contains(&pods[1]));
    }

    #[test]
    fn three_nodes_are_in_two_subnets_and_two_in_one() {
        let segments = |count| plan(count).nodes.iter().map(|node| node.segment).collect::<Vec<_>>();
        assert_eq!(segments(2), [Segment::A, Segment::A]);
        assert_eq!(segments(3), [Segment::A, Segment::A, Segment::B]);
    }

    #[test]
    fn who_joins_takes_the_first_place_that_is_free() {
        let mut plan = plan(3);
        assert_eq!(plan.another().unwrap().name, "node-4");
        let left = plan.nodes.remove(1);
        assert_eq!(plan.another(), Some(left));
        assert_eq!(self::plan(MOST_NODES).another(), None);
    }

    #[test]
    fn a_name_that_is_no_directory_is_refused_with_what_would_do() {
        assert_eq!(wrong_name("two-labs-2"), None);
        for name in ["", "../x", "A", "a b", "-a", &"a".repeat(41)] {
            assert!(wrong_name(name).is_some_and(|why| why.contains("small letters")), "{name}");
        }
    }
}
