//! Notifications when the kernel's state changes.
//!
//! The kernel reports every change, including our own: the agent reads the state again ([`crate::Kernel::observe`]) after each,
//! and finds nothing to do after its own.

use std::collections::BTreeSet;
use std::io;

use netlink_sys::Socket;
use tokio::io::unix::AsyncFd;
use types::host::ROUTE_PROTOCOL;

use crate::error::Error;
use crate::ingress_drop::is_about_our_rules;
use crate::netlink::{Message, Netlink, find, link, messages};

/// The kind of objects that may have changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Change {
    /// A device was added, changed or deleted.
    Links,
    /// Addresses of a device.
    Addresses,
    /// Routes with our protocol number.
    Routes,
    /// Neighbours with our protocol number.
    Neighbours,
    /// Policy routing rules, also foreign ones.
    Rules,
    /// The rules in our nftables table.
    Firewall,
}

const ALL: [Change; 6] =
    [Change::Links, Change::Addresses, Change::Routes, Change::Neighbours, Change::Rules, Change::Firewall];

/// The groups of `NETLINK_ROUTE` for links, neighbours, addresses, routes and rules.
const ROUTE_GROUPS: [u32; 8] = [1, 3, 5, 7, 8, 9, 11, 19];
/// Lengths of the headers before the attributes: `ifinfomsg` and `ndmsg`.
pub(crate) const LINK_HEADER: usize = 16;
const NEIGHBOUR_HEADER: usize = 12;
/// The attribute with the protocol number of a neighbour.
const NDA_PROTOCOL: u16 = 12;
/// The group of `NETLINK_NETFILTER` for nftables.
const NFTABLES_GROUP: u32 = 7;

/// A subscription to changes in the namespace of the thread that opened it. Needs tokio.
#[derive(Debug)]
pub struct Watch {
    route: Listener,
    netfilter: Listener,
    ours: Ours,
}

/// Our devices, by name and by their current indices.
#[derive(Debug)]
struct Ours {
    names: BTreeSet<String>,
    indices: BTreeSet<u32>,
}

impl Watch {
    /// Subscribes to changes of these devices, and of everything with our mark.
    pub fn open(devices: impl IntoIterator<Item = String>) -> Result<Self, Error> {
        let doing = "cannot subscribe to kernel notifications";
        let names: BTreeSet<_> = devices.into_iter().collect();
        let route = Listener::open(netlink_sys::protocols::NETLINK_ROUTE, &ROUTE_GROUPS).map_err(Error::io(doing))?;
        let netfilter = Listener::open(netlink_sys::protocols::NETLINK_NETFILTER, &[NFTABLES_GROUP]);
        let netfilter = netfilter.map_err(Error::io(doing))?;
        // Queried after subscribing, so that no new device is missed in between.
        let mut netlink = Netlink::route().map_err(Error::refused(doing))?;
        let mut indices = BTreeSet::new();
        for name in &names {
            indices.extend(link::get(&mut netlink, name).map_err(Error::refused(doing))?.map(|device| device.index));
        }
        Ok(Self { route, netfilter, ours: Ours { names, indices } })
    }

    /// Waits until something may have changed. Cancel safe.
    pub async fn changed(&mut self) -> Result<BTreeSet<Change>, Error> {
        let doing = "cannot subscribe to kernel notifications";
        loop {
            let changes = tokio::select! {
                changes = self.route.receive(|message| self.ours.change(message)) => changes,
                changes = self.netfilter.receive(|message| is_about_our_rules(message.body).then_some(Change::Firewall)) => changes,
            };
            let changes = changes.map_err(Error::io(doing))?;
            if !changes.is_empty() {
                return Ok(changes);
            }
        }
    }
}

impl Ours {
    /// The kind of our objects that a message refers to, if any. Messages are not decoded as a whole: most are about veths of Pods.
    fn change(&mut self, message: Message<'_>) -> Option<Change> {
        match message.kind {
            libc::RTM_NEWLINK | libc::RTM_DELLINK => self.link(message),
            libc::RTM_NEWADDR | libc::RTM_DELADDR => {
                self.indices.contains(&device_index(message)?).then_some(Change::Addresses)
            }
            libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
                // `rtm_protocol`
                (message.body.get(5) == Some(&ROUTE_PROTOCOL)).then_some(Change::Routes)
            }
            libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
                let protocol = find(message.body.get(NEIGHBOUR_HEADER..)?, NDA_PROTOCOL)?;
                (protocol.first() == Some(&ROUTE_PROTOCOL)).then_some(Change::Neighbours)
            }
            libc::RTM_NEWRULE | libc::RTM_DELRULE => Some(Change::Rules),
            _ => None,
        }
    }

    fn link(&mut self, message: Message<'_>) -> Option<Change> {
        let index = device_index(message)?;
        let name = find(message.body.get(LINK_HEADER..)?, libc::IFLA_IFNAME).and_then(|name| name.strip_suffix(&[0]));
        let named = name.is_some_and(|name| self.names.iter().any(|ours| ours.as_bytes() == name));
        let known = match message.kind == libc::RTM_NEWLINK && named {
            true => !self.indices.insert(index),
            false => self.indices.remove(&index),
        };
        (named || known).then_some(Change::Links)
    }
}

/// The device of a link or address: `ifi_index` and `ifa_index` have the same offset.
fn device_index(message: Message<'_>) -> Option<u32> {
    Some(u32::from_ne_bytes(message.body.get(4..8)?.try_into().ok()?))
}

/// A socket subscribed to notification groups.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: AsyncFd<Socket>,
    buffer: Vec<u8>,
}

impl Listener {
    pub(crate) fn open(protocol: isize, groups: &[u32]) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        for group in groups {
            socket.add_membership(*group)?;
        }
        #[expect(
            unsafe_code,
            reason = "the socket owns its descriptor, always gives the same, and goes with the AsyncFd"
        )]
        let socket = unsafe { AsyncFd::register(socket)? };
        Ok(Self { socket, buffer: Vec::with_capacity(32 << 10) })
    }

    /// Waits for messages, and reads all of them. If the socket's buffer has overflowed, anything may have changed.
    pub(crate) async fn receive(
        &mut self,
        mut read: impl FnMut(Message<'_>) -> Option<Change>,
    ) -> io::Result<BTreeSet<Change>> {
        let mut ready = self.socket.readable().await?;
        let mut changes = BTreeSet::new();
        loop {
            self.buffer.clear();
            match ready.try_io(|socket| socket.get_ref().recv(&mut self.buffer, 0)) {
                Ok(Ok(_)) => changes.extend(messages(&self.buffer).filter_map(&mut read)),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) if error.raw_os_error() == Some(libc::ENOBUFS) => changes.extend(ALL),
                Ok(Err(error)) => return Err(error),
                // No more messages.
                Err(_) => return Ok(changes),
            }
        }
    }
}
