use proptest::prelude::*;

use super::*;
use crate::bundle::{BundleFlags, BundleId};
use crate::flow::Flow;
use crate::multipart::ReplyBody;
use crate::text::hex;

/// One message of each kind, and some of unknown ones.
fn samples() -> Vec<Message> {
    let mut samples = crate::arbitrary::messages();
    samples.extend([
        Message::MultipartRequest(MultipartRequest::Unknown { kind: 12, flags: 1, body: vec![1; 8] }),
        Message::MultipartReply(MultipartReply { more: true, body: ReplyBody::Unknown { kind: 12, body: vec![1; 8] } }),
        Message::Unknown { kind: 99, body: vec![1, 2, 3] },
        Message::Unknown { kind: kind::EXPERIMENTER, body: hex("0000232000001234ff") },
    ]);
    samples
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
fn bundles_in_bundles_do_not_exhaust_the_stack() {
    let flags = BundleFlags::empty();
    let mut message = Vec::new();
    Message::BarrierRequest.encode(9, &mut message).unwrap();
    while message.len() < 65_000 {
        let add = BundleAdd { id: BundleId(1), flags, message: std::mem::take(&mut message) };
        Message::BundleAdd(add).encode(9, &mut message).unwrap();
    }
    let (_, message) = Message::decode(&message).unwrap();
    assert!(message.to_string().ends_with("(a bundle in a bundle)"));
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
    fn a_changed_byte_gives_a_message_or_an_error(which: prop::sample::Index, at in 8usize..300, byte: u8) {
        let mut bytes = Vec::new();
        which.get(&samples()).encode(9, &mut bytes).unwrap();
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
