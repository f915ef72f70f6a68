//! Connections that the kernel tracks: those of UDP that are out of date are forgotten.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_packet_core::NlasIterator;
use nix::errno::Errno;

use crate::error::Error;
use crate::netlink::{Message, Netlink, Refusal, Request};

/// Messages of connection tracking: its number among netfilter's parts, and what is asked.
const CTNETLINK: u16 = 1 << 8;
const GET: u16 = CTNETLINK | 1;
const DELETE: u16 = CTNETLINK | 2;
/// The family, a version and a resource, before the attributes.
const HEADER: usize = 4;
/// Attributes of a connection, of one direction of it, of its addresses and of its ports.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const ZONE: u16 = 18;
const ADDRESSES: u16 = 1;
const PORTS: u16 = 2;
const DESTINATION: [u16; 2] = [2, 4];
const SOURCE: [u16; 2] = [1, 3];
const PROTOCOL: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
/// What is nested in an attribute is marked so.
const KIND: u16 = 0x3fff;

/// A connection of UDP, with what it is known by to the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UdpConnection {
    /// What its first packet was sent to.
    pub sent_to: SocketAddr,
    /// Who answers.
    pub answered_by: SocketAddr,
    identity: Vec<u8>,
}

/// The connections of UDP in the namespace of the calling thread. Only those of the default zone, in which the host itself
/// tracks: others, such as a switch, track their own connections in zones of the same table.
pub fn list_udp() -> Result<Vec<UdpConnection>, Error> {
    let doing = "cannot list the kernel's connections";
    let mut netlink = Netlink::netfilter().map_err(Error::refused(doing))?;
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let family = u8::try_from(family).unwrap_or_default();
        let request = Request::raw(GET, 0, vec![family, 0, 0, 0]);
        all.extend(netlink.dump(&request, read).map_err(Error::refused(doing))?);
    }
    Ok(all)
}

/// Forgets these connections; how many there still were. One that cannot be forgotten keeps no other from it.
pub fn forget_udp(connections: &[UdpConnection]) -> Result<usize, Error> {
    let doing = "cannot forget a connection of the kernel";
    let mut netlink = Netlink::netfilter().map_err(Error::refused(doing))?;
    let request = |connection: &UdpConnection| {
        let family = if connection.sent_to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let header = vec![u8::try_from(family).unwrap_or_default(), 0, 0, 0];
        Request::raw(DELETE, 0, [header, connection.identity.clone()].concat())
    };
    let requests: Vec<Request> = connections.iter().map(request).collect();
    let (mut forgotten, mut refused) = (0, None);
    for result in netlink.requests(&requests) {
        match result {
            Ok(()) => forgotten += 1,
            // It has ended by itself.
            Err(Refusal { errno: Errno::ENOENT, .. }) => {}
            Err(refusal) => refused = Some(refusal),
        }
    }
    match refused {
        None => Ok(forgotten),
        Some(refusal) => Err(Error::refused(doing)(refusal)),
    }
}

fn read(message: Message<'_>) -> Option<UdpConnection> {
    let attributes = message.body.get(HEADER..)?;
    // The default zone is not said.
    if find(attributes, ZONE).is_some() {
        return None;
    }
    let original = find(attributes, ORIGINAL)?;
    let identity = attribute(ORIGINAL | 0x8000, original);
    let reply = find(attributes, REPLY)?;
    let protocol = find(find(original, PORTS)?, PROTOCOL)?;
    let is_udp = protocol.first().copied().map(i32::from) == Some(libc::IPPROTO_UDP);
    let sent_to = end(original, DESTINATION, DESTINATION_PORT)?;
    let answered_by = end(reply, SOURCE, SOURCE_PORT)?;
    is_udp.then_some(UdpConnection { sent_to, answered_by, identity })
}

/// The address and the port of one end of a direction.
fn end(tuple: &[u8], address: [u16; 2], port: u16) -> Option<SocketAddr> {
    let addresses = find(tuple, ADDRESSES)?;
    let ip = match (find(addresses, address[0]), find(addresses, address[1])) {
        (Some(v4), _) => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(v4).ok()?)),
        (None, v6) => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(v6?).ok()?)),
    };
    let port = find(find(tuple, PORTS)?, port)?;
    Some(SocketAddr::new(ip, u16::from_be_bytes(port.try_into().ok()?)))
}

/// The contents of the attribute of that kind.
fn find(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut at = attributes;
    // By hand, as what the iterator finds does not outlive it.
    for attribute in NlasIterator::new(attributes) {
        let attribute = attribute.ok()?;
        let length = usize::from(attribute.length());
        if attribute.kind() & KIND == kind {
            return at.get(4..length);
        }
        at = at.get(length.next_multiple_of(4)..)?;
    }
    None
}

fn attribute(kind: u16, contents: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + contents.len()).unwrap_or_default();
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(contents);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
