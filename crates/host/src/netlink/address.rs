//! Netlink requests for addresses of devices.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use libc::{NLM_F_CREATE, NLM_F_EXCL, RTM_DELADDR, RTM_GETADDR, RTM_NEWADDR};
use netlink_packet_core::Parseable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};

use super::{Netlink, Refusal, Request};

/// An address of a device, as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Assigned {
    pub(crate) index: u32,
    pub(crate) net: IpNet,
    /// Scope link: addresses that the kernel assigns itself have it.
    pub(crate) link_local: bool,
}

impl Assigned {
    fn read(body: &[u8]) -> Option<Self> {
        let message = AddressMessage::parse(body).ok()?;
        let mut ip = None;
        for attribute in &message.attributes {
            match attribute {
                // With a peer, `Address` is the peer's.
                AddressAttribute::Local(local) => ip = Some(*local),
                AddressAttribute::Address(address) => ip = ip.or(Some(*address)),
                _ => {}
            }
        }
        let net = IpNet::new(ip?, message.header.prefix_len).ok()?;
        Some(Self { index: message.header.index, net, link_local: message.header.scope == AddressScope::Link })
    }
}

/// The addresses of a device, or of all devices.
pub(crate) fn list(netlink: &mut Netlink, index: Option<u32>) -> Result<Vec<Assigned>, Refusal> {
    let mut message = AddressMessage::default();
    message.header.index = index.unwrap_or_default();
    netlink.dump(&Request::new(RTM_GETADDR, 0, &message), |message| Assigned::read(message.body))
}

/// Adds an address that can be used at once, without duplicate address detection.
pub(crate) fn add(index: u32, net: IpNet) -> Request {
    let mut message = address(index, net);
    if let IpNet::V4(v4) = net
        && v4.prefix_len() < 31
    {
        message.attributes.push(AddressAttribute::Broadcast(v4.broadcast()));
    }
    if let IpNet::V6(_) = net {
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    Request::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &message)
}

/// Request to remove an address.
pub(crate) fn remove(index: u32, net: IpNet) -> Request {
    Request::new(RTM_DELADDR, 0, &address(index, net))
}

fn address(index: u32, net: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(net.addr());
    message.header.prefix_len = net.prefix_len();
    message.header.index = index;
    if matches!(net, IpNet::V4(net) if net.addr().is_link_local()) {
        // The kernel must not choose it as a source for packets to others.
        message.header.scope = AddressScope::Host;
    }
    message.attributes = vec![AddressAttribute::Local(net.addr()), AddressAttribute::Address(net.addr())];
    message
}

pub(crate) fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// The unspecified address of a family.
pub(crate) fn any(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    }
}
