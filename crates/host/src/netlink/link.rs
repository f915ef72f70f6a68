//! Netlink requests for network devices (links).

use std::os::fd::RawFd;

use libc::{NLM_F_CREATE, NLM_F_EXCL, RTM_DELLINK, RTM_GETLINK, RTM_NEWLINK, RTM_SETLINK};
use netlink_packet_core::Parseable;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkExtentMask, LinkFlags,
    LinkInfo, LinkLayerType, LinkMessage,
};
use types::Mac;
use types::host::{Link, POD_GROUP};

use super::{Netlink, Refusal, Request};

/// A device as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Device {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) up: bool,
    /// Whether a program has set it promiscuous for good: not only while a packet socket or a bridge uses it.
    pub(crate) promiscuous: bool,
    pub(crate) mtu: u32,
    pub(crate) mac: Option<Mac>,
    /// Index of the veth peer, if it is a veth.
    pub(crate) peer: Option<u32>,
    /// The kind of a virtual device, such as `bridge`.
    pub(crate) kind: Option<String>,
    /// Whether its frames are those of Ethernet; loopback devices and tunnels have others.
    pub(crate) is_ethernet: bool,
    group: u32,
}

impl Device {
    fn read(body: &[u8]) -> Option<Self> {
        let message = LinkMessage::parse(body).ok()?;
        let mut device = Self {
            index: message.header.index,
            name: String::new(),
            up: message.header.flags.contains(LinkFlags::Up),
            promiscuous: message.header.flags.contains(LinkFlags::Promisc),
            mtu: 0,
            mac: None,
            peer: None,
            kind: None,
            is_ethernet: message.header.link_layer_type == LinkLayerType::Ether,
            group: 0,
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => device.name = name,
                LinkAttribute::Mtu(mtu) => device.mtu = mtu,
                LinkAttribute::Address(bytes) => device.mac = bytes.try_into().ok().map(Mac),
                LinkAttribute::Link(index) => device.peer = Some(index),
                LinkAttribute::Group(group) => device.group = group,
                LinkAttribute::LinkInfo(info) => device.kind = info.iter().find_map(kind),
                _ => {}
            }
        }
        Some(device)
    }

    /// Whether it is the host end of a Pod's veth.
    pub(crate) fn is_pod_veth(&self) -> bool {
        self.group == POD_GROUP && self.peer.is_some()
    }
}

fn kind(info: &LinkInfo) -> Option<String> {
    match info {
        LinkInfo::Kind(kind) => Some(kind.to_string()),
        _ => None,
    }
}

/// One end of a veth pair.
pub(crate) struct End<'a> {
    pub(crate) name: &'a str,
    pub(crate) mtu: u32,
    pub(crate) mac: Option<Mac>,
}

impl End<'_> {
    fn attributes(&self) -> Vec<LinkAttribute> {
        let mac = self.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec()));
        [LinkAttribute::IfName(self.name.to_owned()), LinkAttribute::Mtu(self.mtu)].into_iter().chain(mac).collect()
    }
}

/// Looks up a device by name.
pub(crate) fn get(netlink: &mut Netlink, name: &str) -> Result<Option<Device>, Refusal> {
    ask(netlink, named(name, [brief()]))
}

/// Looks up a device by index.
pub(crate) fn get_index(netlink: &mut Netlink, index: u32) -> Result<Option<Device>, Refusal> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = vec![brief()];
    ask(netlink, message)
}

/// All devices of the namespace.
pub(crate) fn list(netlink: &mut Netlink) -> Result<Vec<Device>, Refusal> {
    let mut message = LinkMessage::default();
    message.attributes = vec![brief()];
    netlink.dump(&Request::new(RTM_GETLINK, 0, &message), |message| Device::read(message.body))
}

fn ask(netlink: &mut Netlink, message: LinkMessage) -> Result<Option<Device>, Refusal> {
    netlink.get(&Request::new(RTM_GETLINK, 0, &message), |message| Device::read(message.body))
}

/// Omits counters, which are half of an answer.
fn brief() -> LinkAttribute {
    LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])
}

/// Creates a veth pair with the far end in another namespace, both ends down.
pub(crate) fn veth(near: &End<'_>, far: &End<'_>, far_netns: RawFd) -> Request {
    let mut peer = LinkMessage::default();
    peer.attributes = far.attributes();
    peer.attributes.push(LinkAttribute::NetNsFd(far_netns));
    let mut message = LinkMessage::default();
    message.attributes = near.attributes();
    message.attributes.push(LinkAttribute::Group(POD_GROUP));
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    Request::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &message)
}

/// Sets the state, MTU and MAC of a device.
pub(crate) fn set(name: &str, link: &Link) -> Request {
    let mtu = link.mtu.map(LinkAttribute::Mtu);
    let mac = link.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec()));
    let mut message = named(name, mtu.into_iter().chain(mac));
    message.header.change_mask = LinkFlags::Up;
    message.header.flags = if link.up { LinkFlags::Up } else { LinkFlags::empty() };
    Request::new(RTM_SETLINK, 0, &message)
}

/// Marks a device as the host end of a Pod's veth.
pub(crate) fn mark_as_pod(name: &str) -> Request {
    Request::new(RTM_SETLINK, 0, &named(name, [LinkAttribute::Group(POD_GROUP)]))
}

/// Keeps the kernel from assigning a link-local IPv6 address to the device.
pub(crate) fn no_own_address(name: &str) -> Request {
    let inet6 = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
    Request::new(RTM_SETLINK, 0, &named(name, [LinkAttribute::AfSpecUnspec(vec![inet6])]))
}

/// Request to set a device up.
pub(crate) fn up(name: &str) -> Request {
    set(name, &Link { up: true, mtu: None, mac: None })
}

/// Ends the promiscuous mode of a device.
pub(crate) fn not_promiscuous(name: &str) -> Request {
    let mut message = named(name, []);
    message.header.change_mask = LinkFlags::Promisc;
    Request::new(RTM_SETLINK, 0, &message)
}

/// Deletes a device, and with it its veth peer.
pub(crate) fn delete(name: &str) -> Request {
    Request::new(RTM_DELLINK, 0, &named(name, []))
}

fn named(name: &str, attributes: impl IntoIterator<Item = LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = [LinkAttribute::IfName(name.to_owned())].into_iter().chain(attributes).collect();
    message
}
