//! Properties of any text that is read as a group.

use openflow::group::{Group, GroupMod};
use openflow::wire::Reader;

/// A parsed group prints as a text that parses to the same group, and survives encoding.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let group = match text.parse::<Group>() {
        Ok(group) => group,
        Err(error) => {
            let _ = error.to_string();
            return;
        }
    };
    let printed = group.to_string();
    match printed.parse::<Group>() {
        Ok(again) => assert_eq!(again, group, "{printed}"),
        Err(error) => panic!("{printed}\ndoes not parse: {error}"),
    }

    let change = GroupMod::Add(group.clone());
    let mut bytes = Vec::new();
    change.encode(&mut bytes);
    // Values that are too large for a message are rejected when they are sent.
    if bytes.len() > 60_000 {
        return;
    }
    assert_eq!(GroupMod::decode(&mut Reader::new(&bytes)), Ok(change), "{printed}");
    bytes.clear();
    group.encode_desc(&mut bytes);
    assert_eq!(Group::decode_desc(&mut Reader::new(&bytes)), Ok(group), "{printed}");
}
