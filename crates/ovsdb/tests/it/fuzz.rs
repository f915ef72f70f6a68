//! The fuzz properties: on inputs that once broke them, and on valid messages with a few bytes changed.

#[expect(unreachable_pub, reason = "the fuzz target uses it from outside")]
#[path = "../../../../fuzz/properties/jsonrpc.rs"]
mod jsonrpc;
#[expect(unreachable_pub, reason = "the fuzz target uses it from outside")]
#[path = "../../../../fuzz/properties/ovsdb.rs"]
mod ovsdb_stream;

use testkit::mutate::check_property;

const TOKENS: [&[u8]; 12] =
    [b"{", b"}", b"[", b"]", b"\"", b",", b":", b"null", b"1e9", b"-1", b"[\"set\",[]]", b"[\"map\",[]]"];

#[test]
fn json_rpc_properties_hold_for_any_bytes() {
    check_property("jsonrpc", jsonrpc::check, Vec::new(), &TOKENS, 3000).unwrap();
}

#[test]
fn replica_properties_hold_for_any_stream() {
    check_property("ovsdb", ovsdb_stream::check, Vec::new(), &TOKENS, 3000).unwrap();
}
