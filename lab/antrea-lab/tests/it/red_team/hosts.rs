//! Packets of hosts that are not Nodes, and of Pods to addresses of Nodes.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use testkit::frames::{self, Body, Frame, Network};

use super::attack::Attacker::{Neighbour, NodeProcess, Outside, RawPod};
use super::attack::{Attack, Effect, Shot};
use super::field::{Field, Mode, NEIGHBOUR};
use super::frames::{SYN, udp};

/// The port of the agent's API on loopback.
const AGENT_API: u16 = 10350;
/// How long an answer of a Node may take.
const SOON: Duration = Duration::from_millis(400);

pub(super) const CATALOGUE: &[Attack] = &[
    Attack::steps("loopback of the Node", RawPod, loopback),
    Attack::steps("loopback of the Node, from its network", Neighbour, loopback_from_neighbour),
    Attack::steps("idle connections to the agent's API", NodeProcess, idle_connections),
    Attack::shots("source of an allowed Pod", Neighbour, |f, mark| {
        claimed(f, mark, f.pod("friend").host.v4.into(), neighbour)
    })
    .undefended(&[Mode::NoEncap, Mode::Hybrid]),
    Attack::shots("source of an allowed Pod of another subnet", Neighbour, |f, mark| {
        claimed(f, mark, f.pod("friend-3").host.v4.into(), neighbour)
    })
    .undefended(&[Mode::NoEncap]),
    Attack::shots("source of a Pod of the same Node", Neighbour, |f, mark| {
        claimed(f, mark, f.pod("open-1").host.v4.into(), neighbour)
    }),
    Attack::shots("source of the gateway or of a Node", Neighbour, |f, mark| {
        let sources: [IpAddr; 4] =
            [f.gateway.v4.into(), [192, 168, 1, 11].into(), [169, 254, 0, 253].into(), [127, 0, 0, 1].into()];
        sources.into_iter().flat_map(|source| claimed(f, mark, source, neighbour)).collect()
    }),
    Attack::shots("own source to closed Pods", Neighbour, |f, mark| claimed(f, mark, NEIGHBOUR.0.into(), neighbour)),
    Attack::shots("source of an allowed Pod, from outside", Outside, |f, mark| {
        claimed(f, mark, f.pod("friend").host.v4.into(), Shot::Outside)
    })
    .undefended(&[Mode::NoEncap]),
];

fn neighbour(frame: Vec<u8>) -> Shot {
    Shot::Neighbour(frame)
}

/// Packets to the closed Pods by way of their Nodes, or of the router.
fn claimed(f: &Field, mark: &[u8], src: IpAddr, shot: fn(Vec<u8>) -> Shot) -> Vec<Shot> {
    let mut shots = Vec::new();
    for (name, node) in [("safe-1", Some(1)), ("safe-2", Some(2)), ("safe-3", None)] {
        let dst = f.ip(name);
        let (from, to) = (SocketAddr::new(src, 40_000), SocketAddr::new(dst, 7));
        for body in [udp(src, dst, mark), frames::tcp(from, to, SYN, (1, 0), mark), frames::echo(src, dst, 3, mark)] {
            let packet = frames::ip(src, dst, &body);
            shots.push(match shot(Vec::new()) {
                Shot::Outside(_) => Shot::Outside(f.outside_frame(&packet)),
                _ => {
                    let to = node.map_or(f.router_mac(), |node| f.node_mac(node));
                    shot(frames::ethernet_ip(f.mac_of_neighbour(), to, &packet))
                }
            });
        }
    }
    shots
}

/// Whether a frame is an answer to a SYN from such an address.
fn is_answer(frame: &[u8], from: IpAddr) -> bool {
    match Frame::read(frame).map(|frame| frame.network) {
        Some(Network::Ip(ip)) => {
            ip.src == from && ip.proto == frames::proto::TCP && ip.body.get(13).is_some_and(|flags| flags & SYN != 0)
        }
        _ => false,
    }
}

/// A server on the loopback address of the first Node.
fn server(f: &Field, port: u16) -> UdpSocket {
    let socket = f.node_netns("node-1").run(|| UdpSocket::bind(("127.0.0.1", port))).unwrap().unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    socket
}

fn loopback(f: &Field, _: usize) -> Effect {
    let (evil, server) = (f.pod("evil"), server(f, 7777));
    let (mut sent, mut notes) = (0, Vec::new());
    for (own, to) in
        [(IpAddr::from(evil.host.v4), "127.0.0.1"), (evil.host.v4.into(), "127.8.8.8"), (evil.host.v6.into(), "::1")]
    {
        let to: IpAddr = to.parse().unwrap();
        let (src, dst) = (SocketAddr::new(own, 40_001), SocketAddr::new(to, AGENT_API));
        let syn = frames::tcp(src, dst, SYN, (100, 0), b"");
        let datagram = frames::udp(src, SocketAddr::new(to, 7777), b"red-team-loopback");
        for body in [&syn, &datagram] {
            f.shoot(&Shot::Pod("evil", frames::ethernet_ip(evil.host.mac, f.gateway.mac, &frames::ip(own, to, body))));
            sent += 1;
        }
        if evil.tap.wait(SOON, |frame| is_answer(frame, to)).is_some() {
            notes.push(format!("{to}:{AGENT_API} has answered"));
        }
    }
    if server.recv(&mut [0; 64]).is_ok() {
        notes.push("127.0.0.1:7777 got a datagram".to_owned());
    }
    Effect::new(sent, notes.len(), notes.join(", "))
}

fn loopback_from_neighbour(f: &Field, _: usize) -> Effect {
    let server = server(f, 7778);
    let (own, to): (IpAddr, IpAddr) = (NEIGHBOUR.0.into(), [127, 0, 0, 1].into());
    let send = |body: &Body| {
        let packet = frames::ip(own, to, body);
        f.shoot(&Shot::Neighbour(frames::ethernet_ip(f.mac_of_neighbour(), f.node_mac(1), &packet)));
    };
    send(&frames::udp(SocketAddr::new(own, 1), SocketAddr::new(to, 7778), b"red-team"));
    send(&frames::tcp(SocketAddr::new(own, 1), SocketAddr::new(to, AGENT_API), SYN, (1, 0), b""));
    let answered = f.neighbour_tap.wait(SOON, |frame| is_answer(frame, to)).is_some();
    let got = server.recv(&mut [0; 64]).is_ok();
    Effect::new(2, usize::from(answered) + usize::from(got), if answered || got { "reached" } else { "" })
}

/// Connections that say nothing, as many as there are places, while kubelet asks whether the agent lives.
fn idle_connections(f: &Field, _: usize) -> Effect {
    let node = f.node_netns("node-1");
    let to = SocketAddr::from(([127, 0, 0, 1], AGENT_API));
    let idle = node
        .run(|| (0..90).filter_map(|_| std::net::TcpStream::connect_timeout(&to, SOON).ok()).collect::<Vec<_>>())
        .unwrap();
    let ask = || f.node("node-1", "curl -sf --max-time 2 http://127.0.0.1:10350/livez");
    let failed = (0..3).filter(|_| ask().is_err()).count();
    Effect::new(idle.len(), failed, if failed > 0 { format!("/livez failed {failed} of 3") } else { String::new() })
}
