//! A hostile Pod: the frames it may think of, and a judge who says which of them must not reach other ports.
//!
//! The judge knows the rules of the network as its documentation has them, and nothing of flows: a Pod has its own address and
//! no other, policies say which Pods it reaches, tunnels are for Nodes, loopback is for itself.

mod compose;
mod judge;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use compose::compose;
pub use judge::Exit;

use crate::frames::Mac;

/// A host on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    /// The MAC of its interface.
    pub mac: Mac,
    /// Its only IPv4 address.
    pub v4: Ipv4Addr,
    /// Its only IPv6 address.
    pub v6: Ipv6Addr,
}

impl Host {
    /// The address of a family.
    pub fn ip(&self, v6: bool) -> IpAddr {
        if v6 { self.v6.into() } else { self.v4.into() }
    }
}

/// Another Pod of the same Node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Its MAC and its addresses.
    pub host: Host,
    /// What the hostile Pod may send to it, by protocol and port; nothing means everything.
    pub allowed: Option<Vec<(u8, u16)>>,
}

/// A connection that a neighbour has opened to the hostile Pod, which may answer it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Opened {
    /// The number of the neighbour.
    pub by: usize,
    /// Whether the connection uses IPv6.
    pub v6: bool,
    /// The protocol, TCP or UDP.
    pub proto: u8,
    /// The port of the neighbour.
    pub theirs: u16,
    /// The hostile Pod's port.
    pub mine: u16,
}

/// Where the hostile Pod is, and what is around it.
#[derive(Clone, Debug)]
pub struct Terrain {
    /// The Pod that attacks.
    pub me: Host,
    /// The gateway of its Node.
    pub gateway: Host,
    /// Pods of the same Node.
    pub neighbours: Vec<Neighbour>,
    /// Pods of other Nodes.
    pub remotes: Vec<IpAddr>,
    /// Nodes, the own one first.
    pub nodes: Vec<IpAddr>,
    /// Services, and other addresses of the network's own.
    pub services: Vec<IpAddr>,
    /// Ports on which there is something.
    pub ports: Vec<u16>,
    /// Whether Nodes have tunnels between them.
    pub tunnels: bool,
    /// What policies allow the hostile Pod to send at all, by address, protocol and port; nothing means everything.
    pub egress: Option<Vec<(IpAddr, u8, u16)>>,
    /// What the neighbours have opened.
    pub opened: BTreeSet<Opened>,
    /// Connections of TCP between neighbours: the client, and the server.
    pub foreign: Vec<(SocketAddr, SocketAddr)>,
}
