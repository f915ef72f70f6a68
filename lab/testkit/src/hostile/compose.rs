//! Random frames: some that are right, some that are almost right, some that are neither.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Opened, Terrain};
use crate::dice::Dice;
use crate::frames::{self, BROADCAST, Body, Mac, kind, proto};
use crate::mutate::mutate;

const SYN: u8 = 2;
const SYN_ACK: u8 = 0x12;
const ACK: u8 = 0x10;
/// Ports of Geneve, VXLAN and STT.
const TUNNELS: [u16; 3] = [6081, 4789, 7471];
/// The length of the shortest frame.
const ETHERNET: usize = 14;
/// What fits into a frame of the usual size.
const LARGEST: usize = 1514;

/// The next frames of the hostile Pod, which belong together: mostly one, or the parts of a packet.
pub fn compose(dice: &mut Dice, terrain: &Terrain) -> Vec<Vec<u8>> {
    let mut frames = match dice.below(100) {
        0..8 => vec![arp(dice, terrain)],
        8..12 => vec![noise(dice, terrain)],
        12..15 if !terrain.foreign.is_empty() => vec![meddling(dice, terrain)],
        15..30 if !terrain.opened.is_empty() => vec![answer(dice, terrain)],
        _ => packet(dice, terrain, 1),
    };
    for frame in &mut frames {
        if dice.percent(8) {
            let known = [dice.one(&[kind::VLAN, kind::QINQ]), dice.one(&[0, 1, 5, 0xfff])];
            *frame = frames::tagged(frame, &[(known[0], known[1]), (kind::VLAN, 7)][..1 + dice.below(2)]);
        }
        if dice.percent(10) {
            let (head, rest) = frame.split_at(frame.len().min(if dice.percent(50) { 0 } else { ETHERNET }));
            *frame = [head, &mutate(dice, rest, &[])].concat();
        }
        frame.truncate(LARGEST);
        frame.resize(frame.len().max(ETHERNET), 0);
    }
    frames
}

/// All addresses that may be worth something.
fn everywhere(terrain: &Terrain, v6: bool) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = [terrain.me, terrain.gateway].iter().map(|host| host.ip(v6)).collect();
    all.extend(terrain.neighbours.iter().flat_map(|neighbour| [neighbour.host.ip(v6); 4]));
    all.extend(terrain.remotes.iter().chain(&terrain.nodes).chain(&terrain.services));
    let special: &[&str] = match v6 {
        true => &["::1", "::", "fe80::1", "ff02::1", "ff02::1:ff00:1", "::ffff:127.0.0.1", "2001:db8::7"],
        false => {
            &["127.0.0.1", "0.0.0.0", "169.254.169.254", "224.0.0.1", "255.255.255.255", "203.0.113.7", "240.0.0.1"]
        }
    };
    all.extend(special.iter().filter_map(|text| text.parse::<IpAddr>().ok()));
    all.retain(|address| address.is_ipv6() == v6);
    all
}

fn some_mac(dice: &mut Dice, terrain: &Terrain) -> Mac {
    let mut all = vec![terrain.me.mac, terrain.gateway.mac, BROADCAST, [0x33, 0x33, 0, 0, 0, 1], [0; 6]];
    all.push([0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff]);
    all.extend(terrain.neighbours.iter().map(|neighbour| neighbour.host.mac));
    all.push([0x0a, dice.byte(), dice.byte(), 0, 0, 1]);
    dice.one(&all)
}

/// The frames' addresses: mostly the right ones.
fn macs(dice: &mut Dice, terrain: &Terrain, to: IpAddr) -> (Mac, Mac) {
    let neighbour = terrain.neighbours.iter().find(|neighbour| neighbour.host.ip(to.is_ipv6()) == to);
    let next_hop = neighbour.map_or(terrain.gateway.mac, |neighbour| neighbour.host.mac);
    let from = if dice.percent(12) { some_mac(dice, terrain) } else { terrain.me.mac };
    let to = if dice.percent(15) { some_mac(dice, terrain) } else { next_hop };
    (from, to)
}

fn port(dice: &mut Dice, terrain: &Terrain) -> u16 {
    match dice.below(10) {
        0 => dice.one(&TUNNELS),
        1 => u16::from_be_bytes([dice.byte(), dice.byte()]),
        _ => dice.one(&terrain.ports),
    }
}

fn arp(dice: &mut Dice, terrain: &Terrain) -> Vec<u8> {
    let address = |dice: &mut Dice| match dice.one(&everywhere(terrain, false)) {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    };
    let from = if dice.percent(50) { terrain.me.mac } else { some_mac(dice, terrain) };
    let sender_mac = if dice.percent(60) { terrain.me.mac } else { some_mac(dice, terrain) };
    let sender = if dice.percent(60) { terrain.me.v4 } else { address(dice) };
    let to = if dice.percent(60) { BROADCAST } else { some_mac(dice, terrain) };
    let target = (some_mac(dice, terrain), address(dice));
    frames::arp(from, to, dice.one(&[1, 1, 2, 2, 3, 0x0101]), (sender_mac, sender), target)
}

/// A frame of any type with any bytes.
fn noise(dice: &mut Dice, terrain: &Terrain) -> Vec<u8> {
    let body: Vec<u8> = (0..46 + dice.below(60)).map(|_| dice.byte()).collect();
    // Spanning tree and the like, MPLS, PPPoE, MACsec, 802.1X, and what is a length.
    let kinds = [0x0026, 0x8847, 0x8864, 0x88e5, 0x888e, 0x88cc, kind::IPV4, kind::IPV6, kind::ARP, 0x6558];
    let (from, to) = (some_mac(dice, terrain), some_mac(dice, terrain));
    frames::ethernet(from, to, dice.one(&kinds), &body)
}

/// Something about a connection that a neighbour has opened.
fn answer(dice: &mut Dice, terrain: &Terrain) -> Vec<u8> {
    let all: Vec<Opened> = terrain.opened.iter().copied().collect();
    let opened = dice.one(&all);
    let Some(to) = terrain.neighbours.get(opened.by).map(|neighbour| neighbour.host) else { return Vec::new() };
    let (from_ip, to_ip) = (terrain.me.ip(opened.v6), to.ip(opened.v6));
    let spoofed = if dice.percent(10) { dice.one(&everywhere(terrain, opened.v6)) } else { from_ip };
    let near = |dice: &mut Dice, port: u16| if dice.percent(20) { port.wrapping_add(1) } else { port };
    let src = SocketAddr::new(spoofed, near(dice, opened.mine));
    let dst = SocketAddr::new(to_ip, near(dice, opened.theirs));
    let body = match (dice.below(10), opened.proto) {
        (0..3, _) => {
            let quoted = frames::ip(to_ip, from_ip, &frames::udp(dst, src, b"quoted"));
            error(dice, spoofed, to_ip, &quoted)
        }
        (_, proto::UDP) => frames::udp(src, dst, b"answer"),
        _ => {
            let flags = dice.one(&[SYN, SYN_ACK, SYN_ACK, SYN_ACK, ACK, 0x14, 0x11, 0]);
            let numbers = (dice.one(&[500, 501, 0]), dice.one(&[101, 101, 101, 0, 5000]));
            frames::tcp(src, dst, flags, numbers, b"")
        }
    };
    let (from_mac, to_mac) = macs(dice, terrain, to_ip);
    frames::ethernet_ip(from_mac, to_mac, &frames::ip(spoofed, to_ip, &body))
}

/// An error about a connection of two others, to one of them.
fn meddling(dice: &mut Dice, terrain: &Terrain) -> Vec<u8> {
    let (client, server) = dice.one(&terrain.foreign);
    let (near, far) = if dice.percent(50) { (client, server) } else { (server, client) };
    let quoted = frames::ip(near.ip(), far.ip(), &frames::tcp(near, far, SYN_ACK, (500, 101), b""));
    let src = if dice.percent(80) { terrain.me.ip(near.is_ipv6()) } else { far.ip() };
    let body = error(dice, src, near.ip(), &quoted);
    let (from_mac, to_mac) = macs(dice, terrain, near.ip());
    frames::ethernet_ip(from_mac, to_mac, &frames::ip(src, near.ip(), &body))
}

/// An ICMP error or redirect about a packet.
fn error(dice: &mut Dice, src: IpAddr, dst: IpAddr, quoted: &[u8]) -> Body {
    let (kind, code) = match src.is_ipv6() {
        true => (dice.one(&[1, 2, 3, 4, 137]), dice.one(&[0, 1, 4])),
        false => (dice.one(&[3, 5, 11, 12, 4]), dice.one(&[0, 1, 3, 4])),
    };
    frames::icmp_error(src, dst, kind, code, quoted)
}

/// An IP packet, in one frame or in parts.
fn packet(dice: &mut Dice, terrain: &Terrain, depth: usize) -> Vec<Vec<u8>> {
    let v6 = dice.percent(45);
    let all = everywhere(terrain, v6);
    let src = if dice.percent(60) { terrain.me.ip(v6) } else { dice.one(&all) };
    let dst = dice.one(&all);
    let body = body(dice, terrain, (src, dst), depth);
    let mut whole = frames::ip_with(src, dst, dice.one(&[64, 64, 64, 64, 255, 255, 2, 1, 0]), &body);
    if dice.percent(10) {
        let options: &[&[u8]] = &[&[7, 7, 4, 0, 0, 0, 0], &[0x83, 7, 4, 10, 10, 0, 1], &[0x94, 4, 0, 0], &[1, 1, 1, 0]];
        whole = frames::with_options(&whole, dice.one(options));
    }
    if dice.percent(15) {
        let kinds: Vec<u8> = (0..=dice.below(3)).map(|_| dice.one(&[0, 43, 44, 60, 51, 135])).collect();
        whole = frames::extended(&whole, &kinds);
    }
    let mut parts = vec![whole];
    if dice.percent(12) {
        let id = u16::from_be_bytes([dice.byte(), dice.byte()]);
        parts = frames::fragments(&parts[0], dice.one(&[8, 16, 24, 1208]), id);
        match dice.below(4) {
            0 => parts.reverse(),
            1 if parts.len() > 1 => drop(parts.pop()),
            2 => parts.extend(parts.clone()),
            _ => {}
        }
    }
    let (from_mac, to_mac) = macs(dice, terrain, dst);
    parts.iter().map(|part| frames::ethernet_ip(from_mac, to_mac, part)).collect()
}

fn body(dice: &mut Dice, terrain: &Terrain, (src, dst): (IpAddr, IpAddr), depth: usize) -> Body {
    let (from, to) = (SocketAddr::new(src, port(dice, terrain)), SocketAddr::new(dst, port(dice, terrain)));
    let long = dice.percent(10);
    let data = &vec![7; if long { 1300 } else { 8 }][..];
    match dice.below(20) {
        0..5 => {
            let flags = dice.one(&[SYN, SYN, SYN, SYN_ACK, ACK, 0x18, 0x11, 0x14, 0, 0x3f]);
            frames::tcp(
                from,
                to,
                flags,
                (dice.one(&[100, 101, 0]), dice.one(&[0, 501])),
                if flags == SYN { b"" } else { data },
            )
        }
        5..9 => frames::udp(from, to, data),
        9 => frames::sctp(from, to, data),
        10..12 => frames::echo(src, dst, 7, data),
        12 => {
            let quoted = frames::ip(dst, src, &frames::udp(to, from, data));
            error(dice, src, dst, &quoted)
        }
        13 => control(dice, terrain, src, dst),
        14..18 if depth > 0 => tunnel(dice, terrain, (from, to), depth - 1),
        18 => frames::esp(data),
        _ => Body { proto: dice.byte(), bytes: data.to_vec() },
    }
}

/// Messages about the network itself: neighbours, routers, groups.
fn control(dice: &mut Dice, terrain: &Terrain, src: IpAddr, dst: IpAddr) -> Body {
    let (IpAddr::V6(from), IpAddr::V6(to)) = (src, dst) else {
        // Router advertisement, timestamp and address mask of ICMP; IGMP.
        let kind = dice.one(&[9, 10, 13, 17]);
        let rest = [1, 2, 0, 30, 10, 10, 0, 1, 0, 0, 0, 0];
        let icmp = frames::icmp(src, dst, kind, 0, &rest);
        return if dice.percent(70) {
            icmp
        } else {
            Body { proto: 2, bytes: vec![0x16, 0, 0x09, 0x04, 0xe0, 0, 0, 0xfb] }
        };
    };
    match dice.below(4) {
        0 | 1 => {
            let targets = everywhere(terrain, true);
            let target = match dice.one(&targets) {
                IpAddr::V6(target) => target,
                IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
            };
            frames::neighbour(from, to, dice.one(&[135, 136]), target, some_mac(dice, terrain))
        }
        2 => {
            // A router with a prefix for all hosts.
            let mut rest = vec![
                64, 0x08, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 3, 4, 64, 0xc0, 0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0, 0,
            ];
            rest.extend(terrain.me.v6.octets());
            frames::icmp(src, dst, 134, 0, &rest)
        }
        _ => frames::icmp(src, dst, dice.one(&[130, 131, 133, 137, 143, 151]), 0, &[0; 20]),
    }
}

/// A frame inside, which the outside might be taken off.
fn tunnel(dice: &mut Dice, terrain: &Terrain, (from, to): (SocketAddr, SocketAddr), depth: usize) -> Body {
    let inner = packet(dice, terrain, depth).swap_remove(0);
    let at = |port: u16| SocketAddr::new(to.ip(), port);
    match dice.below(6) {
        0 | 1 => frames::geneve(from, at(TUNNELS[0]), 0, &inner),
        2 => frames::vxlan(from, at(TUNNELS[1]), 0, &inner),
        3 => frames::gre(&inner),
        4 => frames::stt(from, at(TUNNELS[2]), &inner),
        _ => frames::ipip(&inner[ETHERNET..]),
    }
}
