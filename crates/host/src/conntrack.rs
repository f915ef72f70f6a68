//! Conntrack entries of the kernel: listing and deleting them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::errno::Errno;

use crate::error::Error;
use crate::netlink::{Message, Netlink, Refusal, Request, find};

/// Netlink messages of conntrack: the subsystem number of netfilter, and the operation.
const CTNETLINK: u16 = 1 << 8;
const GET: u16 = CTNETLINK | 1;
const DELETE: u16 = CTNETLINK | 2;
/// Family, version and resource ID, before the attributes.
const HEADER: usize = 4;
/// Attributes of a connection, of one direction, of its addresses and of its ports.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const STATUS: u16 = 3;
const TIMEOUT: u16 = 7;
const ZONE: u16 = 18;
const ADDRESSES: u16 = 1;
const PORTS: u16 = 2;
const DESTINATION: [u16; 2] = [2, 4];
const SOURCE: [u16; 2] = [1, 3];
const PROTOCOL: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
/// Status bit of a connection that was answered.
const SEEN_REPLY: u32 = 1 << 1;
/// Number of connections in the namespace of the reading thread, and its limit.
const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
const MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";

/// A connection of any protocol, in any zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// The source of its first packet.
    pub initiator: IpAddr,
    /// The source of its replies, after DNAT.
    pub responder: IpAddr,
    /// Whether a reply was seen.
    pub is_answered: bool,
    /// Seconds until it expires if no packet follows.
    pub timeout: u32,
    identity: Identity,
}

/// The kernel's key of a connection: its family, and attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Identity {
    is_ipv4: bool,
    attributes: Vec<u8>,
}

/// A UDP connection with its kernel key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UdpConnection {
    /// Original destination of the first packet.
    pub sent_to: SocketAddr,
    /// Source of the replies.
    pub answered_by: SocketAddr,
    identity: Identity,
}

/// UDP connections in the namespace of the calling thread, only those in the default zone, which the host uses: a switch
/// tracks its own connections in other zones of the same table.
pub fn list_udp() -> Result<Vec<UdpConnection>, Error> {
    list_as(read_udp)
}

/// Deletes these connections; returns how many still existed. An error for one does not prevent deleting the others.
pub fn forget_udp(connections: &[UdpConnection]) -> Result<usize, Error> {
    forget_these(connections.iter().map(|connection| &connection.identity))
}

/// All connections in the namespace of the calling thread.
pub fn list() -> Result<Vec<Connection>, Error> {
    list_as(read)
}

/// Deletes these connections; returns how many still existed. An error for one does not prevent deleting the others.
pub fn forget(connections: &[Connection]) -> Result<usize, Error> {
    forget_these(connections.iter().map(|connection| &connection.identity))
}

/// Deletes all connections with one of these addresses as initiator or responder, in all zones; returns how many.
pub fn forget_addresses(addresses: &[IpAddr]) -> Result<usize, Error> {
    if load().is_some_and(|(connections, _)| connections == 0) {
        return Ok(0);
    }
    let is_its = |one: &Connection| addresses.contains(&one.initiator) || addresses.contains(&one.responder);
    forget(&list_as(|message| read(message).filter(is_its))?)
}

/// Number of connections tracked in the namespace of the calling thread, and the limit; `None` if the kernel does not track
/// any.
pub fn load() -> Option<(u64, u64)> {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    Some((number(COUNT)?, number(MAX)?))
}

fn list_as<T>(read: impl Fn(Message<'_>) -> Option<T>) -> Result<Vec<T>, Error> {
    let doing = "cannot list conntrack entries";
    let mut netlink = Netlink::netfilter().map_err(Error::refused(doing))?;
    // Of all families at once: the kernel walks through the whole hash table for each dump, which takes milliseconds.
    let request = Request::raw(GET, 0, vec![0; HEADER]);
    netlink.dump(&request, &read).map_err(Error::refused(doing))
}

fn forget_these<'a>(connections: impl Iterator<Item = &'a Identity>) -> Result<usize, Error> {
    let doing = "cannot delete a conntrack entry";
    let request = |Identity { is_ipv4, attributes }: &Identity| {
        let family = if *is_ipv4 { libc::AF_INET } else { libc::AF_INET6 };
        let header = vec![u8::try_from(family).unwrap_or_default(), 0, 0, 0];
        Request::raw(DELETE, 0, [header, attributes.clone()].concat())
    };
    let requests: Vec<Request> = connections.map(request).collect();
    if requests.is_empty() {
        return Ok(0);
    }
    let mut netlink = Netlink::netfilter().map_err(Error::refused(doing))?;
    let (mut forgotten, mut refused) = (0, None);
    for result in netlink.requests(&requests) {
        match result {
            Ok(()) => forgotten += 1,
            // It has ended meanwhile.
            Err(Refusal { errno: Errno::ENOENT, .. }) => {}
            Err(refusal) => refused = Some(refusal),
        }
    }
    match refused {
        None => Ok(forgotten),
        Some(refusal) => Err(Error::refused(doing)(refusal)),
    }
}

fn read_udp(message: Message<'_>) -> Option<UdpConnection> {
    let attributes = message.body.get(HEADER..)?;
    // The attribute is absent in the default zone.
    if find(attributes, ZONE).is_some() {
        return None;
    }
    let (original, reply) = (find(attributes, ORIGINAL)?, find(attributes, REPLY)?);
    let protocol = find(find(original, PORTS)?, PROTOCOL)?;
    let is_udp = protocol.first().copied().map(i32::from) == Some(libc::IPPROTO_UDP);
    let sent_to = end(original, DESTINATION, DESTINATION_PORT)?;
    let answered_by = end(reply, SOURCE, SOURCE_PORT)?;
    let identity = Identity { is_ipv4: sent_to.is_ipv4(), attributes: attribute(ORIGINAL | 0x8000, original) };
    is_udp.then_some(UdpConnection { sent_to, answered_by, identity })
}

fn read(message: Message<'_>) -> Option<Connection> {
    let attributes = message.body.get(HEADER..)?;
    let (original, reply) = (find(attributes, ORIGINAL)?, find(attributes, REPLY)?);
    let word = |kind: u16| Some(u32::from_be_bytes(find(attributes, kind)?.try_into().ok()?));
    let initiator = address(original, SOURCE)?;
    let zone = find(attributes, ZONE).map(|zone| attribute(ZONE, zone)).unwrap_or_default();
    let attributes = [attribute(ORIGINAL | 0x8000, original), zone].concat();
    Some(Connection {
        initiator,
        responder: address(reply, SOURCE)?,
        is_answered: word(STATUS).unwrap_or_default() & SEEN_REPLY != 0,
        timeout: word(TIMEOUT).unwrap_or_default(),
        identity: Identity { is_ipv4: initiator.is_ipv4(), attributes },
    })
}

/// The address and the port of one end of a direction.
fn end(tuple: &[u8], of: [u16; 2], port: u16) -> Option<SocketAddr> {
    let port = find(find(tuple, PORTS)?, port)?;
    Some(SocketAddr::new(address(tuple, of)?, u16::from_be_bytes(port.try_into().ok()?)))
}

/// The address of one end of a direction.
fn address(tuple: &[u8], of: [u16; 2]) -> Option<IpAddr> {
    let addresses = find(tuple, ADDRESSES)?;
    Some(match (find(addresses, of[0]), find(addresses, of[1])) {
        (Some(v4), _) => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(v4).ok()?)),
        (None, v6) => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(v6?).ok()?)),
    })
}

fn attribute(kind: u16, contents: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + contents.len()).unwrap_or_default();
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(contents);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
