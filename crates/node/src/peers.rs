//! The other Nodes, and the ways to them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use pipeline::model::{Mode, Peer, PeerPath};
use types::InvalidField;
use types::node::Node;

use crate::addressing::{Own, pod_cidrs, reserved, transport_addresses};

/// Another Node, as this one reaches it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerNode {
    /// The addresses at which it is reached.
    pub addresses: Vec<IpAddr>,
    /// Its Pod subnets.
    pub peers: Vec<Peer>,
}

impl PeerNode {
    /// Its address of the family of a subnet of its Pods, where it is in one of these subnets: the next hop of a plain route.
    pub(crate) fn neighbour(&self, pod_cidr: IpNet, subnets: &[IpNet]) -> Option<IpAddr> {
        let v4 = pod_cidr.addr().is_ipv4();
        let near = |ip: &&IpAddr| ip.is_ipv4() == v4 && subnets.iter().any(|subnet| subnet.contains(*ip));
        self.addresses.iter().find(near).copied()
    }
}

/// The ways to all Nodes but this one, and what stands in the way.
///
/// A Pod subnet belongs to one Node: where two overlap, this Node's counts, then that of the first by name.
pub fn peers<'a>(
    own: &'a Own,
    nodes: impl IntoIterator<Item = (&'a String, &'a Node)>,
) -> (BTreeMap<String, PeerNode>, Vec<InvalidField>) {
    let mut taken = Taken::default();
    for address in own.families() {
        taken.claim(address.pod_cidr, &own.name);
    }
    let (mut peers, mut problems) = (BTreeMap::new(), Vec::new());
    for (name, node) in nodes {
        if *name == own.name {
            continue;
        }
        match peer(own, node, &mut taken) {
            Ok(Some(peer)) => _ = peers.insert(name.clone(), peer),
            // It has no Pods yet.
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    (peers, problems)
}

fn peer<'a>(own: &Own, node: &'a Node, taken: &mut Taken<'a>) -> Result<Option<PeerNode>, InvalidField> {
    let invalid = |field: &str, problem: String| InvalidField {
        kind: "Node",
        name: node.metadata.object_name(),
        field: field.to_owned(),
        problem,
    };
    let cidrs = pod_cidrs(node)?;
    let addresses = transport_addresses(node)?;
    let Some(first) = addresses.first().copied() else {
        return Err(invalid("status.addresses", "has no InternalIP, so there is no way to its Pods".to_owned()));
    };
    let mut peers = Vec::new();
    for cidr in cidrs {
        let Some((gateway, _)) = reserved(cidr) else {
            return Err(invalid("spec.podCIDRs", format!("{cidr} has no room for a gateway and a Pod")));
        };
        if let Some((other, owner)) = taken.claim(cidr, &node.metadata.name) {
            return Err(invalid("spec.podCIDRs", format!("{cidr} overlaps {other} of Node {owner}, which keeps it")));
        }
        let near = addresses.iter().any(|ip| own.transport_subnets.iter().any(|subnet| subnet.contains(ip)));
        let path = match own.mode {
            Mode::Encap => PeerPath::Tunnel(first),
            Mode::Hybrid if !near => PeerPath::Tunnel(first),
            Mode::Hybrid | Mode::NoEncap => PeerPath::Route,
            Mode::NetworkPolicyOnly => continue,
        };
        peers.push(Peer { pod_cidr: cidr, gateway, path });
    }
    Ok((!peers.is_empty()).then_some(PeerNode { addresses, peers }))
}

/// Pod subnets that are some Node's; no two of them overlap.
#[derive(Default)]
struct Taken<'a>(BTreeMap<IpAddr, (IpNet, &'a str)>);

impl<'a> Taken<'a> {
    /// Takes a subnet, or says which other one it overlaps.
    fn claim(&mut self, cidr: IpNet, owner: &'a str) -> Option<(IpNet, &'a str)> {
        // What overlaps begins within the subnet, or is the last to begin before it.
        let within = self.0.range(cidr.network()..=cidr.broadcast()).next();
        let before = self.0.range(..cidr.network()).next_back().filter(|(_, (other, _))| other.contains(&cidr));
        if let Some((_, taken)) = within.or(before) {
            return Some(*taken);
        }
        self.0.insert(cidr.network(), (cidr, owner));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_is_taken_once_whatever_its_size() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let mut taken = Taken::default();
        assert_eq!(taken.claim(net("10.10.1.0/24"), "a"), None);
        assert_eq!(taken.claim(net("10.10.2.0/24"), "b"), None);
        assert_eq!(taken.claim(net("10.10.1.128/25"), "c"), Some((net("10.10.1.0/24"), "a")), "inside");
        assert_eq!(taken.claim(net("10.10.0.0/16"), "d"), Some((net("10.10.1.0/24"), "a")), "around");
        assert_eq!(taken.claim(net("10.10.2.0/24"), "e"), Some((net("10.10.2.0/24"), "b")), "the same");
        assert_eq!(taken.claim(net("fd00::/64"), "f"), None);
        assert_eq!(taken.claim(net("10.10.0.0/24"), "g"), None);
    }
}
