//! NAT: the selection of a tuple, and the rewriting of packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use openflow::action::{Nat, NatSide};
use openflow::field::Field;

use super::key::Key;
use super::{Conn, Conntrack, CtState, Remembered};
use crate::packet::{Packet, Transport};
use crate::tables::Time;

/// The range of ports that may replace a client's port, as in the switch.
fn range_like(port: u16) -> (u16, u16) {
    match port {
        0..512 => (1, 511),
        512..1024 => (600, 1023),
        1024.. => (1024, u16::MAX),
    }
}

impl Conntrack {
    /// The tuple of replies to a translated connection; `None` if all allowed tuples are in use.
    ///
    /// The client's port is kept if possible. With DNAT only, and the resulting tuple in use, the client's port is changed.
    pub(super) fn choose(&self, now: Time, key: &Key, nat: &Nat) -> Option<Key> {
        let mut reply = key.reversed();
        let given = nat.address.filter(|address| !address.is_unspecified());
        match nat.side {
            Some(NatSide::Src) => reply.dst.address = given.unwrap_or(key.src.address),
            Some(NatSide::Dst) => reply.src.address = given.unwrap_or(key.dst.address),
            // As in the switch: the reply is expected from the unspecified address.
            None => reply.src.address = unspecified(key.src.address),
        }
        if !key.has_ports() {
            return self.find(now, &reply).is_none().then_some(reply);
        }
        let ports = nat.port.map(|first| (first, nat.last_port.unwrap_or(first).max(first)));
        let (client, client_range) = match (nat.side, ports) {
            (Some(NatSide::Src), Some(range)) => (range.0, range),
            (None, _) => (0, (0, 0)),
            _ => (key.src.port, range_like(key.src.port)),
        };
        reply.dst.port = client;
        if let (Some(NatSide::Dst), Some(range)) = (nat.side, ports) {
            for port in range.0..=range.1 {
                reply.src.port = port;
                if self.find(now, &reply).is_none() {
                    return Some(reply);
                }
            }
            reply.src.port = range.0;
        }
        let (first, last) = client_range;
        let mut port = client;
        for _ in first..=last {
            reply.dst.port = port;
            if self.find(now, &reply).is_none() {
                return Some(reply);
            }
            port = if port < last { port + 1 } else { first };
        }
        None
    }
}

fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

impl Conn {
    /// Translates a packet of the connection, unless this zone did it before.
    pub(super) fn translate_again(
        &self,
        packet: &mut Packet,
        md: &mut Remembered,
        zone: u16,
        reply: bool,
        related: bool,
    ) {
        let state = &mut md.fields.state;
        let before = state.intersects(CtState::NAT);
        if self.nat.is_some() && (!before || zone != md.fields.zone) {
            state.remove(CtState::NAT);
            self.translate(packet, state, reply, related);
        }
    }

    /// Rewrites the addresses and ports of a packet for its receiver.
    pub(super) fn translate(&self, packet: &mut Packet, state: &mut CtState, reply: bool, related: bool) {
        // Packets of one direction match replies to the tuple of the other.
        let (key, side) = match (reply, self.nat) {
            (false, side) => (&self.reply_key, side),
            (true, Some(NatSide::Src)) => (&self.key, Some(NatSide::Dst)),
            (true, Some(NatSide::Dst)) => (&self.key, Some(NatSide::Src)),
            (true, None) => (&self.key, None),
        };
        let Some(side) = side else { return };
        match side {
            NatSide::Src => {
                *state |= CtState::SNAT;
                self.set_address(packet, NatSide::Src, key.dst.address);
            }
            NatSide::Dst => {
                *state |= CtState::DNAT;
                self.set_address(packet, NatSide::Dst, key.src.address);
            }
        }
        if related {
            // The quoted packet is in the opposite direction.
            let Some(quoted) = packet.quoted() else { return };
            let address = match side {
                NatSide::Src => (1, key.dst.address),
                NatSide::Dst => (0, key.src.address),
            };
            let ports = key.has_ports().then_some((key.src.port, key.dst.port));
            packet.rewrite_quoted(&quoted, Some(address), ports);
        } else if key.has_ports() {
            set_ports(packet, key.dst.port, key.src.port);
        }
    }

    fn set_address(&self, packet: &mut Packet, side: NatSide, address: IpAddr) {
        match (side, address) {
            (NatSide::Src, IpAddr::V4(address)) => packet.set(Field::Ipv4Src, u128::from(u32::from(address))),
            (NatSide::Dst, IpAddr::V4(address)) => packet.set(Field::Ipv4Dst, u128::from(u32::from(address))),
            // An error about the connection is of another protocol, which the switch overlooks.
            (NatSide::Src, IpAddr::V6(address)) => packet.set_as(self.key.proto, Field::Ipv6Src, u128::from(address)),
            (NatSide::Dst, IpAddr::V6(address)) => packet.set_as(self.key.proto, Field::Ipv6Dst, u128::from(address)),
        }
    }
}

fn set_ports(packet: &mut Packet, src: u16, dst: u16) {
    let fields = match packet.layout().transport {
        Transport::Tcp => (Field::TcpSrc, Field::TcpDst),
        Transport::Udp => (Field::UdpSrc, Field::UdpDst),
        _ => return,
    };
    packet.set(fields.0, u128::from(src));
    packet.set(fields.1, u128::from(dst));
}
