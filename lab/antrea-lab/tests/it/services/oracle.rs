//! The expected behaviour of Services, from the documentation of Kubernetes and from kube-proxy.
//!
//! Clients use the node ports of node-1, which is also the next hop of the outside for external addresses. Connections of Pods
//! and Nodes to ClusterIPs and external addresses are handled by their own Node.

use std::fmt;

/// The kind of frontend that the client uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalIp,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Client {
    PodOnNode1,
    PodOnNode2,
    Node1,
    Node2,
    Outside,
}

/// The only endpoint of the Service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Backend {
    PodOnNode1,
    PodOnNode3,
    HostOfNode1,
    HostOfNode3,
    /// The client Pod itself.
    Itself,
    None,
}

/// The outcome, as far as Kubernetes specifies it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Expected {
    /// The endpoint sees the client's own address.
    Client,
    /// The endpoint sees an address of that Node.
    Node(u8),
    /// A Pod that asks itself sees any address but its own.
    Hairpin,
    Refused,
    Dropped,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::ClusterIp, Self::NodePort, Self::LoadBalancer, Self::ExternalIp];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::ClusterIp => "cluster IP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "load balancer",
            Self::ExternalIp => "external IP",
        }
    }
}

impl Client {
    pub(crate) const ALL: [Self; 5] = [Self::PodOnNode1, Self::PodOnNode2, Self::Node1, Self::Node2, Self::Outside];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::PodOnNode1 => "a Pod on node-1",
            Self::PodOnNode2 => "a Pod on node-2",
            Self::Node1 => "node-1",
            Self::Node2 => "node-2",
            Self::Outside => "outside",
        }
    }

    fn is_pod(self) -> bool {
        matches!(self, Self::PodOnNode1 | Self::PodOnNode2)
    }

    /// The Node that it is, or is on.
    fn node(self) -> Option<u8> {
        match self {
            Self::PodOnNode1 | Self::Node1 => Some(1),
            Self::PodOnNode2 | Self::Node2 => Some(2),
            Self::Outside => None,
        }
    }
}

impl Backend {
    pub(crate) const ALL: [Self; 6] =
        [Self::PodOnNode1, Self::PodOnNode3, Self::HostOfNode1, Self::HostOfNode3, Self::Itself, Self::None];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::PodOnNode1 => "a Pod on node-1",
            Self::PodOnNode3 => "a Pod on node-3",
            Self::HostOfNode1 => "on node-1's network",
            Self::HostOfNode3 => "on node-3's network",
            Self::Itself => "the client itself",
            Self::None => "none",
        }
    }

    /// The Node that it is on, for a client.
    fn node(self, client: Client) -> Option<u8> {
        match self {
            Self::PodOnNode1 | Self::HostOfNode1 => Some(1),
            Self::PodOnNode3 | Self::HostOfNode3 => Some(3),
            Self::Itself => client.node(),
            Self::None => None,
        }
    }

    fn is_on_host(self) -> bool {
        matches!(self, Self::HostOfNode1 | Self::HostOfNode3)
    }
}

/// Whether the case exists: external clients cannot reach ClusterIPs, and only a Pod can be its own endpoint here.
pub(crate) fn is_a_case(kind: Kind, client: Client, backend: Backend) -> bool {
    let reachable = kind != Kind::ClusterIp || client != Client::Outside;
    reachable && (backend != Backend::Itself || client.is_pod())
}

/// The expected outcome. With `local`, the traffic policy is Local, otherwise Cluster.
pub(crate) fn expected(kind: Kind, client: Client, backend: Backend, local: bool) -> Expected {
    let Some(backend_node) = backend.node(client) else { return Expected::Refused };
    // The Node that chooses the endpoint.
    let entry = match kind {
        Kind::NodePort => 1,
        _ => client.node().unwrap_or(1),
    };
    let is_external = kind != Kind::ClusterIp;
    // externalTrafficPolicy Local does not apply to clients on the Node that selects the endpoint.
    let short_cut = is_external && client.node() == Some(entry);
    if local && backend_node != entry && !short_cut {
        return Expected::Dropped;
    }
    if backend == Backend::Itself && client.node() == Some(entry) {
        return Expected::Hairpin;
    }
    // Connections of a Pod to another Node have the source address of its own Node.
    let comes_as_client = client.node() == Some(entry) || !client.is_pod();
    // Antrea's way to an endpoint on the choosing Node's own network leads through the switch and back, so that the host must
    // not see its clients' addresses: there policy Local loses them, which Kubernetes does not want.
    let lost = is_external && !short_cut && backend == Backend::HostOfNode1;
    let masqueraded = lost || is_external && !local && !(client.is_pod() && short_cut);
    match client.node() {
        _ if masqueraded => Expected::Node(entry),
        Some(node) if !comes_as_client => Expected::Node(node),
        // The same for connections to the network of another Node or its own: Pod addresses are used between Pods only.
        Some(node) if client.is_pod() && backend.is_on_host() && backend_node != node => Expected::Node(node),
        _ => Expected::Client,
    }
}

/// Additional outcomes that are correct for kube-proxy: it masquerades more often, and the kernel limits the rate of ICMP errors.
pub(crate) fn by_kube_proxy(kind: Kind, client: Client, backend: Backend, local: bool) -> Vec<Expected> {
    let expected = expected(kind, client, backend, local);
    let from_pod_to_pod = client.is_pod() && matches!(backend, Backend::PodOnNode1 | Backend::PodOnNode3);
    match expected {
        Expected::Refused => vec![Expected::Refused, Expected::Dropped],
        Expected::Dropped => vec![Expected::Dropped],
        // Policy Local keeps the client address.
        _ if local && client == Client::Outside => vec![Expected::Client],
        _ if kind == Kind::ClusterIp && from_pod_to_pod => vec![expected],
        _ => [Expected::Client, Expected::Hairpin].into_iter().chain((1..=3).map(Expected::Node)).collect(),
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("client"),
            Self::Node(number) => write!(f, "node-{number}"),
            Self::Hairpin => f.write_str("other"),
            Self::Refused => f.write_str("refused"),
            Self::Dropped => f.write_str("dropped"),
        }
    }
}
