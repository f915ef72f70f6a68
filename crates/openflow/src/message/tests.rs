use proptest::prelude::*;

use super::*;
use crate::bundle::{BundleFlags, BundleId, BundleStep};
use crate::control::{AsyncKind, Capabilities, Role};
use crate::flow::{Flow, FlowRequest, FlowStats};
use crate::group::Group;
use crate::meter::{Meter, MeterId};
use crate::monitor::MonitorRequest;
use crate::multipart::ReplyBody;
use crate::port::Port;
use crate::stats::Oxs;
use crate::text::hex;

/// One message of each type, the lists not empty.
fn samples() -> Vec<Message> {
    let flow: Flow = "table=3,priority=7,cookie=0x5,ip,nw_src=10.0.0.0/8,actions=resubmit(,4)".parse().unwrap();
    let group: Group = "group_id=5,type=select,bucket=bucket_id:1,weight:3,actions=output:1".parse().unwrap();
    let meter = Meter::drop_pktps(MeterId(1), 100, 50);
    let role = RoleMessage { role: Role::Primary, generation: 3 };
    let config = AsyncConfig::default().with(AsyncKind::PacketIn, 2).with(AsyncKind::PortStatus, 7);
    let error = ErrorMessage { kind: 5, code: 3, experimenter: None, data: hex("060e003800000067") };
    let flags = BundleFlags::ATOMIC | BundleFlags::ORDERED;
    let packet = PacketIn2 { packet: vec![1; 60], userdata: vec![1, 2], ..PacketIn2::default() };
    let removed = FlowRemoved { reason: 2, flow: Flow::at(7, 100), stats: Oxs::default() };
    let features = Features {
        datapath_id: 7,
        n_buffers: 0,
        n_tables: 254,
        auxiliary_id: 0,
        capabilities: Capabilities::BUNDLES,
        reserved: 0,
    };
    let stats = FlowStats { flow: flow.clone(), duration: std::time::Duration::from_secs(3), packets: 1, bytes: 2 };
    let reply = |body| Message::MultipartReply(MultipartReply { more: true, body });
    let mut inner = Vec::new();
    Message::BarrierRequest.encode(9, &mut inner).unwrap();
    vec![
        Message::Hello(Hello::of15()),
        Message::Error(error),
        Message::EchoRequest(b"hi".to_vec()),
        Message::EchoReply(b"hi".to_vec()),
        Message::FeaturesRequest,
        Message::FeaturesReply(features),
        Message::GetConfigRequest,
        Message::GetConfigReply(SwitchConfig::WHOLE_PACKETS),
        Message::SetConfig(SwitchConfig::WHOLE_PACKETS),
        Message::PacketIn2(Box::new(packet.clone())),
        Message::Resume(Box::new(packet)),
        Message::FlowRemoved(Box::new(removed)),
        Message::PacketOut(PacketOut::new(Port(1), vec![], vec![2; 60])),
        Message::FlowMod(Box::new(FlowMod::add(flow))),
        Message::GroupMod(GroupMod::Add(group.clone())),
        Message::MeterMod(MeterMod::Add(meter.clone())),
        Message::MultipartRequest(MultipartRequest::Flow(FlowRequest::default())),
        Message::MultipartRequest(MultipartRequest::Aggregate(FlowRequest::default())),
        Message::MultipartRequest(MultipartRequest::Table),
        Message::MultipartRequest(MultipartRequest::Group(5)),
        Message::MultipartRequest(MultipartRequest::GroupDesc(5)),
        Message::MultipartRequest(MultipartRequest::Meter(MeterId::ALL)),
        Message::MultipartRequest(MultipartRequest::MeterConfig(MeterId::ALL)),
        Message::MultipartRequest(MultipartRequest::PortDesc(Port::ANY)),
        Message::MultipartRequest(MultipartRequest::FlowMonitor(vec![MonitorRequest::all(7)])),
        Message::MultipartRequest(MultipartRequest::Unknown { kind: 12, flags: 1, body: vec![1; 8] }),
        reply(ReplyBody::Flow(vec![stats])),
        reply(ReplyBody::GroupDesc(vec![group])),
        reply(ReplyBody::MeterConfig(vec![meter])),
        reply(ReplyBody::Unknown { kind: 12, body: vec![1; 8] }),
        Message::BarrierRequest,
        Message::BarrierReply,
        Message::RoleRequest(role),
        Message::RoleReply(role),
        Message::GetAsyncRequest,
        Message::GetAsyncReply(config.clone()),
        Message::SetAsync(config),
        Message::BundleControl(BundleControl { id: BundleId(1), step: BundleStep::OpenRequest, flags }),
        Message::BundleAdd(BundleAdd { id: BundleId(1), flags, message: inner }),
        Message::SetPacketInFormat(PacketInFormat::Nxt2),
        Message::SetControllerId(9),
        Message::CtFlushZone(65_520),
        Message::Unknown { kind: 99, body: vec![1, 2, 3] },
        Message::Unknown { kind: kind::EXPERIMENTER, body: hex("0000232000001234ff") },
    ]
}

#[test]
fn every_message_decodes_to_what_was_encoded() {
    for message in samples() {
        let mut out = Vec::new();
        message.encode(9, &mut out).unwrap();
        assert_eq!(Message::decode(&out), Ok((9, message)));
    }
}

#[test]
fn every_cut_of_every_message_is_an_error_and_never_a_panic() {
    for message in samples() {
        let mut out = Vec::new();
        message.encode(9, &mut out).unwrap();
        for length in 0..out.len() {
            assert!(Message::decode(&out[..length]).is_err());
            // With a header that agrees to the cut it may still be a message, but not one that panics.
            if length >= 8 {
                let mut cut = out[..length].to_vec();
                cut.patch_len(2, 0);
                let _ = Message::decode(&cut).map(|(xid, message)| message.line(xid));
            }
        }
    }
}

#[test]
fn messages_are_named_and_described_for_people() {
    let line = |message: Message| message.line(7);
    assert_eq!(line(Message::BarrierRequest), "OFPT_BARRIER_REQUEST (OF1.5) (xid=0x7):");
    assert_eq!(line(Message::Hello(Hello::of15())), "OFPT_HELLO (OF1.5) (xid=0x7): version bitmap: 0x06");
    let error = ErrorMessage { kind: 5, code: 3, experimenter: None, data: hex("060e003800000067") };
    assert_eq!(
        line(Message::Error(error)),
        "OFPT_ERROR (OF1.5) (xid=0x7): OFPFMFC_OVERLAP: flow overlaps another of the same priority (in reply to OFPT_FLOW_MOD)"
    );
    let flow: Flow = "table=1,priority=190,ip,actions=conjunction(7,1/2)".parse().unwrap();
    let mut message = Vec::new();
    Message::FlowMod(Box::new(FlowMod::add(flow))).encode(7, &mut message).unwrap();
    let flags = BundleFlags::ATOMIC | BundleFlags::ORDERED;
    assert_eq!(
        line(Message::BundleAdd(BundleAdd { id: BundleId(2), flags, message })),
        "OFPT_BUNDLE_ADD_MESSAGE (OF1.5) (xid=0x7): bundle_id=0x2 flags=ATOMIC | ORDERED \
         OFPT_FLOW_MOD: ADD table=1, priority=190,ip actions=conjunction(7,1/2)"
    );
}

#[test]
fn bytes_beyond_a_message_of_fixed_size_are_an_error() {
    let error = Message::decode(&hex("0614000900000007ff")).unwrap_err();
    assert_eq!(error, DecodeError::BadLength { what: "message", length: 9 });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_bytes_give_a_message_or_an_error(kind in 0u8..36, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = Vec::new();
        put_message(&mut bytes, kind, 1, |out| out.put(&body)).unwrap();
        if let Ok((xid, message)) = Message::decode(&bytes) {
            let _ = message.line(xid);
            let mut again = Vec::new();
            message.encode(xid, &mut again).unwrap();
            prop_assert_eq!(Message::decode(&again), Ok((xid, message)));
        }
    }

    #[test]
    fn a_changed_byte_gives_a_message_or_an_error(which in 0usize..44, at in 8usize..300, byte: u8) {
        let mut bytes = Vec::new();
        samples()[which].encode(9, &mut bytes).unwrap();
        let at = at % bytes.len();
        if at >= 8 {
            bytes[at] = byte;
        }
        if let Ok((xid, message)) = Message::decode(&bytes) {
            let _ = message.line(xid);
            let mut again = Vec::new();
            message.encode(xid, &mut again).unwrap();
            prop_assert_eq!(Message::decode(&again), Ok((xid, message)));
        }
    }
}
