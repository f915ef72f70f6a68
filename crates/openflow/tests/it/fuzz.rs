//! The fuzz properties: on inputs that once broke them, and on valid messages and texts with a few bytes changed.

#[expect(unreachable_pub, reason = "the fuzz target uses it from outside")]
#[path = "../../../../fuzz/properties/flow_text.rs"]
mod flow_text;
#[expect(unreachable_pub, reason = "the fuzz target uses it from outside")]
#[path = "../../../../fuzz/properties/group_text.rs"]
mod group_text;
#[expect(unreachable_pub, reason = "the fuzz target uses it from outside")]
#[path = "../../../../fuzz/properties/openflow_message.rs"]
mod openflow_message;
#[expect(unreachable_pub, reason = "the fuzz target uses it from outside")]
#[path = "../../../../fuzz/properties/openflow_stream.rs"]
mod openflow_stream;

use openflow::arbitrary;
use testkit::mutate::check_property;

const TOKENS: [&[u8]; 16] = [
    b",", b"=", b":", b"(", b")", b"[", b"]", b"->", b"/", b"0xffff", b"0", b"drop", b"ip,", b"reg0=1", b"ct(",
    b"exec(",
];

/// The bytes of one message of each kind.
fn messages() -> Vec<Vec<u8>> {
    let encode = |message: openflow::message::Message| {
        let mut bytes = Vec::new();
        message.encode(9, &mut bytes).unwrap();
        bytes
    };
    arbitrary::messages().into_iter().map(encode).collect()
}

#[test]
fn messages_keep_their_promises_on_any_bytes() {
    check_property("openflow_message", openflow_message::check, messages(), &[&[0xff; 2], &[0; 4]], 20_000).unwrap();
}

#[test]
fn the_framer_keeps_its_promises_on_any_stream() {
    let stream = [vec![7], messages().concat()].concat();
    check_property("openflow_stream", openflow_stream::check, vec![stream], &[&[6, 0, 0, 8]], 1000).unwrap();
}

#[test]
fn flows_keep_their_promises_on_any_text() {
    check_property("flow_text", flow_text::check, Vec::new(), &TOKENS, 10_000).unwrap();
}

#[test]
fn groups_keep_their_promises_on_any_text() {
    check_property("group_text", group_text::check, Vec::new(), &TOKENS, 10_000).unwrap();
}
