//! The plan of a lab: names, addresses and options. Pure data, from which the supervisor builds the lab.
//!
//! All labs have the same addresses. They do not conflict: they exist only in the lab's own namespaces, which have no
//! connection to the host or to other labs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use clap::ValueEnum;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use types::network::{Datapath, Mode, Tunnel};

/// Maximum number of Nodes, which the address plan limits to about 240.
pub(crate) const MAX_NODES: u16 = 200;
/// Maximum number of controllers: the addresses between the API's and the first Node's.
pub(crate) const MAX_CONTROLLERS: u16 = 5;
/// Address of the Kubernetes API for Nodes and Pods.
pub const API: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 2);
/// Port of the Kubernetes API for Nodes and Pods.
pub const API_PORT: u16 = 6443;
/// Addresses of the host outside of the cluster, which is a client and a server.
pub const OUTSIDE: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(203, 0, 113, 10), Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 10));
/// Ranges of the addresses of all Pods, one per family.
pub const POD_NETS: [&str; 2] = ["10.10.0.0/16", "fd00:10:10::/48"];
/// Ranges of the ClusterIPs, one per family.
pub const SERVICE_NETS: [&str; 2] = ["10.96.0.0/16", "fd00:10:96::/112"];
/// ClusterIP of the cluster's DNS server.
pub(crate) const DNS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// DNS domain of the cluster.
pub(crate) const DOMAIN: &str = "cluster.local";

/// The implementation of the Kubernetes API.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kubernetes {
    /// The small API server inside the supervisor
    Embedded,
    /// etcd, kube-apiserver, kube-controller-manager and kube-scheduler, as `make kubernetes` builds them
    Real,
}

/// The kubelet of the Nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kubelet {
    /// The small kubelet of the lab, which runs commands instead of images
    Lab,
    /// kubelet, as `make kubernetes` builds it, with containerd and runc; antrea-rs is installed with its manifests
    Real,
}

/// The network plugin of the Pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Network {
    /// antrea-agent and antrea-cni, from the directory of antrea-lab
    Antrea,
    /// Debian's `bridge` CNI plugin and static routes, without Services
    Bridge,
    /// None: for a network that you install yourself; needs `--kubelet real`
    None,
}

/// The implementation of Services.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Services {
    /// antrea-agent, for all clients
    Antrea,
    /// antrea-agent for clients in Pods, kube-proxy for Nodes and external clients
    Both,
    /// kube-proxy, for all clients; `make kubernetes` builds it
    KubeProxy,
}

/// The plan of one lab, from the options of `antrea-lab up`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) tunnel: Tunnel,
    /// The datapath of the Nodes' switches.
    pub(crate) datapath: Datapath,
    pub(crate) kubernetes: Kubernetes,
    pub(crate) kubelet: Kubelet,
    pub(crate) network: Network,
    pub(crate) services: Services,
    /// Number of antrea-controller replicas.
    pub(crate) controllers: u16,
    /// Whether agents record their events.
    pub(crate) record: bool,
    /// Directory of antrea-agent, antrea-cni and antrea-controller.
    pub(crate) programs: PathBuf,
    /// Image archives that the containerd of every Node imports.
    pub(crate) images: Vec<PathBuf>,
    pub(crate) nodes: Vec<Node>,
}

/// Name and addresses of one Node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) segment: Segment,
    pub(crate) ipv4: Ipv4Addr,
    pub(crate) ipv6: Ipv6Addr,
    pub(crate) pod_cidrs: [IpNet; 2],
}

/// A subnet of the underlay: a bridge that is connected to the router.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum Segment {
    /// The subnet of most Nodes, and of the Kubernetes API.
    A,
    /// The subnet of every third Node.
    B,
    /// The subnet of the host outside of the cluster.
    Outside,
}

impl Segment {
    pub(crate) const ALL: [Self; 3] = [Self::A, Self::B, Self::Outside];

    /// Name of the bridge, and of the router's interface on it.
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

    /// The router's addresses in this subnet.
    pub(crate) fn router(self) -> (Ipv4Addr, Ipv6Addr) {
        (self.ipv4(1), self.ipv6(1))
    }
}

impl Plan {
    /// A plan with `nodes` Nodes, at most [`MAX_NODES`].
    pub(crate) fn new(
        name: &str,
        nodes: u16,
        mode: Mode,
        tunnel: Tunnel,
        kubernetes: Kubernetes,
        network: Network,
    ) -> Self {
        let nodes = (1..=nodes.min(MAX_NODES)).filter_map(Node::new).collect();
        let controllers = u16::from(network == Network::Antrea);
        Self {
            name: name.to_owned(),
            mode,
            tunnel,
            datapath: Datapath::Netdev,
            kubernetes,
            kubelet: Kubelet::Lab,
            network,
            services: Services::Antrea,
            controllers,
            record: false,
            programs: PathBuf::new(),
            images: Vec::new(),
            nodes,
        }
    }

    /// The Node called `name`, if it exists.
    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// All Nodes except `node`.
    pub(crate) fn peers<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        self.nodes.iter().filter(move |peer| peer.name != node.name)
    }

    /// All other Nodes in the subnet of `node`.
    pub(crate) fn near<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        self.peers(node).filter(|peer| peer.segment == node.segment)
    }

    /// The next Node to join: the lowest unused number. `None` if the lab is full.
    pub(crate) fn next_node(&self) -> Option<Node> {
        (1..=MAX_NODES).filter_map(Node::new).find(|node| self.node(&node.name).is_none())
    }

    /// Whether the router needs routes to the Pod CIDRs. With real kubelets the API server connects to Pods, for webhooks and
    /// for `kubectl proxy`, and it does not run on a Node.
    pub(crate) fn routes_pod_cidrs(&self) -> bool {
        self.network == Network::Bridge || self.mode == Mode::NoEncap || self.kubelet == Kubelet::Real
    }

    /// Whether the lab runs agents and controllers as processes. With a real kubelet they are Pods.
    pub(crate) fn runs_programs(&self) -> bool {
        self.network == Network::Antrea && self.kubelet == Kubelet::Lab
    }

    /// Whether Nodes run kube-proxy.
    pub(crate) fn has_kube_proxy(&self) -> bool {
        self.network != Network::Bridge && self.services != Services::Antrea
    }
}

impl Node {
    /// The Node with this number, counted from 1; `None` if the number is too high.
    fn new(number: u16) -> Option<Self> {
        let host = u8::try_from(number).ok()?.checked_add(10)?;
        // Three Nodes are in two subnets, so that hybrid mode uses both routes and tunnels.
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

    /// The Node's address in the family of `net`.
    pub(crate) fn address_for(&self, net: &IpNet) -> IpAddr {
        match net {
            IpNet::V4(_) => self.ipv4.into(),
            IpNet::V6(_) => self.ipv6.into(),
        }
    }
}

/// The MAC of the underlay interface with this address. It is derived, so that switches need no ARP.
pub(crate) fn mac(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("0a:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// The error for an invalid lab name; `None` if the name is valid.
pub(crate) fn invalid_name(name: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = !name.is_empty() && name.len() <= 40 && !name.starts_with('-') && name.chars().all(fits);
    (!good).then(|| format!("invalid lab name {name:?}: use up to 40 lower-case letters, digits and hyphens"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plan(nodes: u16) -> Plan {
        Plan::new("t", nodes, Mode::Encap, Tunnel::Geneve, Kubernetes::Embedded, Network::Antrea)
    }

    #[test]
    fn addresses_of_the_largest_lab_are_unique_and_in_their_ranges() {
        let plan = plan(MAX_NODES);
        assert_eq!(plan.nodes.len(), usize::from(MAX_NODES));
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
    fn a_joining_node_gets_the_lowest_free_number() {
        let mut plan = plan(3);
        assert_eq!(plan.next_node().unwrap().name, "node-4");
        let left = plan.nodes.remove(1);
        assert_eq!(plan.next_node(), Some(left));
        assert_eq!(self::plan(MAX_NODES).next_node(), None);
    }

    #[test]
    fn an_invalid_lab_name_is_an_error_with_the_allowed_characters() {
        assert_eq!(invalid_name("two-labs-2"), None);
        for name in ["", "../x", "A", "a b", "-a", &"a".repeat(41)] {
            assert!(invalid_name(name).is_some_and(|why| why.contains("lower-case letters")), "{name}");
        }
    }
}
