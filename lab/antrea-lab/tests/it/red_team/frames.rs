//! Frames of a hostile Pod to Pods that policies isolate.

use std::net::{IpAddr, SocketAddr};

use testkit::frames::{self, BROADCAST, Body, Mac, kind};
use testkit::hostile::Host;

use super::attack::Attacker::{Pod, RawPod};
use super::attack::{Attack, Shot};
use super::field::{ALLOWED, Field};

pub(super) const SYN: u8 = 2;
const ALL_NODES: (Mac, &str) = ([0x33, 0x33, 0, 0, 0, 1], "ff02::1");
/// The closed Pods, one on each Node.
pub(super) const SAFE: [&str; 3] = ["safe-1", "safe-2", "safe-3"];

pub(super) const CATALOGUE: &[Attack] = &[
    Attack::shots("own address, closed Pods", Pod, |f, mark| {
        packets(f, mark, |from, _, to, v6| (from.ip(v6), to.ip(v6)), |packet| vec![packet])
    }),
    Attack::shots("spoofed IP of an allowed Pod", RawPod, |f, mark| {
        packets(f, mark, |_, friend, to, v6| (friend.ip(v6), to.ip(v6)), |packet| vec![packet])
    }),
    Attack::shots("spoofed MAC", RawPod, |f, mark| {
        let macs = [f.pod("open-1").host.mac, BROADCAST, [0; 6], [0x0a, 1, 2, 3, 4, 5]];
        macs.into_iter().flat_map(|from| near(f, mark, from, f.pod("evil").host)).collect()
    }),
    Attack::shots("spoofed gateway", RawPod, |f, mark| {
        // Traffic of the local Node is allowed by any policy.
        let own = f.pod("evil").host.mac;
        [f.gateway.mac, own].into_iter().flat_map(|from| near(f, mark, from, f.gateway)).collect()
    }),
    Attack::shots("VLAN and QinQ tags", RawPod, |f, mark| {
        let tags: [&[(u16, u16)]; 5] = [
            &[(kind::VLAN, 0)],
            &[(kind::VLAN, 1)],
            &[(kind::QINQ, 5)],
            &[(kind::QINQ, 5), (kind::VLAN, 6)],
            &[(kind::VLAN, 0), (kind::VLAN, 0)],
        ];
        let evil = f.pod("evil").host;
        let from: Vec<Vec<u8>> = [evil, f.pod("friend").host, f.gateway]
            .into_iter()
            .flat_map(|source| near(f, mark, evil.mac, source))
            .filter_map(|shot| if let Shot::Pod(_, frame) = shot { Some(frame) } else { None })
            .collect();
        let tagged = |tags: &[(u16, u16)]| -> Vec<Shot> {
            from.iter().map(|frame| Shot::Pod("evil", frames::tagged(frame, tags))).collect()
        };
        tags.iter().flat_map(|tags| tagged(tags)).collect()
    }),
    Attack::shots("IPv4 fragments", RawPod, |f, mark| fragments(f, mark, false)),
    Attack::shots("IPv6 fragments", RawPod, |f, mark| fragments(f, mark, true)),
    Attack::shots("IPv4 options", RawPod, |f, mark| {
        let loose = [0x83, 7, 4, 10, 10, 1, 1];
        let options = move |packet: Vec<u8>| {
            vec![frames::with_options(&packet, &loose), frames::with_options(&packet, &[7, 7, 4])]
        };
        let mut shots = packets(f, mark, |_, friend, to, _| (friend.ip(false), to.ip(false)), options);
        shots.extend(packets(f, mark, |from, _, to, _| (from.ip(false), to.ip(false)), options));
        shots
    }),
    Attack::shots("IPv6 extension headers", RawPod, |f, mark| {
        let chains: [&[u8]; 7] = [&[0], &[60], &[43], &[44], &[0, 60, 43, 44], &[60, 60, 60, 60], &[51]];
        let extended = move |packet: Vec<u8>| chains.iter().map(|chain| frames::extended(&packet, chain)).collect();
        let mut shots = packets(f, mark, |_, friend, to, _| (friend.ip(true), to.ip(true)), extended);
        shots.extend(packets(f, mark, |from, _, to, _| (from.ip(true), to.ip(true)), extended));
        shots
    }),
    Attack::shots("link-local and multicast", RawPod, |f, mark| {
        let (evil, safe) = (f.pod("evil").host, f.pod("safe-1").host);
        let (from, multicast) = (link_local(evil.mac), "ff02::1".parse().unwrap());
        let groups = [(link_local(safe.mac), safe.mac), (multicast, ALL_NODES.0)];
        let v6 = groups.into_iter().flat_map(|(to, mac)| {
            [from, evil.v6.into()].into_iter().flat_map(move |from| all(evil.mac, mac, from, to, mark))
        });
        let group: IpAddr = "224.0.0.1".parse().unwrap();
        let broadcast: IpAddr = "255.255.255.255".parse().unwrap();
        let v4 = [(group, [1, 0, 0x5e, 0, 0, 1]), (broadcast, BROADCAST), (safe.v4.into(), BROADCAST)];
        let v4 = v4.into_iter().flat_map(|(to, mac)| all(evil.mac, mac, evil.v4.into(), to, mark));
        v6.chain(v4).collect()
    }),
    Attack::shots("router advertisement, redirect", RawPod, |f, mark| {
        let (evil, to): (_, IpAddr) = (f.pod("evil").host, ALL_NODES.1.parse().unwrap());
        let option = |kind: u8| [&[kind, 2][..], mark, &[0; 2]].concat();
        let mut shots = Vec::new();
        for from in [link_local(evil.mac), link_local(f.gateway.mac), f.gateway.v6.into()] {
            let advertisement = [&[64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0][..], &option(253)].concat();
            let redirect = [&[0; 4][..], &[0; 32], &option(253)].concat();
            for (number, rest) in [(134, advertisement), (137, redirect)] {
                let body = frames::icmp(from, to, number, 0, &rest);
                let packet = frames::ip_with(from, to, 255, &body);
                shots.push(Shot::Pod("evil", frames::ethernet_ip(evil.mac, ALL_NODES.0, &packet)));
            }
        }
        shots
    }),
    Attack::shots("neighbour spoofing", RawPod, |f, mark| {
        // The mark is in the padding of the message. ARP requests for the own address are allowed.
        let (evil, safe) = (f.pod("evil").host, f.pod("safe-1").host);
        let mut shots = Vec::new();
        for claimed in [f.gateway, f.pod("open-1").host] {
            for from in [evil.v6, claimed.v6] {
                let mut body = frames::neighbour(from, safe.v6, 136, claimed.v6, evil.mac);
                let rest = [&body.bytes[4..], &[253, 2][..], mark, &[0; 2]].concat();
                body = frames::icmp(from.into(), safe.v6.into(), 136, 0, &rest);
                let packet = frames::ip_with(from.into(), safe.v6.into(), 255, &body);
                shots.push(Shot::Pod("evil", frames::ethernet_ip(evil.mac, safe.mac, &packet)));
            }
            let mut arp = frames::arp(evil.mac, safe.mac, 2, (evil.mac, claimed.v4), (safe.mac, safe.v4));
            arp.extend(mark);
            shots.push(Shot::Pod("evil", arp));
        }
        shots
    }),
    Attack::shots("IPIP, GRE and ESP to closed Pods", RawPod, |f, mark| {
        let (evil, safe, friend) = (f.pod("evil").host, f.pod("safe-1").host, f.pod("friend").host);
        let mut shots = Vec::new();
        for v6 in [false, true] {
            for (source, claimed) in [(evil, friend), (friend, evil)] {
                let inner = frames::ip(claimed.ip(v6), safe.ip(v6), &udp(claimed.ip(v6), safe.ip(v6), mark));
                let frame = frames::ethernet_ip(evil.mac, safe.mac, &inner);
                for body in [frames::ipip(&inner), frames::gre(&frame), frames::esp(&inner)] {
                    let packet = frames::ip(source.ip(v6), safe.ip(v6), &body);
                    shots.push(Shot::Pod("evil", frames::ethernet_ip(evil.mac, safe.mac, &packet)));
                }
            }
        }
        shots
    }),
    Attack::shots("TCP out of nowhere, simultaneous open", RawPod, |f, mark| {
        // Segments of connections that the closed Pod has never opened.
        let (evil, safe) = (f.pod("evil").host, f.pod("safe-1").host);
        let mut shots = Vec::new();
        for flags in [SYN, 0x12, 0x10, 0x18, 0x11, 0x14, 0, 0x3f, 0x29] {
            for port in [40_000, ALLOWED, 80] {
                let (src, dst) = (SocketAddr::new(evil.v4.into(), ALLOWED), SocketAddr::new(safe.v4.into(), port));
                let packet = frames::ip(src.ip(), dst.ip(), &frames::tcp(src, dst, flags, (100, 500), mark));
                shots.push(Shot::Pod("evil", frames::ethernet_ip(evil.mac, safe.mac, &packet)));
            }
        }
        shots
    }),
];

/// A datagram with the mark.
pub(super) fn udp(src: IpAddr, dst: IpAddr, mark: &[u8]) -> Body {
    frames::udp(SocketAddr::new(src, 40_000), SocketAddr::new(dst, ALLOWED), mark)
}

/// The same by every protocol.
fn bodies(src: IpAddr, dst: IpAddr, mark: &[u8]) -> [Body; 4] {
    let (from, to) = (SocketAddr::new(src, 40_000), SocketAddr::new(dst, ALLOWED));
    [
        frames::tcp(from, to, SYN, (100, 0), mark),
        frames::udp(from, to, mark),
        frames::sctp(from, to, mark),
        frames::echo(src, dst, 7, mark),
    ]
}

/// Packets from the hostile Pod with any addresses, by every protocol.
fn all(from_mac: Mac, to_mac: Mac, src: IpAddr, dst: IpAddr, mark: &[u8]) -> Vec<Shot> {
    let packet = |body: &Body| frames::ethernet_ip(from_mac, to_mac, &frames::ip(src, dst, body));
    bodies(src, dst, mark).iter().map(|body| Shot::Pod("evil", packet(body))).collect()
}

/// To the closed Pod of the same Node, as if from this source.
fn near(f: &Field, mark: &[u8], from_mac: Mac, source: Host) -> Vec<Shot> {
    let safe = f.pod("safe-1").host;
    [false, true].into_iter().flat_map(|v6| all(from_mac, safe.mac, source.ip(v6), safe.ip(v6), mark)).collect()
}

/// To every closed Pod by every protocol and both families: with these ends (of the hostile, an allowed and the closed Pod), and
/// changed so.
fn packets(
    f: &Field,
    mark: &[u8],
    ends: fn(&Host, &Host, &Host, bool) -> (IpAddr, IpAddr),
    change: impl Fn(Vec<u8>) -> Vec<Vec<u8>>,
) -> Vec<Shot> {
    let (evil, friend, mut shots) = (f.pod("evil").host, f.pod("friend").host, Vec::new());
    for name in SAFE {
        let safe = f.pod(name).host;
        let next_hop = if name == "safe-1" { safe.mac } else { f.gateway.mac };
        for v6 in [false, true] {
            let (src, dst) = ends(&evil, &friend, &safe, v6);
            for body in bodies(src, dst, mark) {
                let changed = change(frames::ip(src, dst, &body));
                shots.extend(
                    changed.iter().map(|packet| Shot::Pod("evil", frames::ethernet_ip(evil.mac, next_hop, packet))),
                );
            }
        }
    }
    shots
}

/// Parts of all sizes, in any order, with holes, and some that overlap.
fn fragments(f: &Field, mark: &[u8], v6: bool) -> Vec<Shot> {
    let (evil, friend, safe) = (f.pod("evil").host, f.pod("friend").host, f.pod("safe-1").host);
    let long: Vec<u8> = mark.iter().copied().cycle().take(1300).collect();
    let mut shots = Vec::new();
    for (source, id) in [(evil, 1), (friend, 100)] {
        let (src, dst) = (source.ip(v6), safe.ip(v6));
        for (n, body) in bodies(src, dst, &long).iter().enumerate() {
            for (m, size) in [8, 24, 1208].into_iter().enumerate() {
                let id = id + u16::try_from(n * 10 + m).unwrap();
                let mut parts = frames::fragments(&frames::ip(src, dst, body), size, id);
                if m == 1 {
                    parts.reverse();
                }
                // Parts with other bytes for the same place.
                let other = bodies(src, dst, &[7; 1300]);
                parts.extend(frames::fragments(&frames::ip(src, dst, &other[n]), 16, id).into_iter().take(3));
                parts.truncate(20);
                shots.extend(parts.iter().map(|part| Shot::Pod("evil", frames::ethernet_ip(evil.mac, safe.mac, part))));
            }
        }
    }
    shots
}

fn link_local(mac: Mac) -> IpAddr {
    let [a, b, c, d, e, f] = mac.map(u16::from);
    IpAddr::from([0xfe80, 0, 0, 0, (a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d, e << 8 | f])
}
