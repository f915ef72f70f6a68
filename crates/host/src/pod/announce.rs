//! Announces a Pod's addresses to its neighbours.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use types::Mac;
use types::host::PodLink;

use crate::error::Error;
use crate::netlink::{Netlink, link};
use crate::netns::Netns;
use crate::packet::PacketSocket;

/// Number of announcements for each address, because packets may be lost.
const TIMES: usize = 3;
const BROADCAST: Mac = Mac([0xff; 6]);
/// The multicast address of all nodes on an IPv6 link, and its MAC.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: Mac = Mac([0x33, 0x33, 0, 0, 0, 1]);

/// Announces a Pod's addresses from its namespace with gratuitous ARP and unsolicited neighbour advertisements. Does not wait.
pub fn announce(pod: &PodLink) -> Result<(), Error> {
    let netns = Netns::open(&pod.netns)?;
    netns.run(|| {
        let doing = || format!("cannot announce the addresses of {} in {}", pod.container_device, pod.netns.display());
        let mut netlink = Netlink::route().map_err(Error::refused(doing()))?;
        let device = link::get(&mut netlink, &pod.container_device).map_err(Error::refused(doing()))?;
        let missing = || Error::NoDevice { doing: doing(), device: pod.container_device.clone() };
        let socket = PacketSocket::open(device.ok_or_else(missing)?.index).map_err(Error::io(doing()))?;
        for net in pod.addresses.iter().cycle().take(TIMES * pod.addresses.len()) {
            let frame = match net.addr() {
                IpAddr::V4(v4) => gratuitous_arp(pod.mac, v4),
                IpAddr::V6(v6) => neighbour_advertisement(pod.mac, v6),
            };
            socket.send(&frame).map_err(Error::io(doing()))?;
        }
        Ok(())
    })?
}

fn ethernet(to: Mac, from: Mac, kind: u16) -> Vec<u8> {
    [to.0.as_slice(), &from.0, &kind.to_be_bytes()].concat()
}

/// A request for one's own address: neighbours that have an entry update it.
fn gratuitous_arp(mac: Mac, ip: Ipv4Addr) -> Vec<u8> {
    // Ethernet, IPv4, the lengths of their addresses, request.
    let header = [0, 1, 0x08, 0, 6, 4, 0, 1];
    [&ethernet(BROADCAST, mac, 0x0806), header.as_slice(), &mac.0, &ip.octets(), &[0; 6], &ip.octets()].concat()
}

/// An unsolicited neighbour advertisement (RFC 4861, 4.4 and 7.2.6).
fn neighbour_advertisement(mac: Mac, ip: Ipv6Addr) -> Vec<u8> {
    const OVERRIDE: u8 = 0x20;
    let target_mac_option = [&[2, 1], mac.0.as_slice()].concat();
    let mut icmp = [&[136, 0, 0, 0, OVERRIDE, 0, 0, 0], ip.octets().as_slice(), &target_mac_option].concat();
    let length = u8::try_from(icmp.len()).unwrap_or_default();
    let pseudo = [ip.octets().as_slice(), &ALL_NODES.octets(), &[0, 0, 0, length, 0, 0, 0, 58], &icmp].concat();
    icmp.splice(2..4, checksum(&pseudo).to_be_bytes());
    // Version 6, the length, ICMPv6, and hop limit 255, which proves that it comes from this link.
    let header = [0x60, 0, 0, 0, 0, length, 58, 255];
    let ip_header = [header.as_slice(), &ip.octets(), &ALL_NODES.octets()].concat();
    [ethernet(ALL_NODES_MAC, mac, 0x86dd), ip_header, icmp].concat()
}

fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        rest => rest.iter().map(|high| u32::from(*high) << 8).sum(),
    });
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).unwrap_or_default()
}
