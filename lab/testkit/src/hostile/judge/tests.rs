use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::*;
use crate::dice::Dice;
use crate::frames::{self, BROADCAST, Body};
use crate::hostile::{Opened, compose};

fn host(n: u8) -> Host {
    let v6 = format!("fd00:10::{n}");
    Host { mac: [0x0a, 0, 0, 0, 0, n], v4: [10, 10, 0, n].into(), v6: v6.parse().unwrap() }
}

fn terrain() -> Terrain {
    let closed = Neighbour { host: host(3), allowed: Some(vec![(proto::UDP, 53)]) };
    let opened = Opened { by: 0, v6: false, proto: proto::TCP, theirs: 40000, mine: 80 };
    Terrain {
        me: host(2),
        gateway: host(1),
        neighbours: vec![closed, Neighbour { host: host(4), allowed: None }],
        remotes: vec!["10.10.2.11".parse().unwrap()],
        nodes: vec!["192.168.77.101".parse().unwrap()],
        services: vec![],
        ports: vec![53, 80, 8080],
        tunnels: true,
        egress: None,
        opened: BTreeSet::from([opened]),
        foreign: Vec::new(),
    }
}

fn from_me(to: Host, body: &Body) -> Vec<u8> {
    frames::ethernet_ip(host(2).mac, to.mac, &frames::ip(host(2).v4.into(), to.v4.into(), body))
}

fn at(n: u8, port: u16) -> SocketAddr {
    (host(n).v4, port).into()
}

#[test]
fn what_is_allowed_is_not_forbidden() {
    let allowed = [
        (0, from_me(host(3), &frames::udp(at(2, 9), at(3, 53), b""))),
        (0, from_me(host(3), &frames::tcp(at(2, 80), at(3, 40000), 0x12, (1, 2), b""))),
        (1, from_me(host(4), &frames::tcp(at(2, 9), at(4, 99), 2, (1, 2), b""))),
    ];
    for (neighbour, frame) in allowed {
        assert_eq!(terrain().forbidden(Exit::Neighbour(neighbour), &frame), None);
    }
    let arp = frames::arp(host(2).mac, BROADCAST, 1, (host(2).mac, host(2).v4), ([0; 6], host(3).v4));
    assert_eq!(terrain().forbidden(Exit::Neighbour(0), &arp), None);
}

#[test]
fn what_is_forbidden_is_named() {
    let geneve = frames::geneve(at(2, 9), "192.168.77.101:6081".parse().unwrap(), 0, &[0; 60]);
    let to_node = |body: &Body| {
        frames::ethernet_ip(
            host(2).mac,
            host(1).mac,
            &frames::ip(host(2).v4.into(), "192.168.77.101".parse().unwrap(), body),
        )
    };
    let loopback = frames::ip(host(2).v4.into(), "127.0.0.1".parse().unwrap(), &frames::udp(at(2, 9), at(2, 9), b""));
    let forged = frames::arp(host(1).mac, BROADCAST, 1, (host(2).mac, host(2).v4), ([0; 6], host(3).v4));
    let closed = from_me(host(3), &frames::tcp(at(2, 9), at(3, 80), 2, (1, 2), b""));
    let spoofed = frames::ethernet_ip(
        host(2).mac,
        host(4).mac,
        &frames::ip(host(3).v4.into(), host(4).v4.into(), &frames::esp(b"")),
    );
    let forbidden = [
        (Exit::Gateway, to_node(&geneve), "tunnel"),
        (Exit::Gateway, to_node(&frames::gre(&[0; 20])), "tunnel"),
        (Exit::Gateway, frames::ethernet_ip(host(2).mac, host(1).mac, &loopback), "loopback"),
        (Exit::Neighbour(0), forged, "another's MAC"),
        (Exit::Neighbour(0), closed.clone(), "policy"),
        (Exit::Neighbour(0), frames::tagged(&closed, &[(0x8100, 5)]), "VLAN"),
        (Exit::Neighbour(1), closed.clone(), "another Pod"),
        (Exit::Neighbour(1), spoofed, "another's address"),
        (Exit::Peer, closed, "no Pod of another Node"),
        (Exit::Neighbour(1), frames::ethernet(host(2).mac, host(4).mac, 0x88e5, &[0; 46]), "0x88e5"),
    ];
    for (exit, frame, why) in forbidden {
        let said = terrain().forbidden(exit, &frame).unwrap_or_default();
        assert!(said.contains(why), "{said}: {why}");
    }
}

#[test]
fn what_a_policy_keeps_in_comes_out_nowhere() {
    let egress = Some(vec![(IpAddr::from(host(4).v4), proto::UDP, 53)]);
    let terrain = Terrain { egress, ..terrain() };
    let dns = from_me(host(4), &frames::udp(at(2, 9), at(4, 53), b""));
    assert_eq!(terrain.forbidden(Exit::Neighbour(1), &dns), None);
    let answer = from_me(host(3), &frames::tcp(at(2, 80), at(3, 40000), 0x12, (1, 2), b""));
    assert_eq!(terrain.forbidden(Exit::Neighbour(0), &answer), None);
    let web = from_me(host(4), &frames::tcp(at(2, 9), at(4, 80), 2, (1, 2), b""));
    assert!(terrain.forbidden(Exit::Neighbour(1), &web).is_some());
    let ping = from_me(host(1), &frames::echo(host(2).v4.into(), host(1).v4.into(), 1, b""));
    assert!(terrain.forbidden(Exit::Gateway, &ping).is_some());
}

#[test]
fn frames_are_of_every_kind_and_a_seed_repeats_them() {
    let all = |seed| -> Vec<Vec<u8>> {
        let mut dice = Dice::new(seed);
        (0..2000).flat_map(|_| compose(&mut dice, &terrain())).collect()
    };
    let frames = all(1);
    assert_eq!(frames, all(1));
    assert!(frames.iter().all(|frame| (14..=1514).contains(&frame.len())));
    let read: Vec<Frame> = frames.iter().filter_map(|frame| Frame::read(frame)).collect();
    let count = |so: &dyn Fn(&Frame) -> bool| read.iter().filter(|frame| so(frame)).count();
    let ip = |so: fn(&Ip) -> bool| move |frame: &Frame| matches!(&frame.network, Network::Ip(ip) if so(ip));
    assert!(count(&|frame| frame.tags > 0) > 50);
    assert!(count(&|frame| matches!(frame.network, Network::Arp(_))) > 50);
    assert!(count(&ip(|ip| ip.is_part)) > 50);
    assert!(count(&ip(|ip| ip.quoted().is_some())) > 20);
    for number in [proto::TCP, proto::UDP, proto::ICMP, proto::ICMPV6, proto::GRE, proto::ESP, proto::SCTP, proto::IPIP]
    {
        assert!(
            count(&|frame| matches!(&frame.network, Network::Ip(ip) if ip.proto == number)) > 5,
            "protocol {number}"
        );
    }
}
