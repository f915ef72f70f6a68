//! The corrected pipeline of a whole Node, with Services of every kind: whole conversations.

use std::net::IpAddr;

use anyhow::Result;
use openflow::flow::Flow;
use openflow::group::Group;
use openflow::port::Port;
use simulator::packet::{Segment, TcpSegment};
use simulator::{Arrival, Packet, Trace};

use crate::compare::Twins;

const FLOWS: &str = include_str!("data/node-flows.txt");
const GROUPS: &str = include_str!("data/node-groups.txt");

const SYN: u16 = 2;
const ACK: u16 = 16;

const GATEWAY_MAC: [u8; 6] = [0x0a, 0x0a, 0, 0, 1, 1];
const VIRTUAL_MAC: [u8; 6] = [0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];

#[derive(Clone, Copy)]
struct Host {
    port: u32,
    mac: [u8; 6],
    ip: &'static str,
}

const TUNNEL: Host = Host { port: 1, mac: VIRTUAL_MAC, ip: "10.10.1.2" };
const GATEWAY: Host = Host { port: 2, mac: GATEWAY_MAC, ip: "10.10.0.1" };
const POD_A: Host = Host { port: 3, mac: [0x0a, 0, 0x0a, 0x0a, 1, 1], ip: "10.10.0.2" };
const POD_B: Host = Host { port: 4, mac: [0x0a, 0, 0x0a, 0x0a, 1, 2], ip: "10.10.0.3" };
const ISOLATED: Host = Host { port: 5, mac: [0x0a, 0, 0x0a, 0x0a, 1, 3], ip: "10.10.0.4" };

fn node() -> Twins {
    let mut twins = Twins::new(&[1, 2, 3, 4, 5]).unwrap();
    let lines = |text: &'static str| text.lines().filter(|line| !line.is_empty());
    let flows: Vec<Flow> = lines(FLOWS).map(|line| line.parse().unwrap()).collect();
    let groups: Vec<Group> = lines(GROUPS).map(|line| line.parse().unwrap()).collect();
    twins.install(&flows, &groups).unwrap();
    twins
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn tcp(from: Host, src: &str, dst: &str, ports: (u16, u16), flags: u16, seq: u32, ack: u32) -> Arrival {
    let segment = Segment::Tcp(TcpSegment { src: ports.0, dst: ports.1, flags, seq, ack, ..TcpSegment::default() });
    // Neighbours of the same Node know each other.
    let local = [GATEWAY, POD_A, POD_B, ISOLATED].iter().find(|host| host.ip == dst).map(|host| host.mac);
    let mac = local.unwrap_or(if from.port == 2 { VIRTUAL_MAC } else { GATEWAY_MAC });
    Arrival::new(Port(from.port), Packet::ip(from.mac, mac, ip(src), ip(dst), 64, &segment))
}

fn udp(from: Host, src: &str, dst: &str, ports: (u16, u16)) -> Arrival {
    let segment = Segment::Udp { src: ports.0, dst: ports.1, payload: b"hello".to_vec() };
    Arrival::new(Port(from.port), Packet::ip(from.mac, GATEWAY_MAC, ip(src), ip(dst), 64, &segment))
}

/// The single output packet.
fn only(trace: Option<&Trace>) -> (u32, Packet) {
    let trace = trace.expect("a switch that survives");
    let outputs: Vec<_> = trace.outputs().collect();
    assert_eq!(outputs.len(), 1, "{trace}");
    (outputs[0].0.0, outputs[0].1.clone())
}

/// A TCP connection: handshake, data, reply. The receiver of a packet replies to its source.
fn converse(twins: &mut Twins, client: Host, src: &str, dst: &str, ports: (u16, u16)) -> Result<u32> {
    let hosts = [TUNNEL, GATEWAY, POD_A, POD_B, ISOLATED];
    let first = tcp(client, src, dst, ports, SYN, 1000, 0);
    let (at, syn) = only(twins.run(&first)?.as_ref());
    let server = hosts[at as usize - 1];
    let answer = |flags, seq, ack| {
        let (s, d) = syn.ports().unwrap();
        tcp(server, &syn.dst().unwrap().to_string(), &syn.src().unwrap().to_string(), (d, s), flags, seq, ack)
    };
    let trace = twins.run(&answer(SYN | ACK, 5000, 1001))?;
    let (back, reply) = only(trace.as_ref());
    assert_eq!(back, client.port, "the answer comes back to the client\n{trace:?}");
    assert_eq!(
        (reply.src().unwrap(), reply.ports().unwrap()),
        (ip(dst), (ports.1, ports.0)),
        "the reply comes from the address that the client connected to"
    );
    let (again, _) = only(twins.run(&tcp(client, src, dst, ports, ACK, 1001, 5001))?.as_ref());
    assert_eq!(again, at, "the connection stays with its endpoint");
    only(twins.run(&answer(ACK, 5001, 1001))?.as_ref());
    // An ICMP error about it is forwarded too.
    if let Some(error) = syn.icmp_error(syn.dst().unwrap(), 3, 4) {
        let arrival = Arrival::new(Port(server.port), {
            let mut error = error;
            let mac = server.mac.iter().fold(0u128, |mac, byte| mac << 8 | u128::from(*byte));
            error.set(openflow::field::Field::EthSrc, mac);
            error
        });
        twins.run(&arrival)?;
    }
    // Close, and reuse the ports.
    twins.run(&tcp(client, src, dst, ports, ACK | 1, 1001, 5001))?;
    twins.run(&answer(ACK | 1, 5001, 1002))?;
    twins.run(&tcp(client, src, dst, ports, ACK, 1002, 5002))?;
    twins.run(&first)?;
    twins.run(&first)?;
    Ok(at)
}

#[test]
fn a_node_and_the_simulator_output_the_same_frames() {
    let mut twins = node();
    // Pod to Pod, to another Node, to the Internet.
    converse(&mut twins, POD_A, POD_A.ip, POD_B.ip, (1000, 8080)).unwrap();
    // Services: with an endpoint here, there, several, on the host, itself.
    for (n, service) in
        ["10.96.0.10", "10.96.0.11", "10.96.0.12", "10.96.0.13", "10.96.0.20", "10.96.0.23", "10.96.0.30"]
            .iter()
            .enumerate()
    {
        for client in 0..4u16 {
            let ports = (2000 + client * 100 + u16::try_from(n).unwrap(), 80);
            converse(&mut twins, POD_A, POD_A.ip, service, ports).unwrap();
            converse(&mut twins, POD_B, POD_B.ip, service, ports).unwrap();
        }
    }
    // From the host, and NodePorts that the host has sent to the virtual address.
    for n in 0..4u16 {
        converse(&mut twins, GATEWAY, GATEWAY.ip, "10.96.0.12", (3000 + n, 80)).unwrap();
        converse(&mut twins, GATEWAY, "192.168.77.1", "169.254.169.253", (3100 + n, 30001)).unwrap();
        converse(&mut twins, GATEWAY, "192.168.77.1", "169.254.169.253", (3200 + n, 30002)).unwrap();
        converse(&mut twins, GATEWAY, "192.168.77.1", "169.254.169.253", (3300 + n, 30006)).unwrap();
    }
    // UDP, ICMP, ARP, and denied packets.
    for n in 0..8u16 {
        twins.run(&udp(POD_A, POD_A.ip, "10.96.0.16", (4000 + n, 53))).unwrap();
        twins.run(&udp(POD_A, POD_A.ip, "10.96.0.16", (4000 + n, 53))).unwrap();
        twins.run(&tcp(ISOLATED, ISOLATED.ip, POD_A.ip, (5000 + n, 80), SYN, 1, 0)).unwrap();
        twins.run(&tcp(ISOLATED, ISOLATED.ip, POD_B.ip, (5000 + n, 8080), SYN, 1, 0)).unwrap();
        twins.run(&tcp(POD_A, POD_A.ip, ISOLATED.ip, (5000 + n, 8080), SYN, 1, 0)).unwrap();
        twins.run(&tcp(POD_B, POD_B.ip, ISOLATED.ip, (5000 + n, 8080), SYN, 1, 0)).unwrap();
        // A foreign source address.
        twins.run(&tcp(POD_A, POD_B.ip, ISOLATED.ip, (5000 + n, 8080), SYN, 1, 0)).unwrap();
    }
    let arp = |host: Host, target: [u8; 4]| {
        let IpAddr::V4(address) = ip(host.ip) else { panic!() };
        let sender = (host.mac, address.octets());
        Arrival::new(Port(host.port), Packet::arp(host.mac, [0xff; 6], 1, sender, ([0; 6], target)).padded(60))
    };
    for target in [[10, 10, 1, 1], [169, 254, 169, 253], [10, 10, 0, 3]] {
        twins.run(&arp(POD_A, target)).unwrap();
        twins.run(&arp(POD_B, target)).unwrap();
    }
    assert!(twins.packets > 400);
}
