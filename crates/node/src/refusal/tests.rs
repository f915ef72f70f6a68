use super::*;

const TO: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A frame from 10.0.0.1:1000 (fd00::1) to 10.96.0.1:80 (fd00::2); `rest` is the payload after the ports.
fn frame(ipv6: bool, protocol: u8, rest: &[u8]) -> Vec<u8> {
    let ports = [1000u16.to_be_bytes(), 80u16.to_be_bytes()].concat();
    let length = u16::try_from(4 + rest.len()).unwrap();
    let ip = if ipv6 {
        let addresses = ["fd00::1", "fd00::2"].map(|ip| ip.parse::<Ipv6Addr>().unwrap().octets()).concat();
        [&[0x60, 0, 0, 0][..], &length.to_be_bytes(), &[protocol, 64], &addresses].concat()
    } else {
        let length = (20 + length).to_be_bytes();
        let addresses = [10, 0, 0, 1, 10, 96, 0, 1];
        [&[0x45, 0][..], &length, &[0, 7, 0, 0, 64, protocol, 0, 0], &addresses].concat()
    };
    let kind = if ipv6 { IPV6 } else { IPV4 };
    [&TO[..], &FROM, &kind.to_be_bytes(), &ip, &ports, rest].concat()
}

fn tcp(ipv6: bool, seq: u32, ack: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let rest = [&seq.to_be_bytes()[..], &ack.to_be_bytes(), &[5 << 4, flags, 1, 0, 0, 0, 0, 0], data].concat();
    frame(ipv6, TCP, &rest)
}

/// The sum of data with a correct checksum.
const RIGHT: [u8; 2] = [0, 0];

fn assert_checksums(answer: &[u8], protocol: u8) {
    let packet = Packet::read(answer).unwrap();
    // The pseudo header of the answer has the addresses swapped, which does not change the sum.
    let covered = pseudo_header(&packet, protocol, packet.payload.len());
    if packet.src.is_ipv4() {
        assert_eq!(checksum(&[&packet.ip[..20]]), RIGHT);
    }
    let pseudo: &[u8] = if protocol == ICMP { &[] } else { &covered };
    assert_eq!(checksum(&[pseudo, packet.payload]), RIGHT);
}

#[test]
fn tcp_resets_have_the_sequence_numbers_that_clients_accept() {
    for ipv6 in [false, true] {
        for (flags, data, (seq, ack, answered)) in [
            (flag::SYN, &b""[..], (0, 101, flag::RST | flag::ACK)),
            (flag::SYN, b"early", (0, 106, flag::RST | flag::ACK)),
            (flag::ACK, b"data", (7, 0, flag::RST)),
        ] {
            let answer = refusal(&tcp(ipv6, 100, 7, flags, data)).unwrap();
            assert_eq!((&answer[..6], &answer[6..12]), (&FROM[..], &TO[..]));
            assert_checksums(&answer, TCP);
            let packet = Packet::read(&answer).unwrap();
            let addresses = if ipv6 { ("fd00::2", "fd00::1") } else { ("10.96.0.1", "10.0.0.1") };
            assert_eq!((packet.src.to_string().as_str(), packet.dst.to_string().as_str()), addresses);
            let tcp = packet.payload;
            assert_eq!(tcp[..4], [0, 80, 1000u16.to_be_bytes()[0], 1000u16.to_be_bytes()[1]]);
            let words = (u32::from_be_bytes(bytes(tcp, 4).unwrap()), u32::from_be_bytes(bytes(tcp, 8).unwrap()));
            assert_eq!((words, tcp[13]), ((seq, ack), answered));
        }
    }
}

#[test]
fn a_reset_is_not_answered() {
    assert_eq!(refusal(&tcp(false, 1, 1, flag::RST | flag::ACK, b"")), None);
}

#[test]
fn other_protocols_get_port_unreachable_with_the_start_of_the_packet() {
    for (ipv6, icmp, kind) in [(false, ICMP, [3, 3]), (true, ICMPV6, [1, 4])] {
        for data in [4, 2000] {
            let sent = frame(ipv6, 17, &vec![0; data]);
            let answer = refusal(&sent).unwrap();
            assert_checksums(&answer, icmp);
            let packet = Packet::read(&answer).unwrap();
            assert_eq!((packet.protocol, &packet.payload[..2]), (icmp, &kind[..]));
            assert!(sent[ETHERNET..].starts_with(&packet.payload[8..]));
            assert!(packet.ip.len() <= if ipv6 { 1280 } else { 576 });
        }
    }
}

#[test]
fn ethernet_padding_is_not_part_of_the_packet() {
    let mut padded = tcp(false, 100, 0, flag::SYN, b"");
    padded.extend([0; 6]);
    assert_eq!(refusal(&padded), refusal(&tcp(false, 100, 0, flag::SYN, b"")));
}

#[test]
fn malformed_packets_do_not_panic() {
    for whole in [tcp(false, 1, 2, flag::SYN, b"x"), tcp(true, 1, 2, flag::SYN, b"x"), frame(true, 17, &[0; 8])] {
        for length in 0..whole.len() {
            let _ = refusal(&whole[..length]);
        }
        for (at, value) in (0..whole.len()).flat_map(|at| [(at, 0), (at, 0x0f), (at, 0xff)]) {
            let mut changed = whole.clone();
            changed[at] = value;
            let _ = refusal(&changed);
        }
    }
}
