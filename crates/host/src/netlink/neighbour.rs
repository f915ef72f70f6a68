//! Netlink requests for neighbours.

use std::net::IpAddr;

use libc::{NLM_F_CREATE, NLM_F_REPLACE, RTM_DELNEIGH, RTM_GETNEIGH, RTM_NEWNEIGH};
use netlink_packet_core::Parseable;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteProtocol;
use types::Mac;
use types::host::ROUTE_PROTOCOL;

use super::address::family;
use super::{Netlink, Refusal, Request};

/// A neighbour on the link of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Known {
    index: u32,
    pub(crate) ip: IpAddr,
    /// Missing until it is resolved, and after that has failed.
    pub(crate) mac: Option<Mac>,
    state: NeighbourState,
}

impl Known {
    /// A neighbour from a message about one.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let message = NeighbourMessage::parse(body).ok()?;
        Some(Self {
            index: message.header.ifindex,
            ip: message.attributes.iter().find_map(ip)?,
            mac: message.attributes.iter().find_map(mac),
            state: message.header.state,
        })
    }

    /// Whether it does not answer.
    pub(crate) fn is_failed(&self) -> bool {
        self.state == NeighbourState::Failed
    }

    /// Whether the kernel has confirmed it a short time ago, is doing so, or never has to.
    pub(crate) fn is_confirmed(&self) -> bool {
        use NeighbourState::{Delay, Incomplete, Noarp, Permanent, Probe, Reachable};
        matches!(self.state, Delay | Incomplete | Noarp | Permanent | Probe | Reachable)
    }
}

/// The permanent neighbours on a device.
pub(crate) fn list(netlink: &mut Netlink, index: u32) -> Result<Vec<(IpAddr, Mac)>, Refusal> {
    let all = list_all(netlink, index)?.into_iter();
    let permanent = all.filter(|neighbour| neighbour.state == NeighbourState::Permanent);
    Ok(permanent.filter_map(|neighbour| Some((neighbour.ip, neighbour.mac?))).collect())
}

/// All neighbours on a device.
pub(crate) fn list_all(netlink: &mut Netlink, index: u32) -> Result<Vec<Known>, Refusal> {
    let mut message = NeighbourMessage::default();
    message.attributes = vec![NeighbourAttribute::IfIndex(index)];
    netlink.dump(&Request::new(RTM_GETNEIGH, 0, &message), |message| {
        Known::read(message.body).filter(|neighbour| neighbour.index == index)
    })
}

/// Makes the kernel resolve or confirm a neighbour, as a packet to it would.
pub(crate) fn confirm(index: u32, ip: IpAddr) -> Request {
    let mut message = neighbour(index, ip);
    message.header.flags = NeighbourFlags::Use;
    Request::new(RTM_NEWNEIGH, NLM_F_CREATE, &message)
}

/// The neighbours with our protocol number: index of the device, address and MAC.
pub(crate) fn list_marked(netlink: &mut Netlink) -> Result<Vec<(u32, IpAddr, Mac)>, Refusal> {
    let request = Request::new(RTM_GETNEIGH, 0, &NeighbourMessage::default());
    netlink.dump(&request, |message| {
        let message = NeighbourMessage::parse(message.body).ok()?;
        let ours = NeighbourAttribute::Protocol(RouteProtocol::from(ROUTE_PROTOCOL));
        let ip = message.attributes.iter().find_map(ip)?;
        let mac = message.attributes.iter().find_map(mac)?;
        message.attributes.contains(&ours).then_some((message.header.ifindex, ip, mac))
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
