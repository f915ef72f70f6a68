//! Netlink requests for routes.

use std::net::IpAddr;

use ipnet::IpNet;
use libc::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, RTM_DELROUTE, RTM_GETROUTE, RTM_NEWROUTE};
use netlink_packet_core::Parseable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteScope, RouteType,
};

use nix::errno::Errno;

use super::address::{any, family};
use super::{Netlink, Refusal, Request};

/// A route with the index of its device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Hop {
    pub(crate) destination: IpNet,
    pub(crate) via: Option<IpAddr>,
    pub(crate) index: u32,
    pub(crate) onlink: bool,
    pub(crate) source: Option<IpAddr>,
    pub(crate) mtu: Option<u32>,
    pub(crate) table: u32,
    pub(crate) protocol: u8,
}

impl Hop {
    /// `None` for routes that are not unicast or have several next hops: such are never ours.
    fn read(body: &[u8]) -> Option<Self> {
        let message = RouteMessage::parse(body).ok()?;
        let header = &message.header;
        if header.kind != RouteType::Unicast {
            return None;
        }
        let unspecified = match header.address_family {
            AddressFamily::Inet => any(IpAddr::V4([0; 4].into())),
            AddressFamily::Inet6 => any(IpAddr::V6([0; 16].into())),
            _ => return None,
        };
        let mut destination = unspecified;
        let mut hop = Self {
            destination: IpNet::new(unspecified, 0).ok()?,
            via: None,
            index: 0,
            onlink: header.flags.contains(RouteFlags::Onlink),
            source: None,
            mtu: None,
            table: header.table.into(),
            protocol: header.protocol.into(),
        };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(address) => destination = ip(address)?,
                RouteAttribute::Gateway(address) => hop.via = ip(address),
                RouteAttribute::PrefSource(address) => hop.source = ip(address),
                RouteAttribute::Oif(index) => hop.index = *index,
                RouteAttribute::Table(table) => hop.table = *table,
                RouteAttribute::Metrics(metrics) => hop.mtu = metrics.iter().find_map(mtu),
                RouteAttribute::MultiPath(_) => return None,
                _ => {}
            }
        }
        hop.destination = IpNet::new(destination, header.destination_prefix_length).ok()?;
        Some(hop)
    }

    fn message(&self) -> RouteMessage {
        let mut message = blank(self.destination.addr());
        let header = &mut message.header;
        header.destination_prefix_length = self.destination.prefix_len();
        header.protocol = self.protocol.into();
        header.scope = match (self.via, self.destination) {
            (None, IpNet::V4(_)) => RouteScope::Link,
            _ => RouteScope::Universe,
        };
        header.kind = RouteType::Unicast;
        if self.onlink {
            header.flags |= RouteFlags::Onlink;
        }
        let metrics = self.mtu.map(|mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]));
        let gateway = self.via.map(|via| RouteAttribute::Gateway(via.into()));
        let source = self.source.map(|source| RouteAttribute::PrefSource(source.into()));
        message.attributes = vec![
            RouteAttribute::Table(self.table),
            RouteAttribute::Destination(self.destination.addr().into()),
            RouteAttribute::Oif(self.index),
        ];
        message.attributes.extend(metrics.into_iter().chain(gateway).chain(source));
        message
    }

    /// Adds it; fails if there is a route to the same destination.
    pub(crate) fn add(&self) -> Request {
        Request::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &self.message())
    }

    /// Replaces any route to the same destination, also a foreign one.
    pub(crate) fn replace(&self) -> Request {
        Request::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &self.message())
    }

    /// Removes exactly this route.
    pub(crate) fn remove(&self) -> Request {
        Request::new(RTM_DELROUTE, 0, &self.message())
    }
}

/// The routes of both families with this protocol number.
pub(crate) fn list_marked(netlink: &mut Netlink, protocol: u8) -> Result<Vec<Hop>, Refusal> {
    let mut all = Vec::new();
    for family in [IpAddr::V4([0; 4].into()), IpAddr::V6([0; 16].into())] {
        let mut message = blank(family);
        message.header.protocol = protocol.into();
        all.extend(dump(netlink, &message)?.into_iter().filter(|hop| hop.protocol == protocol));
    }
    Ok(all)
}

/// The routes of a table, in the family of `like`.
pub(crate) fn list_table(netlink: &mut Netlink, table: u32, like: IpAddr) -> Result<Vec<Hop>, Refusal> {
    let mut message = blank(like);
    message.attributes = vec![RouteAttribute::Table(table)];
    dump(netlink, &message)
}

/// The route of packets from one of this Node's addresses; `None` if there is none.
pub(crate) fn lookup(netlink: &mut Netlink, source: IpAddr, destination: IpAddr) -> Result<Option<Hop>, Refusal> {
    let mut message = blank(destination);
    let length = IpNet::from(destination).prefix_len();
    (message.header.source_prefix_length, message.header.destination_prefix_length) = (length, length);
    message.attributes = vec![RouteAttribute::Destination(destination.into()), RouteAttribute::Source(source.into())];
    let found = netlink.get(&Request::new(RTM_GETROUTE, 0, &message), |message| Some(Hop::read(message.body)));
    match found {
        Ok(hop) => Ok(hop.flatten()),
        Err(Refusal { errno: Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::EACCES | Errno::EINVAL, .. }) => {
            Ok(None)
        }
        Err(refusal) => Err(refusal),
    }
}

fn dump(netlink: &mut Netlink, like: &RouteMessage) -> Result<Vec<Hop>, Refusal> {
    match netlink.dump(&Request::new(RTM_GETROUTE, 0, like), |message| Hop::read(message.body)) {
        // A table that never had a route does not exist.
        Err(Refusal { errno: Errno::ENOENT, .. }) => Ok(Vec::new()),
        result => result,
    }
}

fn blank(like: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader { address_family: family(like), ..RouteHeader::default() };
    message
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

fn mtu(metric: &RouteMetric) -> Option<u32> {
    match metric {
        RouteMetric::Mtu(mtu) => Some(*mtu),
        _ => None,
    }
}
