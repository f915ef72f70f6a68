//! What differs between IPv4 and IPv6.

use std::net::IpAddr;

use ipnet::IpNet;
use openflow::field::Field;
use openflow::matching::{Match, ip_proto};

use crate::model::{Families, Protocol};

/// One of the two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

/// The zones in which destinations are translated, by family.
pub const DNAT_ZONES: [u16; 2] = [zone::DNAT, zone::DNAT6];

/// Connection tracking zones, which keep tuples apart that mean different things.
mod zone {
    pub(super) const DNAT: u16 = 65520;
    pub(super) const SNAT: u16 = 65521;
    pub(super) const DNAT6: u16 = 65510;
    pub(super) const SNAT6: u16 = 65511;
}

impl Family {
    pub(crate) fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Packets of the family.
    pub(crate) fn ip(self) -> Match {
        match self {
            Family::V4 => Match::ip(),
            Family::V6 => Match::ipv6(),
        }
    }

    /// Packets of a protocol in the family.
    pub(crate) fn protocol(self, protocol: Protocol) -> Match {
        self.ip().with(Field::IpProto, proto_number(protocol))
    }

    /// ICMP packets of the family.
    pub(crate) fn icmp(self) -> Match {
        let proto = match self {
            Family::V4 => ip_proto::ICMP,
            Family::V6 => ip_proto::ICMPV6,
        };
        self.ip().with(Field::IpProto, proto)
    }

    pub(crate) fn src(self) -> Field {
        match self {
            Family::V4 => Field::Ipv4Src,
            Family::V6 => Field::Ipv6Src,
        }
    }

    pub(crate) fn dst(self) -> Field {
        match self {
            Family::V4 => Field::Ipv4Dst,
            Family::V6 => Field::Ipv6Dst,
        }
    }

    /// Where destinations are translated, and where policies remember connections.
    pub(crate) fn dnat_zone(self) -> u16 {
        match self {
            Family::V4 => zone::DNAT,
            Family::V6 => zone::DNAT6,
        }
    }

    /// Where sources are translated.
    pub(crate) fn snat_zone(self) -> u16 {
        match self {
            Family::V4 => zone::SNAT,
            Family::V6 => zone::SNAT6,
        }
    }

    /// Field that holds the far end of a tunnel to such an address.
    pub(crate) fn tunnel_dst(self) -> Field {
        match self {
            Family::V4 => Field::TunDst,
            Family::V6 => Field::TunIpv6Dst,
        }
    }
}

/// The number of a protocol in the IP header.
pub(crate) fn proto_number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => ip_proto::TCP,
        Protocol::Udp => ip_proto::UDP,
        Protocol::Sctp => ip_proto::SCTP,
    }
}

/// The field with a protocol's destination port.
pub(crate) fn port_field(protocol: Protocol) -> Field {
    match protocol {
        Protocol::Tcp => Field::TcpDst,
        Protocol::Udp => Field::UdpDst,
        Protocol::Sctp => Field::SctpDst,
    }
}

/// An address as a number.
pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

/// Conditions on addresses, for matches.
pub(crate) trait Addressed {
    /// And the source is this.
    #[must_use]
    fn from(self, address: IpAddr) -> Self;
    /// And the destination is this.
    #[must_use]
    fn to(self, address: IpAddr) -> Self;
    /// And the field, a source or destination, is in this range.
    #[must_use]
    fn within(self, field: Field, cidr: IpNet) -> Self;
}

impl Addressed for Match {
    fn from(self, address: IpAddr) -> Self {
        self.with(Family::of(address).src(), bits(address))
    }

    fn to(self, address: IpAddr) -> Self {
        self.with(Family::of(address).dst(), bits(address))
    }

    fn within(self, field: Field, cidr: IpNet) -> Self {
        self.with_masked(field, bits(cidr.network()), bits(cidr.netmask()))
    }
}

impl<T: Copy> Families<T> {
    /// What there is, with its family.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Family, T)> {
        let v4 = self.v4.map(|value| (Family::V4, value));
        let v6 = self.v6.map(|value| (Family::V6, value));
        v4.into_iter().chain(v6)
    }
}
