use proptest::prelude::*;

use super::*;

fn packet(text: &str) -> Packet {
    text.parse::<Arrival>().unwrap().packet
}

const TCP: &str = "in_port=3,tcp,dl_src=0a:00:00:00:00:01,dl_dst=0a:00:00:00:00:02,nw_src=10.0.0.1,nw_dst=10.0.0.2,\
                   nw_ttl=9,tp_src=1000,tp_dst=80,tcp_flags=+syn";

#[test]
fn a_packet_parsed_from_text_has_correct_checksums() {
    let arrival: Arrival = TCP.parse().unwrap();
    assert_eq!(arrival.in_port.0, 3);
    assert!(arrival.packet.checksums_hold());
    assert_eq!(
        arrival.packet.to_string(),
        "tcp 10.0.0.1:1000 > 10.0.0.2:80 syn ttl 9 (0a:00:00:00:00:01 > 0a:00:00:00:00:02)"
    );
    assert_eq!(packet(&TCP.replace("+syn", "syn|ack")).get(Field::TcpFlags), 0x12);
    assert_eq!(packet("arp,arp_op=1,arp_spa=1.2.3.4,arp_tpa=1.2.3.5").get(Field::ArpTpa), 0x0102_0305);
    let nd =
        packet("icmp6,icmpv6_type=135,ipv6_src=fe80::1,ipv6_dst=fe80::2,nd_target=fe80::2,nd_sll=02:00:00:00:00:01");
    assert!(nd.checksums_hold());
    assert_eq!(nd.get(Field::NdSll), 0x0200_0000_0001);
    let tagged = packet("udp,dl_vlan=7,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=53");
    assert_eq!((tagged.get(Field::VlanVid), tagged.get(Field::UdpDst)), (0x1007, 53));
}

#[test]
fn a_field_that_the_packet_lacks_is_an_error_that_names_it() {
    let error = |text: &str| text.parse::<Arrival>().unwrap_err().to_string();
    assert_eq!(error("ip,nw_src=10.0.0.0/8"), "`ip_src` needs a whole value, not a mask");
    assert_eq!(error("reg0=1"), "`reg0` cannot be given for a packet");
    assert!(error("ip,nw_source=1").contains("nw_source"));
}

#[test]
fn a_write_updates_the_checksums() {
    for text in
        [TCP, "udp6,ipv6_src=fd00::1,ipv6_dst=fd00::2,tp_src=1,tp_dst=2", "sctp,nw_src=1.1.1.1,tp_src=7", "icmp"]
    {
        let mut packet = packet(text);
        for (field, value) in [
            (Field::Ipv4Src, 0x0102_0304),
            (Field::Ipv6Dst, 1 << 120 | 7),
            (Field::IpTtl, 3),
            (Field::IpDscp, 11),
            (Field::TcpDst, 8080),
            (Field::UdpSrc, 53),
            (Field::SctpSrc, 9),
            (Field::Icmpv4Code, 1),
        ] {
            packet.set(field, value);
            assert!(packet.checksums_hold(), "{text} {field:?}");
        }
        let mut summed = packet.clone();
        summed.sum_network();
        summed.sum_all();
        assert_eq!(packet, summed);
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut packet = packet(TCP);
    let l4 = packet.layout.l4.unwrap();
    packet.put_uint(l4 + 16, 2, 0x1234);
    packet.set(Field::TcpDst, 8080);
    assert!(!packet.checksums_hold());
}

#[test]
fn an_icmp_error_quotes_the_packet_it_is_about() {
    let original = packet(TCP);
    let error = original.icmp_error("10.0.0.9".parse().unwrap(), 3, 1).unwrap();
    assert!(error.checksums_hold());
    assert_eq!(error.dst(), original.src());
    let quoted = error.quoted().unwrap();
    assert_eq!(error.quoted_address(&quoted, 1), original.dst());
    let mut changed = error.clone();
    changed.rewrite_quoted(&quoted, Some((1, "10.9.9.9".parse().unwrap())), Some((1000, 99)));
    assert!(changed.checksums_hold());
    assert_eq!(&changed.quoted_segment(&quoted)[..4], [3, 232, 0, 99]);
}

#[test]
fn a_solicitation_can_be_turned_into_an_advertisement() {
    let rest = [&[0; 4][..], &[0xfd; 16], &[1, 1, 2, 2, 2, 2, 2, 2]].concat();
    let addresses = ["fd00::1", "ff02::1"].map(|address| address.parse().unwrap());
    let segment = Segment::Icmp { kind: 135, code: 0, rest };
    let mut packet = Packet::ip([2; 6], [4; 6], addresses[0], addresses[1], 255, &segment);
    assert_eq!((packet.get(Field::NdOptionsType), packet.get(Field::NdSll)), (1, 0x0202_0202_0202));
    let writes = [
        (Field::Icmpv6Type, 136),
        (Field::NdReserved, 0x6000_0000),
        (Field::NdOptionsType, 2),
        (Field::NdTll, 0x0404_0404_0404),
    ];
    for (field, value) in writes {
        packet.set(field, value);
        assert_eq!(packet.get(field), value, "{field:?}");
    }
    assert_eq!(packet.get(Field::NdSll), 0);
    assert!(packet.checksums_hold());
}

#[test]
fn an_absent_option_is_not_written() {
    let segment = Segment::Icmp { kind: 135, code: 0, rest: vec![0; 20] };
    let addresses = ["fd00::1", "ff02::1"].map(|address| address.parse().unwrap());
    let mut packet = Packet::ip([2; 6], [4; 6], addresses[0], addresses[1], 255, &segment);
    let before = packet.clone();
    packet.set(Field::NdOptionsType, 2);
    assert_eq!((packet.get(Field::NdOptionsType), packet == before), (0, true));
}

proptest! {
    #[test]
    fn any_bytes_are_accepted_as_a_packet(bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0usize..5) {
        let mut bytes = bytes;
        let kinds: [&[u8]; 5] = [&[8, 0, 0x45, 0, 0, 40], &[0x86, 0xdd, 0x60], &[8, 6, 0, 1, 8, 0, 6, 4], &[0x81, 0, 0, 1, 8, 0], &[]];
        let start = kinds[kind];
        if bytes.len() >= 12 + start.len() {
            bytes[12..12 + start.len()].copy_from_slice(start);
        }
        let mut packet = Packet::from_bytes(bytes.clone());
        let _ = (packet.checksums_hold(), packet.quoted(), packet.to_string());
        for field in Field::ALL {
            let value = packet.get(*field);
            packet.set(*field, value);
        }
        prop_assert_eq!(packet.as_bytes(), &bytes[..]);
        for field in Field::ALL {
            packet.set(*field, field.full_mask());
        }
    }
}
