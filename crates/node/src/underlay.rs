//! Addresses that this Node has to reach without the bridge: a route of ours to them would cut the Node off.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use types::ObjectName;

use crate::addressing::Own;

/// How this Node reaches the Kubernetes API and the controller, determined at start.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
pub struct ControlPath {
    /// The addresses at which the agent reaches the Kubernetes API.
    pub api_servers: Vec<IpAddr>,
    /// These are the cluster IP of the Service `kubernetes`, which may be reached by a route to Services.
    pub by_cluster_ip: bool,
    /// The next hops of this Node's default routes.
    pub routers: Vec<IpAddr>,
    /// Namespace and name of antrea-controller's Service.
    pub controller: ObjectName,
}

impl ControlPath {
    /// Our routes that cut the agent off from the API: to its address, through the bridge or another Node. If that address is a
    /// cluster IP, a route through the virtual Service address is correct.
    pub fn poisoned<'a>(
        &self,
        routes: &'a BTreeSet<types::host::Route>,
    ) -> impl Iterator<Item = &'a types::host::Route> {
        use pipeline::model::Address;
        let services: [IpAddr; 2] = [Address::VIRTUAL_SERVICE.into(), Address::VIRTUAL_SERVICE6.into()];
        routes.iter().filter(move |route| {
            let is_service_route = route.via.is_some_and(|via| services.contains(&via));
            self.api_servers.iter().any(|ip| route.destination.contains(ip))
                && !(self.by_cluster_ip && is_service_route)
        })
    }
}

/// Use of an address outside of the Pod network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// One of this Node's addresses.
    Own,
    /// One of another Node's addresses.
    Node(String),
    /// An address of the Kubernetes API.
    ApiServer,
    /// An address of antrea-controller.
    Controller,
    /// The next hop of a default route.
    Router,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Own => f.write_str("an address of this Node"),
            Role::Node(name) => write!(f, "an address of Node {name}"),
            Role::ApiServer => f.write_str("an address of the Kubernetes API"),
            Role::Controller => f.write_str("an address of antrea-controller"),
            Role::Router => f.write_str("the default gateway of this Node"),
        }
    }
}

/// Addresses that this Node reaches without the bridge, and Pod subnets that it reaches through it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Underlay {
    addresses: BTreeMap<IpAddr, Role>,
    /// Subnets that this Node shares with others.
    subnets: Vec<IpNet>,
    pods: Taken,
}

impl Underlay {
    /// The part that depends on this Node alone.
    pub(crate) fn of(own: &Own) -> Self {
        let mut underlay = Self::default();
        for address in own.families() {
            underlay.pods.claim(address.pod_cidr, &own.name);
        }
        // If this Node's Pods have addresses in a subnet of Nodes, those of other Nodes may as well.
        let is_apart = |subnet: &&IpNet| !own.families().any(|address| subnet.contains(&address.pod_cidr));
        underlay.subnets = own.transport_subnets.iter().filter(is_apart).copied().collect();
        let addresses = own.families().map(|address| address.node).chain(own.node_port_addresses.iter().copied());
        underlay.insert(addresses.filter(|ip| !ip.is_loopback()), &Role::Own);
        underlay.insert(own.control_path.api_servers.iter().copied(), &Role::ApiServer);
        underlay.insert(own.control_path.routers.iter().copied(), &Role::Router);
        underlay
    }

    /// Adds addresses with a role. The first role of an address is kept.
    pub(crate) fn insert(&mut self, addresses: impl IntoIterator<Item = IpAddr>, role: &Role) {
        for address in addresses {
            self.addresses.entry(address).or_insert_with(|| role.clone());
        }
    }

    /// Claims a Pod subnet for a Node, or returns what it conflicts with.
    pub(crate) fn claim(&mut self, cidr: IpNet, node: &str) -> Result<(), String> {
        if let Some((address, role)) = self.addresses.range(cidr.network()..=cidr.broadcast()).next() {
            return Err(format!("{cidr} contains {address}, {role}"));
        }
        if let Some(subnet) = self.subnets.iter().find(|subnet| overlap(subnet, &cidr)) {
            return Err(format!("{cidr} overlaps {subnet}, a subnet of Nodes"));
        }
        match self.pods.claim(cidr, node) {
            Some((other, owner)) => Err(format!("{cidr} overlaps {other} of Node {owner}, which keeps it")),
            None => Ok(()),
        }
    }

    /// The role of an address that is reached without the bridge.
    pub(crate) fn role(&self, address: IpAddr) -> Option<&Role> {
        self.addresses.get(&address)
    }

    /// The Pod subnet that contains an address, and its Node.
    pub(crate) fn pod_subnet(&self, address: IpAddr) -> Option<(IpNet, &str)> {
        self.pods.find(address)
    }

    /// Whether a route to a subnet covers no address of the underlay except those in `meant`.
    pub(crate) fn is_clear_of(&self, net: IpNet, meant: &BTreeSet<IpAddr>) -> bool {
        let covered = self.addresses.range(net.network()..=net.broadcast()).any(|(ip, _)| !meant.contains(ip));
        !covered && !self.subnets.iter().any(|subnet| overlap(subnet, &net))
    }

    /// All addresses that are reached without the bridge.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.keys().copied()
    }

    /// The addresses of all Nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = IpAddr> {
        let is_node = |(_, role): &(&IpAddr, &Role)| matches!(role, Role::Own | Role::Node(_));
        self.addresses.iter().filter(is_node).map(|(ip, _)| *ip)
    }
}

fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// Pod subnets with their Nodes; no two overlap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Taken(BTreeMap<IpAddr, (IpNet, String)>);

impl Taken {
    /// Claims a subnet, or returns the one that it overlaps.
    fn claim(&mut self, cidr: IpNet, owner: &str) -> Option<(IpNet, &str)> {
        // An overlapping subnet starts within this one, or is the last to start before it.
        let within = self.0.range(cidr.network()..=cidr.broadcast()).next().map(|(begin, _)| *begin);
        let before = self.0.range(..cidr.network()).next_back().filter(|(_, (other, _))| other.contains(&cidr));
        let Some(taken) = within.or(before.map(|(begin, _)| *begin)) else {
            self.0.insert(cidr.network(), (cidr, owner.to_owned()));
            return None;
        };
        self.0.get(&taken).map(|(other, owner)| (*other, owner.as_str()))
    }

    /// The subnet that contains an address.
    fn find(&self, address: IpAddr) -> Option<(IpNet, &str)> {
        let (_, (cidr, owner)) = self.0.range(..=address).next_back()?;
        cidr.contains(&address).then_some((*cidr, owner.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_subnet_is_taken_once_whatever_its_size() {
        let mut taken = Taken::default();
        assert_eq!(taken.claim(net("10.10.1.0/24"), "a"), None);
        assert_eq!(taken.claim(net("10.10.2.0/24"), "b"), None);
        assert_eq!(taken.claim(net("10.10.1.128/25"), "c"), Some((net("10.10.1.0/24"), "a")), "inside");
        assert_eq!(taken.claim(net("10.10.0.0/16"), "d"), Some((net("10.10.1.0/24"), "a")), "around");
        assert_eq!(taken.claim(net("10.10.2.0/24"), "e"), Some((net("10.10.2.0/24"), "b")), "the same");
        assert_eq!(taken.claim(net("fd00::/64"), "f"), None);
        assert_eq!(taken.claim(net("10.10.0.0/24"), "g"), None);
        assert_eq!(taken.find(ip("10.10.2.9")), Some((net("10.10.2.0/24"), "b")));
        assert_eq!(taken.find(ip("10.10.3.0")), None);
        assert_eq!(taken.find(ip("fd00::1")), Some((net("fd00::/64"), "f")));
    }

    #[test]
    fn routes_that_cut_the_agent_off_from_the_api_are_found() {
        use types::host::Route;
        let virtual_service = pipeline::model::Address::VIRTUAL_SERVICE.into();
        let service = |destination: &str| Route::onlink(net(destination), virtual_service, "antrea-gw0");
        let peer = |destination: &str| Route::onlink(net(destination), ip("192.168.1.1"), "antrea-gw0");
        let routes: BTreeSet<Route> =
            [service("192.168.1.1/32"), service("10.96.0.0/16"), peer("192.168.1.0/25"), peer("10.10.1.0/24")].into();
        let found = |api: &str, by_cluster_ip: bool| {
            let path = ControlPath { api_servers: vec![ip(api)], by_cluster_ip, ..ControlPath::default() };
            path.poisoned(&routes).map(|route| route.destination.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(found("192.168.1.1", false), ["192.168.1.0/25", "192.168.1.1/32"]);
        assert_eq!(found("10.96.0.1", true), [""; 0], "this is the route to the Service");
        assert_eq!(found("10.10.1.1", true), ["10.10.1.0/24"]);
    }
}
