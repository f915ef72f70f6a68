//! nftables ingress chains that make the kernel drop the packets of a device.
//!
//! ovs-vswitchd's userspace datapath reads a Pod's packets with a packet socket. That receives copies: the kernel would answer
//! and forward the packets as well. A chain on the device's ingress that drops everything prevents it; packet sockets come
//! before it. It is equivalent to
//! `nft add chain netdev antrea DEVICE '{ type filter hook ingress device DEVICE priority -500; policy drop; }'`,
//! but sent to the kernel without starting `nft`.
//!
//! A bridge that is down, as the device's master, would swallow most packets too, but forwards those to the multicast
//! addresses 01:80:c2:00:00:02 and above, with any content that a Pod chooses. It costs the same to add (0.15 ms), and more to
//! remove with the device (9 ms on a busy machine).

use nix::errno::Errno;
use types::host::FIREWALL_TABLE;

use crate::netlink::{Netlink, Refusal, Request};

const NFPROTO_INET: u8 = 1;
const NFPROTO_NETDEV: u8 = 5;
const NF_NETDEV_INGRESS: u32 = 0;
const NF_DROP: u32 = 0;
const PRIORITY: i32 = -500;
const NLA_F_NESTED: u16 = 1 << 15;

/// Numbers of netlink attributes, named as in the kernel's headers.
const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEVICE: u16 = 3;
const GENERATION_ID: u16 = 1;

/// Makes the kernel drop all packets from `device`; packet sockets still receive them.
pub(crate) fn add(netfilter: &mut Netlink, device: &str) -> Result<(), Refusal> {
    match netfilter.transaction(&[table(), chain(device)]) {
        // Left over from a deleted device of this name.
        Err(Refusal { errno: Errno::EEXIST, .. }) => {
            remove(netfilter, device)?;
            netfilter.transaction(&[table(), chain(device)])
        }
        result => result,
    }
}

/// Removes the chain of `device`. Older kernels do so when the device is deleted.
pub(crate) fn remove(netfilter: &mut Netlink, device: &str) -> Result<(), Refusal> {
    // The kernel takes 10 ms to reject a transaction, and a few microseconds to answer a query.
    if !exists(netfilter, device)? {
        return Ok(());
    }
    match netfilter.transaction(&[request(libc::NFT_MSG_DELCHAIN, 0, &named_chain(device))]) {
        Err(Refusal { errno: Errno::ENOENT, .. }) => Ok(()),
        result => result,
    }
}

/// Whether `device` has its chain.
pub(crate) fn exists(netfilter: &mut Netlink, device: &str) -> Result<bool, Refusal> {
    let get = request(libc::NFT_MSG_GETCHAIN, 0, &named_chain(device));
    Ok(netfilter.get(&get, |_| Some(()))?.is_some())
}

/// The devices with a chain.
pub(crate) fn list(netfilter: &mut Netlink) -> Result<Vec<String>, Refusal> {
    let all = request(libc::NFT_MSG_GETCHAIN, 0, &[]);
    netfilter.dump(&all, |message| {
        let ours = text(message.body, CHAIN_TABLE)? == FIREWALL_TABLE;
        text(message.body, CHAIN_NAME).filter(|_| ours)
    })
}

/// The generation of nftables: a number that increases with every change of any rule.
pub(crate) fn generation(netfilter: &mut Netlink) -> Result<u32, Refusal> {
    let get = request(libc::NFT_MSG_GETGEN, 0, &[]);
    let read = |body: &[u8]| Some(u32::from_be_bytes(attribute(body, GENERATION_ID)?.try_into().ok()?));
    netfilter.get(&get, |message| read(message.body))?.ok_or(Errno::ENOENT.into())
}

/// Whether an nftables message refers to the table of [`crate::nft`].
pub(crate) fn is_about_our_rules(body: &[u8]) -> bool {
    // Objects in a table have the table's name in the same attribute as the table itself.
    body.first() == Some(&NFPROTO_INET) && text(body, TABLE_NAME).is_some_and(|table| table == FIREWALL_TABLE)
}

fn table() -> Request {
    request(libc::NFT_MSG_NEWTABLE, libc::NLM_F_CREATE, &string(TABLE_NAME, FIREWALL_TABLE))
}

fn chain(device: &str) -> Request {
    let hook = [
        number(HOOK_NUMBER, NF_NETDEV_INGRESS),
        number(HOOK_PRIORITY, PRIORITY.cast_unsigned()),
        string(HOOK_DEVICE, device),
    ];
    let body = [
        named_chain(device),
        bytes(CHAIN_HOOK | NLA_F_NESTED, &hook.concat()),
        number(CHAIN_POLICY, NF_DROP),
        string(CHAIN_TYPE, "filter"),
    ];
    request(libc::NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body.concat())
}

fn named_chain(device: &str) -> Vec<u8> {
    [string(CHAIN_TABLE, FIREWALL_TABLE), string(CHAIN_NAME, device)].concat()
}

fn request(message: libc::c_int, flags: libc::c_int, attributes: &[u8]) -> Request {
    let kind = u16::try_from(libc::NFNL_SUBSYS_NFTABLES << 8 | message).unwrap_or_default();
    // `struct nfgenmsg`: family, version, and a resource ID that only matters for the begin and end of a transaction.
    Request::raw(kind, flags, [&[NFPROTO_NETDEV, 0, 0, 0], attributes].concat())
}

fn string(kind: u16, text: &str) -> Vec<u8> {
    bytes(kind, &[text.as_bytes(), &[0]].concat())
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    bytes(kind, &value.to_be_bytes())
}

fn bytes(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or_default();
    let mut all = [&length.to_ne_bytes(), &kind.to_ne_bytes(), value].concat();
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

/// The value of an attribute of an nftables message.
fn attribute(body: &[u8], kind: u16) -> Option<&[u8]> {
    let attributes = netlink_packet_core::NlasIterator::new(body.get(4..)?);
    let found = attributes.flatten().find(|attribute| attribute.kind() == kind)?;
    // The iterator's items borrow from `body`, but their type does not express it.
    let value = found.into_inner();
    value.get(4..usize::from(u16::from_ne_bytes(*value.first_chunk()?)))
}

fn text(body: &[u8], kind: u16) -> Option<String> {
    let value = attribute(body, kind)?;
    Some(String::from_utf8_lossy(value).trim_end_matches('\0').to_owned())
}
