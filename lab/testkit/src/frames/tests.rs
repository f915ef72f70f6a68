use std::net::SocketAddr;

use super::*;

const A: Mac = [2, 0, 0, 0, 0, 1];
const B: Mac = [2, 0, 0, 0, 0, 2];

fn ends(v6: bool) -> (SocketAddr, SocketAddr) {
    let (a, b) = if v6 { ("[fd00::1]:1000", "[fd00::2]:80") } else { ("10.0.0.1:1000", "10.0.0.2:80") };
    (a.parse().unwrap(), b.parse().unwrap())
}

fn read_ip(frame: &[u8]) -> Ip {
    match Frame::read(frame).unwrap().network {
        Network::Ip(ip) => ip,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_frame_is_read_as_it_was_composed_behind_tags_options_and_extension_headers() {
    for v6 in [false, true] {
        let (src, dst) = ends(v6);
        let body = udp(src, dst, b"hello");
        let plain = ip(src.ip(), dst.ip(), &body);
        let unusual = extended(&with_options(&plain, &[7, 7, 4]), &[0, 60, 43, 44]);
        for packet in [plain, unusual] {
            let frame = tagged(&ethernet_ip(A, B, &packet), &[(kind::QINQ, 5), (kind::VLAN, 6)]);
            let read = Frame::read(&frame).unwrap();
            assert_eq!((read.from, read.to, read.tags), (A, B, 2));
            let seen = read_ip(&frame);
            assert_eq!((seen.src, seen.dst, seen.ports()), (src.ip(), dst.ip(), Some((1000, 80))));
            assert_eq!(seen.body, body.bytes);
        }
    }
}

#[test]
fn parts_make_up_the_whole() {
    for v6 in [false, true] {
        let (src, dst) = ends(v6);
        let whole = udp(src, dst, &[9; 100]);
        let parts = fragments(&ip(src.ip(), dst.ip(), &whole), 48, 77);
        assert_eq!(parts.len(), 3);
        let mut together = Vec::new();
        for part in &parts {
            let part = read_ip(&ethernet_ip(A, B, part));
            assert_eq!(usize::from(part.offset), together.len());
            assert_eq!(part.ports().is_some(), part.offset == 0);
            together.extend(part.body);
        }
        assert_eq!(together, whole.bytes);
    }
}

#[test]
fn checksums_are_right() {
    for v6 in [false, true] {
        let (src, dst) = ends(v6);
        for body in [udp(src, dst, b"odd"), tcp(src, dst, 2, (1, 2), b""), echo(src.ip(), dst.ip(), 1, b"x")] {
            let pseudo = if body.proto == proto::ICMP {
                vec![]
            } else {
                pseudo_header(src.ip(), dst.ip(), body.proto, body.bytes.len())
            };
            assert_eq!(checksum(&[&pseudo, &body.bytes]), 0, "{body:?}");
        }
    }
    // The check value of CRC-32C.
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn an_error_quotes_a_packet_and_tunnels_carry_frames() {
    let (src, dst) = ends(false);
    let packet = ip(src.ip(), dst.ip(), &udp(src, dst, b"hello"));
    let error = ip(dst.ip(), src.ip(), &icmp_error(dst.ip(), src.ip(), 3, 3, &packet));
    assert_eq!(read_ip(&ethernet_ip(A, B, &error)).quoted().unwrap().ports(), Some((1000, 80)));
    let frame = ethernet_ip(A, B, &packet);
    for (body, header) in [(geneve(src, dst, 0, &frame), 16), (vxlan(src, dst, 0, &frame), 16), (gre(&frame), 4)] {
        assert_eq!(body.bytes[header..], frame);
    }
}

#[test]
fn no_frame_is_too_short_to_be_read() {
    let (src, dst) = ends(true);
    let frame = ethernet_ip(A, B, &extended(&ip(src.ip(), dst.ip(), &udp(src, dst, b"hello")), &[0, 44]));
    for length in 0..frame.len() {
        let _ = Frame::read(&frame[..length]);
    }
}
