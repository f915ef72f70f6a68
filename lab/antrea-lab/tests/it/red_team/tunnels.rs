//! Encapsulated packets from senders that are not Nodes.

use std::net::{IpAddr, SocketAddr};

use testkit::frames::{self, Mac};

use super::attack::Attacker::{Neighbour, Outside, Pod, RawPod};
use super::attack::{Attack, Shot};
use super::field::{Field, Mode, NEIGHBOUR};
use super::frames::udp;

const GENEVE: u16 = 6081;
const VXLAN: u16 = 4789;
const STT: u16 = 7471;
const VIRTUAL_MAC: Mac = [0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];

pub(super) const CATALOGUE: &[Attack] = &[
    Attack::shots("tunnel packets to Nodes, by sockets", Pod, |f, mark| {
        each(f, mark, |to, data| Shot::PodUdp("evil", to, data.to_vec()))
    }),
    Attack::shots("tunnel packets to Nodes, raw", RawPod, |f, mark| {
        let (evil, own) = (f.pod("evil").host, f.gateway.mac);
        let src = SocketAddr::new(evil.v4.into(), 50_000);
        let mut shots = Vec::new();
        for (node, inner) in inners(f, mark) {
            let at = |port| SocketAddr::new(node, port);
            let bodies = [
                frames::geneve(src, at(GENEVE), 0, &inner),
                frames::vxlan(src, at(VXLAN), 0, &inner),
                frames::stt(src, at(STT), &inner),
                frames::gre(&inner),
                frames::ipip(&inner[14..]),
            ];
            for body in bodies {
                let packet = frames::ip(src.ip(), node, &body);
                let parts = [vec![packet.clone()], frames::fragments(&packet, 48, 9)].concat();
                shots.extend(parts.iter().map(|part| Shot::Pod("evil", frames::ethernet_ip(evil.mac, own, part))));
            }
        }
        shots
    }),
    Attack::shots("tunnel packets to Nodes, from their network", Neighbour, |f, mark| {
        neighbours(f, mark, NEIGHBOUR.0.into(), f.mac_of_neighbour())
    }),
    Attack::shots("tunnel packets with a Node's source", Neighbour, |f, mark| {
        neighbours(f, mark, [192, 168, 1, 12].into(), f.mac_of_neighbour())
    })
    .undefended(&[Mode::Encap, Mode::Vxlan, Mode::Gre, Mode::Hybrid]),
    Attack::shots("tunnel packets to Nodes, from outside", Outside, |f, mark| {
        let src = SocketAddr::from(([203, 0, 113, 10], 50_000));
        let mut shots = Vec::new();
        for (node, inner) in inners(f, mark) {
            let at = |port| SocketAddr::new(node, port);
            for body in [
                frames::geneve(src, at(GENEVE), 0, &inner),
                frames::vxlan(src, at(VXLAN), 0, &inner),
                frames::gre(&inner),
            ] {
                shots.push(Shot::Outside(f.outside_frame(&frames::ip(src.ip(), node, &body))));
            }
        }
        shots
    }),
];

/// The inner packet: from an allowed Pod to an isolated Pod.
fn inners(f: &Field, mark: &[u8]) -> Vec<(IpAddr, Vec<u8>)> {
    let ways = [
        ("friend", "safe-1", [192, 168, 1, 11]),
        ("friend-3", "safe-2", [192, 168, 1, 12]),
        ("friend", "safe-3", [192, 168, 2, 13]),
    ];
    let inner = |(from, to, node): (&str, &str, [u8; 4])| {
        let (from, to) = (f.pod(from).host, f.pod(to).host);
        [false, true].map(|v6| {
            let packet = frames::ip(from.ip(v6), to.ip(v6), &udp(from.ip(v6), to.ip(v6), mark));
            (IpAddr::from(node), frames::ethernet_ip([0x0a, 0, 0, 0, 0, 9], VIRTUAL_MAC, &packet))
        })
    };
    ways.into_iter().flat_map(inner).collect()
}

/// By the kernel's sockets: Geneve and VXLAN.
fn each(f: &Field, mark: &[u8], shot: impl Fn(SocketAddr, &[u8]) -> Shot) -> Vec<Shot> {
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let mut shots = Vec::new();
    for (node, inner) in inners(f, mark) {
        // The payload of the UDP datagram.
        let geneve = frames::geneve(any, any, 0, &inner).bytes;
        let vxlan = frames::vxlan(any, any, 0, &inner).bytes;
        shots.push(shot(SocketAddr::new(node, GENEVE), &geneve[8..]));
        shots.push(shot(SocketAddr::new(node, VXLAN), &vxlan[8..]));
    }
    shots
}

/// From a host on the Nodes' network with any source.
fn neighbours(f: &Field, mark: &[u8], src: IpAddr, from: Mac) -> Vec<Shot> {
    let source = SocketAddr::new(src, 50_000);
    let mut shots = Vec::new();
    for (node, inner) in inners(f, mark) {
        let IpAddr::V4(v4) = node else { continue };
        let [.., subnet, number] = v4.octets();
        let to = if subnet == 1 { f.node_mac(number - 10) } else { f.router_mac() };
        let at = |port| SocketAddr::new(node, port);
        for body in [
            frames::geneve(source, at(GENEVE), 0, &inner),
            frames::vxlan(source, at(VXLAN), 0, &inner),
            frames::gre(&inner),
        ] {
            shots.push(Shot::Neighbour(frames::ethernet_ip(from, to, &frames::ip(src, node, &body))));
        }
    }
    shots
}
