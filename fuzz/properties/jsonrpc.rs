//! Properties of any bytes on a JSON-RPC socket.

use ovsdb::frame::{FrameError, Framer};
use ovsdb::rpc::Message;
use serde_json::Value;

/// Small, so that short inputs reach the limit.
const MAX_MESSAGE: usize = 512;

/// Framing does not depend on how the bytes arrive; a decoded message encodes to the same message.
pub fn check(data: &[u8]) {
    let (values, end) = frame(data.chunks(data.len().max(1)));
    assert_eq!((values.clone(), end), frame(data.chunks(1)));
    for value in values {
        let text = value.to_string();
        let again: Value = serde_json::from_str(&text).expect("printed JSON parses");
        assert_eq!(again, value, "JSON changes when it is printed and parsed");
        if let Ok(message) = Message::decode(value) {
            let again = Message::decode(message.encode()).expect("an encoded message decodes");
            assert_eq!(again, message);
        }
    }
}

fn frame<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<Value>, Option<FrameError>) {
    let mut framer = Framer::new(MAX_MESSAGE);
    let mut values = vec![];
    for chunk in chunks {
        framer.push(chunk);
        loop {
            match framer.next_value() {
                Ok(Some(value)) => values.push(value),
                Ok(None) => break,
                Err(error) => return (values, Some(error)),
            }
        }
    }
    assert!(framer.pending() <= MAX_MESSAGE, "an unfinished message is longer than the limit");
    (values, None)
}
