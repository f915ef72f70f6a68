//! Encodes objects as lines of a watch, `kind` and `apiVersion` first, so that lists can cut them off.

use bytes::Bytes;
use serde_json::Value;

use super::Change;

/// The line of a watch with the object, and the object's slice of it.
pub(crate) fn encode(change: Change, object: &Value) -> (Bytes, Bytes) {
    let mut line = Vec::with_capacity(1024);
    line.extend_from_slice(head(change).as_bytes());
    let start = line.len();
    write(&mut line, object);
    let end = line.len();
    line.extend_from_slice(b"}\n");
    line.shrink_to_fit();
    let line = Bytes::from(line);
    let object = line.slice(start..end);
    (line, object)
}

/// A line of a watch with other bytes in it.
pub(crate) fn frame(change: &str, object: &[u8]) -> Bytes {
    [b"{\"type\":\"", change.as_bytes(), b"\",\"object\":", object, b"}\n"].concat().into()
}

fn head(change: Change) -> &'static str {
    match change {
        Change::Added => "{\"type\":\"ADDED\",\"object\":",
        Change::Modified => "{\"type\":\"MODIFIED\",\"object\":",
        Change::Deleted => "{\"type\":\"DELETED\",\"object\":",
    }
}

/// Writes an object as JSON, `kind` and `apiVersion` first.
pub(crate) fn write(to: &mut Vec<u8>, object: &Value) {
    let Some(map) = object.as_object() else {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(to, object);
        return;
    };
    to.push(b'{');
    let first = ["kind", "apiVersion"].into_iter().filter_map(|key| map.get_key_value(key));
    let rest = map.iter().filter(|(key, _)| *key != "kind" && *key != "apiVersion");
    for (index, (key, value)) in first.chain(rest).enumerate() {
        if index > 0 {
            to.push(b',');
        }
        let _ = serde_json::to_writer(&mut *to, key);
        to.push(b':');
        let _ = serde_json::to_writer(&mut *to, value);
    }
    to.push(b'}');
}
