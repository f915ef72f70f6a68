//! The other Nodes, and how this one reaches them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use openflow::flow::Flow;
use pipeline::Pipeline;
use pipeline::model::{Mode, Peer, PeerPath};
use types::InvalidField;
use types::node::Node;

use crate::addressing::{Own, all_addresses, pod_cidrs, reserved, transport_addresses};
use crate::underlay::{Role, Underlay};

/// Another Node, as this one reaches it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerNode {
    /// The addresses at which it is reached.
    pub addresses: Vec<IpAddr>,
    /// All its known addresses except those in a Pod subnet: sources of its host's and its tunnels' packets.
    pub host_addresses: BTreeSet<IpAddr>,
    /// Its Pod subnets, each with its path.
    pub peers: Vec<Peer>,
}

impl PeerNode {
    /// The flows for the Node: the paths to its Pods, and the tunnel sources accepted from it.
    pub fn flows(&self, pipeline: &Pipeline) -> Vec<Flow> {
        let subnets = self.peers.iter().flat_map(|peer| pipeline.peer(peer));
        subnets.chain(pipeline.peer_node(&self.host_addresses, &self.peers)).collect()
    }

    /// Its address in the family of one of its Pod subnets, if it is in one of these subnets: the next hop of a plain route.
    pub(crate) fn neighbour(&self, pod_cidr: IpNet, subnets: &[IpNet]) -> Option<IpAddr> {
        let v4 = pod_cidr.addr().is_ipv4();
        let near = |ip: &&IpAddr| ip.is_ipv4() == v4 && subnets.iter().any(|subnet| subnet.contains(*ip));
        self.addresses.iter().find(near).copied()
    }
}

/// The cluster's Nodes as [`survey`] found them.
#[derive(Debug, Default)]
pub struct Survey {
    /// All reachable Nodes except this one.
    pub peers: BTreeMap<String, PeerNode>,
    /// Conflicts and invalid fields.
    pub problems: Vec<InvalidField>,
    pub(crate) underlay: Underlay,
}

/// Computes the paths to all Nodes except this one.
///
/// A Pod subnet belongs to one Node, and contains no address of a Node. If two Nodes claim the same, this Node's own claim
/// wins, then that of the Node created first: a Node that joins takes nothing from another. Of two that were created in the
/// same second, the first by name wins.
///
/// `endpoints` are addresses of the Kubernetes API and of antrea-controller, from their Services.
pub fn survey<'a>(
    own: &Own,
    nodes: impl IntoIterator<Item = (&'a String, &'a Node)>,
    endpoints: &ControlEndpoints,
) -> Survey {
    let mut survey = Survey { underlay: Underlay::of(own), ..Survey::default() };
    survey.underlay.insert(endpoints.api_servers.iter().copied(), &Role::ApiServer);
    let mut by_age: Vec<&Node> = nodes.into_iter().map(|(_, node)| node).collect();
    // A Node without a creation timestamp counts as the youngest.
    by_age.sort_by_key(|node| {
        let created = node.metadata.creation_timestamp;
        (created.is_none(), created, &node.metadata.name)
    });
    let (mine, others): (Vec<&Node>, Vec<&Node>) = by_age.iter().partition(|node| node.metadata.name == own.name);
    for node in mine {
        survey.underlay.insert(all_addresses(node), &Role::Own);
        let older = by_age.iter().take_while(|other| other.metadata.name != own.name);
        survey.problems.extend(older.filter_map(|older| overlap_with_older(own, node, older)));
    }
    for node in others {
        match peer(own, node, &mut survey.underlay) {
            Ok(Some(peer)) => _ = survey.peers.insert(node.metadata.name.clone(), peer),
            // It has no Pod subnet yet.
            Ok(None) => {}
            Err(problem) => survey.problems.push(problem),
        }
    }
    let Survey { peers, underlay, .. } = &mut survey;
    for peer in peers.values_mut() {
        // A younger Node may have claimed a subnet around an address after it was accepted.
        peer.host_addresses.retain(|address| underlay.pod_subnet(*address).is_none());
    }
    // The controller may be a Pod, so its address does not conflict with Pod subnets.
    survey.underlay.insert(endpoints.controllers.iter().copied(), &Role::Controller);
    survey.problems.sort_by(|a, b| (&a.name, &a.field).cmp(&(&b.name, &b.field)));
    survey
}

/// Addresses of the Kubernetes API and antrea-controller, from their Services.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ControlEndpoints {
    /// The endpoints of the Service `kubernetes`.
    pub api_servers: BTreeSet<IpAddr>,
    /// The endpoints of the controller's Service.
    pub controllers: BTreeSet<IpAddr>,
}

fn invalid(node: &Node, field: &str, problem: String) -> InvalidField {
    InvalidField { kind: "Node", name: node.metadata.object_name(), field: field.to_owned(), problem }
}

/// On this Node, its own Pod subnet always wins; on other Nodes an older Node wins.
fn overlap_with_older(own: &Own, node: &Node, older: &Node) -> Option<InvalidField> {
    let theirs = pod_cidrs(older).unwrap_or_default();
    let overlaps = |mine: &IpNet, their: &IpNet| mine.contains(their) || their.contains(mine);
    let (mine, their) = own.families().find_map(|address| {
        let their = theirs.iter().find(|their| overlaps(&address.pod_cidr, their))?;
        Some((address.pod_cidr, their))
    })?;
    let problem = format!(
        "{mine} overlaps {their} of Node {}, which is older: the Pods of this Node are unreachable from other Nodes until \
         one of the two is recreated with another podCIDR",
        older.metadata.name
    );
    Some(invalid(node, "spec.podCIDRs", problem))
}

fn peer(own: &Own, node: &Node, underlay: &mut Underlay) -> Result<Option<PeerNode>, InvalidField> {
    let name = &node.metadata.name;
    let published = transport_addresses(node);
    let all = all_addresses(node).into_iter().chain(published.iter().flatten().copied());
    // Excludes addresses in the Pod subnet of an older Node: claiming one does not make it a Node's.
    let (inside, outside): (Vec<IpAddr>, Vec<IpAddr>) = all.partition(|ip| underlay.pod_subnet(*ip).is_some());
    underlay.insert(outside.iter().copied(), &Role::Node(name.clone()));
    let cidrs = pod_cidrs(node)?;
    let addresses = published?;
    let Some(first) = addresses.first().copied() else {
        return Err(invalid(node, "status.addresses", "has no InternalIP, so its Pods are unreachable".to_owned()));
    };
    if let Some((ip, (cidr, owner))) = inside.iter().find_map(|ip| Some((ip, underlay.pod_subnet(*ip)?))) {
        let problem = format!(
            "{ip} is in {cidr}, the Pod subnet of Node {owner}, so its Pods are unreachable; \
             correct the address, or delete the Node that claims it wrongly"
        );
        return Err(invalid(node, "status.addresses", problem));
    }
    let mut peers = Vec::new();
    for cidr in cidrs {
        let Some((gateway, _)) = reserved(cidr) else {
            return Err(invalid(node, "spec.podCIDRs", format!("{cidr} is too small for a gateway and a Pod")));
        };
        if let Err(problem) = underlay.claim(cidr, name) {
            let problem =
                format!("{problem}; its Pods are unreachable until the Node is recreated with another podCIDR");
            return Err(invalid(node, "spec.podCIDRs", problem));
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
    let host_addresses = outside.into_iter().collect();
    Ok((!peers.is_empty()).then_some(PeerNode { addresses, host_addresses, peers }))
}
