//! Tunnels that end in the userspace datapath.
//!
//! There the switch itself sends tunnel packets. It needs flows on the transport bridge, and the next hop to each Node with its
//! MAC: those that the kernel would use. ovs-vswitchd keeps them in memory only.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use openflow::flow::Flow;
use pipeline::model::PeerPath;
use types::Mac;

use crate::addressing::Own;
use crate::peers::PeerNode;

/// Desired state of the tunnels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tunnels {
    /// All flows of the transport bridge.
    pub flows: Vec<Flow>,
    /// The device that tunnel packets leave by.
    pub device: String,
    /// The source address of tunnel packets.
    pub source: IpAddr,
    /// Addresses of the Nodes at the other ends.
    pub peers: BTreeSet<IpAddr>,
    /// Whether `peers` has all of them, so that paths to others are stale.
    pub is_complete: bool,
}

impl Tunnels {
    pub(crate) fn new(own: &Own, peers: &BTreeMap<String, PeerNode>, is_complete: bool) -> Option<Self> {
        let bridge = own.transport_bridge?;
        let remote = |path: &PeerPath| match path {
            PeerPath::Tunnel(address) => Some(*address),
            PeerPath::Route => None,
        };
        let peers = peers.values().flat_map(|node| &node.peers).filter_map(|peer| remote(&peer.path));
        Some(Self {
            flows: bridge.flows(),
            device: own.transport_device.clone(),
            source: bridge.address.into(),
            peers: peers.collect(),
            is_complete,
        })
    }
}

/// How the switch reaches the remote end of a tunnel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TunnelPath {
    /// The router, unless the remote end is on the link.
    pub router: Option<IpAddr>,
    /// MAC of the router or of the remote end, once it is known.
    pub mac: Option<Mac>,
}

/// A change of ovs-vswitchd's own routes and neighbours.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are named after what they are")]
pub enum PathChange {
    /// Adds the route to one address, or replaces it.
    PutRoute { to: IpAddr, router: Option<IpAddr> },
    /// Removes the route to one address.
    RemoveRoute { to: IpAddr },
    /// Sets the MAC of a neighbour.
    SetNeighbour { ip: IpAddr, mac: Mac },
}

/// The changes that give the switch these paths. A neighbour whose MAC is unknown stays as it is, and one without a path
/// expires by itself.
pub fn path_changes(
    paths: &BTreeMap<IpAddr, TunnelPath>,
    is_complete: bool,
    routes: &BTreeMap<IpAddr, Option<IpAddr>>,
    neighbours: &BTreeMap<IpAddr, Mac>,
) -> Vec<PathChange> {
    // A path without its neighbour would lose packets until the switch has resolved it.
    let macs: BTreeMap<IpAddr, Mac> =
        paths.iter().filter_map(|(to, path)| Some((path.router.unwrap_or(*to), path.mac?))).collect();
    let unknown = macs.iter().filter(|(ip, mac)| neighbours.get(*ip) != Some(*mac));
    let mut changes: Vec<PathChange> =
        unknown.map(|(ip, mac)| PathChange::SetNeighbour { ip: *ip, mac: *mac }).collect();
    let different = paths.iter().filter(|(to, path)| routes.get(*to) != Some(&path.router));
    changes.extend(different.map(|(to, path)| PathChange::PutRoute { to: *to, router: path.router }));
    let stale = routes.keys().filter(|to| is_complete && !paths.contains_key(*to));
    changes.extend(stale.map(|to| PathChange::RemoveRoute { to: *to }));
    changes
}
