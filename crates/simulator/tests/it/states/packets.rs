//! Random packets to a Node: mostly valid ones of its Pods, its host and its peers, and some invalid ones.

use std::net::IpAddr;

use openflow::field::Field;
use openflow::port::Port;
use pipeline::model::{Address, FrontendKind, Mac, PeerPath, Protocol};
use simulator::packet::{Segment, TcpSegment};
use simulator::{Arrival, Packet};

use super::scene::{GATEWAY, GATEWAY_MAC, OWN_TUNNEL, PEER_MAC, TUNNEL, UPLINK, either, families};
use crate::cluster::Cluster;
use crate::conversation::{ACK, FIN, Next, RST, SYN};
use testkit::dice::Dice;

const BROADCAST: Mac = Mac([0xff; 6]);
const STRANGER: Mac = Mac([0x0a, 0, 0, 0, 9, 9]);
const CLIENT_PORTS: [u16; 4] = [1000, 1001, 80, 8080];
const SERVER_PORTS: [u16; 4] = [80, 8080, 1000, 53];
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// A sender at a port.
#[derive(Clone, Copy)]
struct End {
    port: u32,
    mac: Mac,
    ip: IpAddr,
}

/// A destination; with protocol and port for a Service.
type Target = (IpAddr, Option<(Protocol, u16)>);

/// Senders and destinations of one address family.
struct Cast {
    ipv6: bool,
    ends: Vec<End>,
    targets: Vec<Target>,
}

/// A packet that begins a conversation.
pub(super) fn fresh(dice: &mut Dice, cluster: &Cluster) -> Arrival {
    let ipv6 = dice.one(&families(&cluster.node));
    let cast = Cast::of(cluster, ipv6);
    match (dice.below(100), ipv6) {
        (0..8, false) => cast.arp(dice, cluster),
        (0..8, true) => cast.neighbour(dice, cluster),
        _ => cast.packet(dice, cluster),
    }
}

/// How a conversation goes on.
pub(super) fn next(dice: &mut Dice) -> Next {
    let back = dice.one(&[0, 0, 0, 1, 1, 2, 3, 5]);
    let payload = dice.one(&[0, 0, 10]);
    match dice.below(10) {
        0..6 => {
            let flags = dice.one(&[0, 0, 0, 0, 0, 0, ACK | FIN, ACK | RST, RST]);
            Next::Answer { back, flags, more: dice.one(&[0, 0, 0, 0, 0, 1, 70_000, 1_000_000]), payload }
        }
        6..9 => Next::Again { back, flags: dice.one(&[0, 0, ACK, ACK, ACK | FIN, SYN]), payload },
        _ => Next::Error { back, kind: dice.one(&[3, 11, 1]) },
    }
}

/// Packets sent through a tunnel or the uplink are answered by another Node.
pub(super) fn from_afar(mut arrival: Arrival) -> Arrival {
    let port = arrival.in_port.0;
    if port > UPLINK || port == TUNNEL || port == OWN_TUNNEL {
        if port > UPLINK {
            arrival.in_port = Port(TUNNEL);
        }
        arrival.packet.set(Field::EthSrc, PEER_MAC.into());
        arrival.packet.set(Field::EthDst, Mac::GLOBAL_VIRTUAL.into());
    }
    arrival
}

impl Cast {
    fn of(cluster: &Cluster, ipv6: bool) -> Self {
        let addresses = cluster.node.addresses;
        let own = if ipv6 { addresses.v6 } else { addresses.v4 }.unwrap();
        let outside = either(ipv6, "203.0.113.7", "fd00:113::7");
        let host = |ip| End { port: GATEWAY, mac: GATEWAY_MAC, ip };
        let mut ends = vec![host(own.gateway), host(own.node), host(outside)];
        for pod in &cluster.pods {
            let here = pod.addresses.iter().filter(|address| address.is_ipv6() == ipv6);
            let here: Vec<End> = here.map(|ip| End { port: pod.port.0, mac: pod.mac, ip: *ip }).collect();
            // Pods talk more than others.
            ends.extend([&here[..], &here].concat());
        }
        for n in 2..5 {
            let ip = either(ipv6, &format!("10.10.{n}.11"), &format!("fd00:10:{n}::11"));
            let known = cluster.peers.iter().find(|peer| peer.pod_cidr.contains(&ip));
            ends.extend(match known.map(|peer| peer.path) {
                Some(PeerPath::Tunnel(_)) => Some(End { port: TUNNEL, mac: PEER_MAC, ip }),
                Some(PeerPath::Route) => Some(host(ip)),
                None => None,
            });
        }
        ends.extend(cluster.node.tunnels.get(1).map(|port| {
            let ip = either(ipv6, "10.10.9.11", "fd00:10:9::11");
            End { port: port.0, mac: PEER_MAC, ip }
        }));
        ends.extend(cluster.node.uplink.map(|uplink| End { port: uplink.port.0, mac: PEER_MAC, ip: outside }));
        let mut cast = Cast { ipv6, targets: Vec::new(), ends };
        cast.targets = cast.targets(cluster, &own);
        cast
    }

    fn targets(&self, cluster: &Cluster, own: &Address) -> Vec<Target> {
        let plain = [own.gateway, own.node, own.snat, own.virtual_service, own.hairpin];
        let plain = plain.into_iter().chain(self.ends.iter().map(|end| end.ip)).map(|ip| (ip, None));
        let mut targets: Vec<Target> = plain.collect();
        for frontend in cluster.services.iter().flat_map(|service| &service.frontends) {
            let service = Some((frontend.protocol, frontend.frontend.port));
            let addresses = match frontend.frontend.kind {
                FrontendKind::ClusterIp(ip) | FrontendKind::External(ip) => vec![ip; 2],
                FrontendKind::NodePort { ipv6: true } if !self.ipv6 => Vec::new(),
                FrontendKind::NodePort { ipv6: false } if self.ipv6 => Vec::new(),
                FrontendKind::NodePort { .. } => vec![own.virtual_service, own.gateway, own.node],
            };
            let addresses = addresses.into_iter().filter(|ip| ip.is_ipv6() == self.ipv6);
            targets.extend(addresses.flat_map(|ip| [(ip, service); 3]));
        }
        targets
    }

    /// Destination MAC of a packet.
    fn next_hop(&self, dice: &mut Dice, cluster: &Cluster, from: End, to: IpAddr) -> Mac {
        if dice.percent(6) {
            let macs = cluster.pods.iter().map(|pod| pod.mac);
            let macs: Vec<Mac> = macs.chain([GATEWAY_MAC, Mac::GLOBAL_VIRTUAL, STRANGER, BROADCAST]).collect();
            return dice.one(&macs);
        }
        let pod = cluster.pods.iter().find(|pod| pod.addresses.contains(&to)).map(|pod| pod.mac);
        match from.port {
            GATEWAY => pod.unwrap_or(Mac::GLOBAL_VIRTUAL),
            TUNNEL | OWN_TUNNEL => Mac::GLOBAL_VIRTUAL,
            UPLINK => STRANGER,
            _ => pod.unwrap_or(GATEWAY_MAC),
        }
    }

    fn packet(&self, dice: &mut Dice, cluster: &Cluster) -> Arrival {
        let from = dice.one(&self.ends);
        let (mut to, service) = dice.one(&self.targets);
        let src = if dice.percent(6) { dice.one(&self.targets).0 } else { from.ip };
        let (mut proto, mut port) = (dice.one(&[TCP, TCP, TCP, UDP, UDP, 1, SCTP, 50]), dice.one(&SERVER_PORTS));
        if let Some((protocol, number)) = service.filter(|_| dice.percent(95)) {
            proto = match protocol {
                Protocol::Tcp => TCP,
                Protocol::Udp => UDP,
                Protocol::Sctp => SCTP,
            };
            port = number;
        }
        let mut client_port = dice.one(&CLIENT_PORTS);
        if dice.percent(4) {
            // To itself, in all respects.
            (to, client_port) = (src, port);
        }
        let segment = match proto {
            TCP => Segment::Tcp(TcpSegment {
                src: client_port,
                dst: port,
                flags: dice.one(&[SYN, SYN, SYN, SYN, SYN, SYN, ACK, SYN | ACK, ACK | FIN, RST, 0]),
                seq: dice.one(&[100, 100, 5000, u32::MAX]),
                ..TcpSegment::default()
            }),
            UDP => Segment::Udp { src: client_port, dst: port, payload: b"hi".to_vec() },
            SCTP => Segment::Sctp { src: client_port, dst: port },
            1 => {
                let kind = if self.ipv6 { dice.one(&[128, 128, 129]) } else { dice.one(&[8, 8, 0]) };
                Segment::Icmp { kind, code: 0, rest: vec![0, 7, 0, 1] }
            }
            proto => Segment::Other { proto, payload: vec![1, 2, 3] },
        };
        let ttl = dice.one(&[64, 64, 64, 64, 64, 64, 2, 1]);
        let mac = if dice.percent(3) { STRANGER } else { from.mac };
        let next_hop = self.next_hop(dice, cluster, from, to);
        let mut packet = Packet::ip(mac.0, next_hop.0, src, to, ttl, &segment);
        if dice.percent(2) {
            // A flipped bit.
            let mut bytes = packet.as_bytes().to_vec();
            let at = bytes.len() - 1 - dice.below(12);
            bytes[at] ^= 0x10;
            packet = Packet::from_bytes(bytes);
        }
        Arrival::new(Port(from.port), packet)
    }

    fn arp(&self, dice: &mut Dice, cluster: &Cluster) -> Arrival {
        let octets = |ip: IpAddr| if let IpAddr::V4(ip) = ip { ip.octets() } else { [0; 4] };
        let from = dice.one(&self.ends);
        let gateways = cluster.peers.iter().map(|peer| peer.gateway).filter(IpAddr::is_ipv4);
        let known: Vec<IpAddr> = gateways.chain(self.targets.iter().map(|(ip, _)| *ip)).collect();
        let wanted = if dice.percent(8) { from.ip } else { dice.one(&known) };
        let announced = if dice.percent(10) { dice.one(&known) } else { from.ip };
        let mac = if dice.percent(6) { STRANGER } else { from.mac };
        let to_mac = if dice.percent(70) { BROADCAST } else { self.next_hop(dice, cluster, from, wanted) };
        let op = dice.one(&[1, 1, 1, 2]);
        let packet = Packet::arp(from.mac.0, to_mac.0, op, (mac.0, octets(announced)), ([0; 6], octets(wanted)));
        Arrival::new(Port(from.port), packet.padded(60))
    }

    fn neighbour(&self, dice: &mut Dice, cluster: &Cluster) -> Arrival {
        let octets = |ip: IpAddr| if let IpAddr::V6(ip) = ip { ip.octets() } else { [0; 16] };
        let from = dice.one(&self.ends);
        let gateways = cluster.peers.iter().map(|peer| peer.gateway).filter(IpAddr::is_ipv6);
        let known: Vec<IpAddr> = gateways.chain(self.targets.iter().map(|(ip, _)| *ip)).collect();
        let solicits = dice.percent(70);
        let (target, src) = match (solicits, dice.percent(10)) {
            (true, false) => (dice.one(&known), from.ip),
            (true, true) => (dice.one(&known), dice.one(&["::".parse().unwrap(), "fe80::1".parse().unwrap()])),
            (false, false) => (from.ip, from.ip),
            (false, true) => (dice.one(&known), from.ip),
        };
        let mac = if dice.percent(6) { STRANGER } else { from.mac };
        let (kind, option) = if solicits { (135, 1) } else { (136, 2) };
        let mut rest = [&[0; 4][..], &octets(target)].concat();
        if dice.percent(80) {
            rest.extend([&[option, 1][..], &mac.0].concat());
        }
        let dst = if solicits { "ff02::1:ff00:1".parse().unwrap() } else { dice.one(&known) };
        let to_mac = if solicits { Mac([0x33, 0x33, 0xff, 0, 0, 1]) } else { self.next_hop(dice, cluster, from, dst) };
        let segment = Segment::Icmp { kind, code: 0, rest };
        Arrival::new(Port(from.port), Packet::ip(mac.0, to_mac.0, src, dst, 255, &segment))
    }
}
