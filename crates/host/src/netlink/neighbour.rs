//! Netlink requests for permanent neighbours.

use std::net::IpAddr;

use libc::{NLM_F_CREATE, NLM_F_REPLACE, RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWNEIGH};
use netlink_packet_core::Parseable;
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::RouteProtocol;
use types::Mac;
use types::host::ROUTE_PROTOCOL;

use super::address::family;
use super::{Netlink, Refusal, Request};

/// The permanent neighbours on a device.
pub(crate) fn list(netlink: &mut Netlink, index: u32) -> Result<Vec<(IpAddr, Mac)>, Refusal> {
    let mut message = NeighbourMessage::default();
    message.attributes = vec![NeighbourAttribute::IfIndex(index)];
    netlink.dump(&Request::new(RTM_GETNEIGH, 0, &message), |message| {
        let message = NeighbourMessage::parse(message.body).ok()?;
        let ours = message.header.ifindex == index && message.header.state == NeighbourState::Permanent;
        let ip = message.attributes.iter().find_map(ip)?;
        let mac = message.attributes.iter().find_map(mac)?;
        ours.then_some((ip, mac))
    })
}

/// Adds a permanent neighbour, or replaces its MAC.
pub(crate) fn put(index: u32, ip: IpAddr, mac: Mac) -> Request {
    let mut message = neighbour(index, ip);
    message.header.state = NeighbourState::Permanent;
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
    message.attributes.push(NeighbourAttribute::Protocol(RouteProtocol::from(ROUTE_PROTOCOL)));
    Request::new(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &message)
}

/// Request to remove a neighbour.
pub(crate) fn remove(index: u32, ip: IpAddr) -> Request {
    Request::new(RTM_DELNEIGH, 0, &neighbour(index, ip))
}

fn neighbour(index: u32, ip: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(ip);
    message.header.ifindex = index;
    let destination = match ip {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    };
    message.attributes = vec![NeighbourAttribute::Destination(destination)];
    message
}

fn ip(attribute: &NeighbourAttribute) -> Option<IpAddr> {
    match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => Some((*v4).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => Some((*v6).into()),
        _ => None,
    }
}

fn mac(attribute: &NeighbourAttribute) -> Option<Mac> {
    match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok().map(Mac),
        _ => None,
    }
}
