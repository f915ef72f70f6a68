//! Encoding of frames, with checksums.

use std::net::IpAddr;

use openflow::matching::{eth_type, ip_proto};
use pipeline::model::{Mac, Protocol};
use testkit::frames::{checksum, crc32c, pseudo_header};

use super::{About, Arp, Frame, Nd, Packet, Payload};

/// Payload of TCP data and UDP datagrams.
const DATA: [u8; 4] = *b"data";

impl Frame {
    pub(in super::super) fn bytes(&self) -> Vec<u8> {
        match self {
            Frame::Ip(packet) => packet.bytes(),
            Frame::Arp(arp) => arp.bytes(),
            Frame::Nd(nd) => nd.bytes(),
        }
    }
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let (proto, body) = self.payload.bytes(self.src, self.dst);
        ethernet(self.from_mac, self.to_mac, ip(self.src, self.dst, self.ttl, proto, &body), self.src.is_ipv6())
    }
}

impl Payload {
    /// The IP protocol number, and the bytes after the IP header.
    fn bytes(&self, src: IpAddr, dst: IpAddr) -> (u8, Vec<u8>) {
        let v6 = src.is_ipv6();
        let icmp = if v6 { ip_proto::ICMPV6 } else { ip_proto::ICMP };
        let (proto, mut body, checksum_at) = match self {
            // The checksum covers no pseudo-header.
            Payload::Sctp { src, dst } => return (ip_proto::SCTP, sctp(*src, *dst)),
            Payload::Tcp { src, dst, step } => {
                let (seq, ack, flags) = step.header();
                let mut body = [src.to_be_bytes(), dst.to_be_bytes()].concat();
                body.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
                body.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
                if flags & 0x08 != 0 {
                    body.extend(DATA);
                }
                (ip_proto::TCP, body, 16)
            }
            Payload::Udp { src, dst } => (ip_proto::UDP, udp(*src, *dst), 6),
            Payload::Echo { reply, id } => {
                let kind = match (v6, reply) {
                    (false, false) => 8,
                    (false, true) => 0,
                    (true, false) => 128,
                    (true, true) => 129,
                };
                (icmp, [[kind, 0, 0, 0], [id.to_be_bytes()[0], id.to_be_bytes()[1], 0, 1]].concat(), 2)
            }
            Payload::Unreachable(about) => {
                let (kind, code) = if v6 { (1, 4) } else { (3, 3) };
                let mut body = vec![kind, code, 0, 0, 0, 0, 0, 0];
                body.extend(about.bytes());
                (icmp, body, 2)
            }
        };
        let pseudo = if proto == ip_proto::ICMP { Vec::new() } else { pseudo_header(src, dst, proto, body.len()) };
        let sum = checksum(&[&pseudo, &body]);
        body[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
        (proto, body)
    }
}

impl About {
    /// The beginning of the packet, without the checksums that are not verified.
    fn bytes(&self) -> Vec<u8> {
        let (src, dst) = (self.src.port(), self.dst.port());
        let (proto, body) = match self.protocol {
            Protocol::Udp => (ip_proto::UDP, udp(src, dst)),
            _ => (ip_proto::TCP, [src.to_be_bytes(), dst.to_be_bytes(), [0, 0], [0, 100]].concat()),
        };
        ip(self.src.ip(), self.dst.ip(), 60, proto, &body)
    }
}

fn udp(src: u16, dst: u16) -> Vec<u8> {
    let mut body = [src.to_be_bytes(), dst.to_be_bytes(), [0, 12], [0, 0]].concat();
    body.extend(DATA);
    body
}

/// Opens an association: the kernel's tracker accepts no other first packet.
fn sctp(src: u16, dst: u16) -> Vec<u8> {
    let mut body = [src.to_be_bytes(), dst.to_be_bytes(), [0; 2], [0; 2], [0; 2], [0; 2]].concat();
    body.extend([1, 0, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1]);
    let crc = crc32c(&body);
    body[8..12].copy_from_slice(&crc.to_le_bytes());
    body
}

impl Arp {
    fn bytes(&self) -> Vec<u8> {
        let op = if self.reply { 2 } else { 1 };
        let mut body = vec![0, 1, 8, 0, 6, 4, 0, op];
        body.extend(self.sha.0);
        body.extend(octets(self.spa));
        body.extend(self.tha.0);
        body.extend(octets(self.tpa));
        frame(self.from_mac, self.to_mac, eth_type::ARP, body)
    }
}

impl Nd {
    fn bytes(&self) -> Vec<u8> {
        let (kind, option) = if self.advertisement { (136, 2) } else { (135, 1) };
        let mut body = vec![kind, 0, 0, 0];
        body.extend(self.flags.to_be_bytes());
        body.extend(octets(self.target));
        if let Some(mac) = self.link {
            body.extend([option, 1]);
            body.extend(mac.0);
        }
        let pseudo = pseudo_header(self.src, self.dst, ip_proto::ICMPV6, body.len());
        let sum = checksum(&[&pseudo, &body]);
        body[2..4].copy_from_slice(&sum.to_be_bytes());
        ethernet(self.from_mac, self.to_mac, ip(self.src, self.dst, 255, ip_proto::ICMPV6, &body), true)
    }
}

fn ethernet(from: Mac, to: Mac, packet: Vec<u8>, v6: bool) -> Vec<u8> {
    frame(from, to, if v6 { eth_type::IPV6 } else { eth_type::IPV4 }, packet)
}

/// An Ethernet frame with any payload.
pub(in super::super) fn frame(from: Mac, to: Mac, kind: u16, body: Vec<u8>) -> Vec<u8> {
    let mut bytes = [to.0, from.0].concat();
    bytes.extend(kind.to_be_bytes());
    bytes.extend(body);
    bytes
}

fn ip(src: IpAddr, dst: IpAddr, ttl: u8, proto: u8, body: &[u8]) -> Vec<u8> {
    let mut header = if src.is_ipv6() {
        let [hi, lo] = u16::try_from(body.len()).unwrap().to_be_bytes();
        vec![0x60, 0, 0, 0, hi, lo, proto, ttl]
    } else {
        let [hi, lo] = u16::try_from(20 + body.len()).unwrap().to_be_bytes();
        vec![0x45, 0, hi, lo, 0, 0, 0x40, 0, ttl, proto, 0, 0]
    };
    header.extend(octets(src));
    header.extend(octets(dst));
    if src.is_ipv4() {
        let sum = checksum(&[&header]);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    header.extend(body);
    header
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().into(),
        IpAddr::V6(address) => address.octets().into(),
    }
}
