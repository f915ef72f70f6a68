//! Parsing of frames, with verified checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use openflow::matching::{eth_type, ip_proto};
use pipeline::model::{Mac, Protocol};
use testkit::frames::{checksum, crc32c, pseudo_header};

use super::{About, Arp, Frame, Nd, Packet, Payload, Step};

impl Frame {
    /// Parses a frame, and panics on a wrong checksum.
    pub(in super::super) fn read(bytes: &[u8]) -> Frame {
        let (to_mac, from_mac) = (mac(&bytes[0..6]), mac(&bytes[6..12]));
        let body = &bytes[14..];
        match u16_at(bytes, 12) {
            eth_type::ARP => Frame::Arp(Arp {
                from_mac,
                to_mac,
                reply: u16_at(body, 6) == 2,
                sha: mac(&body[8..14]),
                spa: address(&body[14..18]),
                tha: mac(&body[18..24]),
                tpa: address(&body[24..28]),
            }),
            eth_type::IPV4 | eth_type::IPV6 => {
                let Header { src, dst, ttl, proto, body } = header(body);
                assert!(body_checksum(src, dst, proto, body), "wrong checksum: {bytes:02x?}");
                match (proto, body[0]) {
                    (ip_proto::ICMPV6, 135 | 136) => {
                        assert_eq!(ttl, 255, "a neighbour's message has not been routed");
                        Frame::Nd(Nd {
                            from_mac,
                            to_mac,
                            src,
                            dst,
                            advertisement: body[0] == 136,
                            flags: u32::from(u16_at(body, 4)) << 16,
                            target: address(&body[8..24]),
                            link: option(body, if body[0] == 136 { 2 } else { 1 }),
                        })
                    }
                    _ => Frame::Ip(Packet { from_mac, to_mac, src, dst, ttl, payload: payload(proto, body) }),
                }
            }
            other => panic!("a frame of type {other:#x}"),
        }
    }
}

struct Header<'a> {
    src: IpAddr,
    dst: IpAddr,
    ttl: u8,
    proto: u8,
    body: &'a [u8],
}

/// The header of a packet, and its body without the padding of the frame.
fn header(packet: &[u8]) -> Header<'_> {
    if packet[0] >> 4 == 6 {
        let end = packet.len().min(40 + usize::from(u16_at(packet, 4)));
        let (src, dst) = (address(&packet[8..24]), address(&packet[24..40]));
        Header { src, dst, ttl: packet[7], proto: packet[6], body: &packet[40..end] }
    } else {
        assert_eq!(checksum(&[&packet[..20]]), 0, "wrong checksum of the IP header: {packet:02x?}");
        let end = packet.len().min(usize::from(u16_at(packet, 2)));
        let (src, dst) = (address(&packet[12..16]), address(&packet[16..20]));
        Header { src, dst, ttl: packet[8], proto: packet[9], body: &packet[20..end] }
    }
}

fn body_checksum(src: IpAddr, dst: IpAddr, proto: u8, body: &[u8]) -> bool {
    if proto == ip_proto::SCTP {
        let blank = [&body[..8], &[0; 4], &body[12..]].concat();
        return crc32c(&blank).to_le_bytes() == body[8..12];
    }
    let pseudo = if proto == ip_proto::ICMP { Vec::new() } else { pseudo_header(src, dst, proto, body.len()) };
    checksum(&[&pseudo, body]) == 0
}

fn payload(proto: u8, body: &[u8]) -> Payload {
    let (src, dst) = (u16_at(body, 0), u16_at(body, 2));
    match (proto, body[0]) {
        (ip_proto::TCP, _) => {
            let number = |at| u32::from(u16_at(body, at)) << 16 | u32::from(u16_at(body, at + 2));
            let header = (number(4), number(8), body[13]);
            let step = Step::ALL.into_iter().find(|step| step.header() == header);
            Payload::Tcp { src, dst, step: step.expect("a segment of the conversation") }
        }
        (ip_proto::UDP, _) => Payload::Udp { src, dst },
        (ip_proto::SCTP, _) => Payload::Sctp { src, dst },
        (ip_proto::ICMP, 8 | 0) | (ip_proto::ICMPV6, 128 | 129) => {
            Payload::Echo { reply: matches!(body[0], 0 | 129), id: u16_at(body, 4) }
        }
        (ip_proto::ICMP, 3) | (ip_proto::ICMPV6, 1) => {
            let Header { src, dst, proto, body, .. } = header(&body[8..]);
            Payload::Unreachable(About {
                protocol: if proto == ip_proto::UDP { Protocol::Udp } else { Protocol::Tcp },
                src: SocketAddr::new(src, u16_at(body, 0)),
                dst: SocketAddr::new(dst, u16_at(body, 2)),
            })
        }
        (proto, kind) => panic!("a packet of protocol {proto} that starts with {kind}"),
    }
}

/// The MAC in a link-layer address option.
fn option(body: &[u8], kind: u8) -> Option<Mac> {
    let option = body.get(24..32)?;
    (option[0] == kind).then(|| mac(&option[2..8]))
}

fn mac(bytes: &[u8]) -> Mac {
    Mac(bytes.try_into().unwrap())
}

fn address(bytes: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(bytes) {
        Ok(octets) => Ipv4Addr::from(octets).into(),
        Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap()).into(),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
