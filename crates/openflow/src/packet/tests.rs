use proptest::prelude::*;

use super::*;
use crate::text::hex;

/// From ovs-vswitchd 3.1.0, after the vendor header: `in_port=1,ip,actions=set_field:7->reg1,controller(userdata=01.02.03)`.
const PACKET_IN2: &str = concat!(
    "0000004caa55aa550001aa55aa5500020800450000280000000040117cce0a0000010a00000200350035001400000000",
    "000000000000000000000000000000000000000000000000000000000000000000030005000000000004001000000000",
    "0000000000000099000500050100000000060020800000040000000180010110000000000000000700000000ffffffff",
    "0007000701020300",
);

#[test]
fn a_packet_with_userdata_is_read() {
    let bytes = hex(PACKET_IN2);
    let packet_in = PacketIn2::decode(&mut Reader::new(&bytes)).unwrap();
    assert_eq!(packet_in.packet.len(), 72);
    assert_eq!(packet_in.in_port(), Some(Port(1)));
    assert_eq!(packet_in.metadata.exact(Field::Reg1), Some(7), "which was sent as half of xreg0");
    assert_eq!((packet_in.table, packet_in.cookie), (Some(0), Some(0x99)));
    assert_eq!((packet_in.reason, packet_in.userdata), (Some(Reason::Action), vec![1, 2, 3]));
    assert_eq!((packet_in.continuation, packet_in.unknown), (None, vec![]));
}

#[test]
fn a_paused_packet_keeps_what_resumes_it() {
    // The end of a packet-in of ovs-vswitchd 3.1.0 for `controller(pause,userdata=01.02.03)`.
    let continuation = concat!(
        "0000000080000014991cf0bfa14f06cf72dd698f952cc8ca000000008005001000000000000000000000009a",
        "8006001800000000000000100000000200000000000000008008000800000002",
    );
    let bytes = hex(&format!("00080050{continuation}0007000701020300"));
    let packet_in = PacketIn2::decode(&mut Reader::new(&bytes)).unwrap();
    assert_eq!(packet_in.continuation, Some(hex(continuation)));
    assert_eq!(packet_in.userdata, [1, 2, 3]);
    let resume = packet_in.into_resume();
    assert_eq!((resume.continuation, resume.userdata), (Some(hex(continuation)), vec![]));
}

#[test]
fn a_packet_in_standard_form_is_read() {
    // From ovs-vswitchd 3.1.0, after the header, the packet cut to 4 bytes: the same flow as above.
    let bytes = hex(concat!(
        "ffffffff00480100000000000000009900010020800000040000000180010110",
        "000000000000000700000000ffffffff0000aa55aa55",
    ));
    let packet_in = PacketIn::decode(&mut Reader::new(&bytes)).unwrap();
    assert_eq!((packet_in.in_port(), packet_in.cookie, packet_in.table), (Some(Port(1)), 0x99, 0));
    assert_eq!((packet_in.total_len, &packet_in.packet[..]), (72, &[0xaa, 0x55, 0xaa, 0x55][..]));
    assert_eq!(packet_in.to_string(), " table_id=0 cookie=0x99 total_len=72 reg1=0x7,in_port=1 reason=1 data=4 bytes");
}

fn metadata() -> impl Strategy<Value = Match> {
    (any::<u32>(), any::<u32>()).prop_map(|(port, reg)| Match::any().with(Field::InPort, port).with(Field::Reg1, reg))
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..40)
}

proptest! {
    #[test]
    fn values_survive_encoding_and_decoding(
        packet in bytes(), full_len: Option<u32>, buffer_id: Option<u32>, table: Option<u8>, cookie: Option<u64>,
        reason: Option<u8>, metadata in metadata(), userdata in bytes(), continuation in prop::option::of(bytes()),
        kind in 9u16.., port: u32,
    ) {
        let unknown = vec![UnknownProperty { kind, value: packet.clone() }];
        let reason = reason.map(Reason::from_code);
        let packet_in = PacketIn2 {
            packet: packet.clone(), full_len, buffer_id, table, cookie, reason, metadata: metadata.clone(), userdata,
            continuation, unknown,
        };
        let mut out = Vec::new();
        packet_in.encode(&mut out);
        prop_assert_eq!(PacketIn2::decode(&mut Reader::new(&out)).unwrap(), packet_in);

        out.clear();
        let packet_in = PacketIn {
            buffer_id: NO_BUFFER, total_len: 9, reason: Reason::NoMatch, table: 3, cookie: 7, metadata,
            packet: packet.clone(),
        };
        packet_in.encode(&mut out);
        prop_assert_eq!(PacketIn::decode(&mut Reader::new(&out)).unwrap(), packet_in);

        out.clear();
        let packet_out = PacketOut::new(Port(port), vec![Action::Output(Port::TABLE), Action::DecTtl], packet);
        packet_out.encode(&mut out);
        prop_assert_eq!(PacketOut::decode(&mut Reader::new(&out)).unwrap(), packet_out);
    }
}
