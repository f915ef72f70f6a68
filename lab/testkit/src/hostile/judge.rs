//! Which frames of the hostile Pod may come out where.

use std::net::IpAddr;

use super::{Host, Neighbour, Terrain};
use crate::frames::{Arp, Frame, Ip, Network, proto};

/// Where a frame comes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// At a neighbour, by its number.
    Neighbour(usize),
    /// At the gateway, to the host.
    Gateway,
    /// In a tunnel to another Node.
    Peer,
    /// At any other port.
    Elsewhere,
}

/// UDP ports of tunnels (Geneve, VXLAN), and the TCP port of STT.
const TUNNELS: [(u8, u16); 3] = [(proto::UDP, 6081), (proto::UDP, 4789), (proto::TCP, 7471)];

impl Terrain {
    /// Says what is wrong with a frame that the hostile Pod has caused to come out there.
    pub fn forbidden(&self, exit: Exit, bytes: &[u8]) -> Option<String> {
        let Some(frame) = Frame::read(bytes) else { return Some("a frame that is too short".to_owned()) };
        let why = match &frame.network {
            _ if frame.tags > 0 => Some("a frame with a VLAN tag".to_owned()),
            Network::Other(kind) => Some(format!("a frame of type {kind:#06x}")),
            Network::Arp(arp) => self.wrong_arp(exit, &frame, arp),
            Network::Ip(ip) if is_neighbours(ip) => self.wrong_neighbour(exit, &frame, ip),
            Network::Ip(ip) => self.wrong_ip(exit, &frame, ip),
        };
        why.map(|why| format!("{why}: {frame:02x?}"))
    }

    fn wrong_arp(&self, exit: Exit, frame: &Frame, arp: &Arp) -> Option<String> {
        if matches!(exit, Exit::Peer | Exit::Elsewhere) {
            return Some("ARP leaves the Node".to_owned());
        }
        if frame.from != self.me.mac {
            return Some("ARP in a frame from another's MAC".to_owned());
        }
        let own = arp.sender == (self.me.mac, self.me.v4);
        (!own).then(|| "ARP that announces another's address".to_owned())
    }

    fn wrong_neighbour(&self, exit: Exit, frame: &Frame, ip: &Ip) -> Option<String> {
        if matches!(exit, Exit::Peer | Exit::Elsewhere) {
            return Some("a neighbour's message leaves the Node".to_owned());
        }
        if frame.from != self.me.mac {
            return Some("a neighbour's message from another's MAC".to_owned());
        }
        let IpAddr::V6(src) = ip.src else { return None };
        let own = src == self.me.v6 || src.is_unspecified() || src.is_unicast_link_local();
        match ip.icmp_type() {
            Some(135) if !own => Some("a neighbour's question from another's address".to_owned()),
            Some(136) => {
                let target: [u8; 16] = *ip.body.get(8..)?.first_chunk()?;
                let own = target == self.me.v6.octets() || target.starts_with(&[0xfe, 0x80]);
                (!own).then(|| "a neighbour's answer about another's address".to_owned())
            }
            _ => None,
        }
    }

    fn wrong_ip(&self, exit: Exit, frame: &Frame, ip: &Ip) -> Option<String> {
        if ip.src != self.me.ip(ip.src.is_ipv6()) {
            return Some("a packet from another's address".to_owned());
        }
        if self.held_back(ip) {
            return Some(format!("a packet of protocol {} that a policy keeps in", ip.proto));
        }
        match exit {
            Exit::Neighbour(number) => {
                let neighbour = self.neighbours.get(number)?;
                self.wrong_place(frame, ip, neighbour.host).or_else(|| self.denied(number, neighbour, ip))
            }
            Exit::Gateway => self.wrong_at_host(ip),
            Exit::Peer => {
                let known = self.remotes.iter().any(|remote| same_network(*remote, ip.dst));
                (!known).then(|| "a packet in a tunnel that is for no Pod of another Node".to_owned())
            }
            Exit::Elsewhere => Some("a packet at a port where nothing should be".to_owned()),
        }
    }

    /// Whether a policy of its own keeps the hostile Pod from sending this.
    fn held_back(&self, ip: &Ip) -> bool {
        let Some(egress) = &self.egress else { return false };
        let to = |dst: IpAddr| self.neighbours.iter().position(|neighbour| neighbour.host.ip(dst.is_ipv6()) == dst);
        let allowed = |dst: IpAddr, proto: u8, port: Option<u16>| {
            egress.iter().any(|it| it.0 == dst && it.1 == proto && port.is_none_or(|port| it.2 == port))
        };
        let answers = |dst: IpAddr, proto: u8, ports: Option<(u16, u16)>| {
            let one = |o: &&super::Opened| {
                Some(o.by) == to(dst)
                    && o.v6 == dst.is_ipv6()
                    && o.proto == proto
                    && ports.is_none_or(|ports| ports == (o.mine, o.theirs))
            };
            self.opened.iter().any(|o| one(&o))
        };
        let fine = match (ip.ports(), ip.quoted()) {
            (Some((mine, theirs)), _) => {
                allowed(ip.dst, ip.proto, Some(theirs)) || answers(ip.dst, ip.proto, Some((mine, theirs)))
            }
            (_, Some(quoted)) => quoted.ports().is_some_and(|(theirs, mine)| {
                allowed(ip.dst, quoted.proto, Some(theirs)) || answers(ip.dst, quoted.proto, Some((mine, theirs)))
            }),
            _ => ip.offset > 0 && (allowed(ip.dst, ip.proto, None) || answers(ip.dst, ip.proto, None)),
        };
        !fine
    }

    fn wrong_place(&self, frame: &Frame, ip: &Ip, to: Host) -> Option<String> {
        if ip.dst != to.ip(ip.dst.is_ipv6()) || frame.to != to.mac {
            return Some("a packet that is for another Pod".to_owned());
        }
        // What goes by the gateway's MAC was routed.
        let from = frame.from == self.me.mac || frame.from == self.gateway.mac;
        (!from).then(|| "a packet in a frame from another's MAC".to_owned())
    }

    /// Whether a policy denies what has come to a neighbour.
    fn denied(&self, number: usize, neighbour: &Neighbour, ip: &Ip) -> Option<String> {
        let allowed = neighbour.allowed.as_ref()?;
        let v6 = ip.dst.is_ipv6();
        let connection = |proto: u8, theirs: u16, mine: u16| {
            let opened =
                |o: &&super::Opened| (o.by, o.v6, o.proto, o.theirs, o.mine) == (number, v6, proto, theirs, mine);
            allowed.contains(&(proto, theirs)) || self.opened.iter().any(|o| opened(&o))
        };
        // A later part has no ports: it belongs to a packet of which the first part was let through.
        let by_protocol = || {
            let opened = self.opened.iter().any(|o| (o.by, o.v6, o.proto) == (number, v6, ip.proto));
            opened || allowed.iter().any(|(proto, _)| *proto == ip.proto)
        };
        let fine = match (ip.ports(), ip.quoted()) {
            (Some((mine, theirs)), _) => connection(ip.proto, theirs, mine),
            // An error belongs to the connection that it is about, which both are ends of.
            (_, Some(quoted)) => {
                let about = quoted.src == ip.dst && quoted.dst == ip.src;
                about && quoted.ports().is_some_and(|(theirs, mine)| connection(quoted.proto, theirs, mine))
            }
            _ => ip.offset > 0 && by_protocol(),
        };
        (!fine).then(|| format!("a packet of protocol {} that a policy denies", ip.proto))
    }

    fn wrong_at_host(&self, ip: &Ip) -> Option<String> {
        if ip.dst.is_loopback() {
            return Some("a packet to the host's loopback address".to_owned());
        }
        let to_node = self.nodes.contains(&ip.dst) || ip.dst == self.gateway.ip(ip.dst.is_ipv6());
        let is_tunnel = ip.proto == proto::GRE
            || ip.ports().is_some_and(|(_, port)| !ip.is_part && TUNNELS.contains(&(ip.proto, port)));
        (self.tunnels && to_node && is_tunnel).then(|| "a tunnel's packet to a Node".to_owned())
    }
}

fn is_neighbours(ip: &Ip) -> bool {
    ip.proto == proto::ICMPV6 && matches!(ip.icmp_type(), Some(135 | 136))
}

/// Networks of Pods are /24 and /64 here.
fn same_network(one: IpAddr, other: IpAddr) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => one.octets()[..3] == other.octets()[..3],
        (IpAddr::V6(one), IpAddr::V6(other)) => one.octets()[..8] == other.octets()[..8],
        _ => false,
    }
}

#[cfg(test)]
mod tests;
