//! The differences between IPv4 and IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use openflow::field::Field;
use openflow::matching::{Match, ip_proto};

use crate::model::{Families, Protocol};

/// An IP address family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

/// Connection tracking zones of DNAT, by family.
pub const DNAT_ZONES: [u16; 2] = [zone::DNAT, zone::DNAT6];

/// Connection tracking zones: equal tuples in different zones are different connections.
mod zone {
    pub(super) const DNAT: u16 = 65520;
    pub(super) const SNAT: u16 = 65521;
    pub(super) const FRAGMENTS: u16 = 65522;
    pub(super) const DNAT6: u16 = 65510;
    pub(super) const SNAT6: u16 = 65511;
    pub(super) const FRAGMENTS6: u16 = 65512;
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

    /// Loopback addresses, for IPv6 including the IPv4-mapped ones.
    pub(crate) fn loopback(self) -> Vec<IpNet> {
        let v4 = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
        match self {
            Family::V4 => vec![v4.into()],
            Family::V6 => {
                let mapped = Ipv6Net::new_assert(v4.network().to_ipv6_mapped(), 96 + v4.prefix_len());
                vec![IpNet::from(IpAddr::V6(Ipv6Addr::LOCALHOST)), mapped.into()]
            }
        }
    }

    /// The zone of DNAT, and of connections that policies accepted.
    pub(crate) fn dnat_zone(self) -> u16 {
        match self {
            Family::V4 => zone::DNAT,
            Family::V6 => zone::DNAT6,
        }
    }

    /// The zone of SNAT.
    pub(crate) fn snat_zone(self) -> u16 {
        match self {
            Family::V4 => zone::SNAT,
            Family::V6 => zone::SNAT6,
        }
    }

    /// The zone in which first fragments wait for the others. It has no connections.
    pub(crate) fn fragment_zone(self) -> u16 {
        match self {
            Family::V4 => zone::FRAGMENTS,
            Family::V6 => zone::FRAGMENTS6,
        }
    }

    /// Field that holds the far end of a tunnel from such an address.
    pub(crate) fn tunnel_src(self) -> Field {
        match self {
            Family::V4 => Field::TunSrc,
            Family::V6 => Field::TunIpv6Src,
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
    /// Adds the condition that the source is this address.
    #[must_use]
    fn from(self, address: IpAddr) -> Self;
    /// Adds the condition that the destination is this address.
    #[must_use]
    fn to(self, address: IpAddr) -> Self;
    /// Adds the condition that the field, a source or destination, is in this range.
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
    /// The present values with their family.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Family, T)> {
        let v4 = self.v4.map(|value| (Family::V4, value));
        let v6 = self.v6.map(|value| (Family::V6, value));
        v4.into_iter().chain(v6)
    }
}
