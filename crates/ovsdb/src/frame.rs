//! Splits a byte stream into JSON values.
//!
//! OVS sends JSON objects back to back with nothing between them, so the end of a message is found by counting brackets
//! outside of strings. Each byte is read once here and once by the JSON parser, however the stream is chunked.

use serde_json::Value;
use thiserror::Error;

/// Default limit for a message: large enough for some hundred thousand rows or connections.
pub const DEFAULT_MAX_MESSAGE: usize = 64 << 20;

/// Maximum nesting of arrays and objects; OVSDB itself needs less than ten.
pub const MAX_DEPTH: usize = 100;

/// Why a stream cannot be read any further; offsets count from its first byte.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    /// A message is longer than the limit.
    #[error("message that starts at byte {offset} is longer than the limit of {limit} bytes")]
    TooLong {
        /// Offset of the message's first byte.
        offset: u64,
        /// The limit of the framer.
        limit: usize,
    },
    /// Arrays and objects nest deeper than [`MAX_DEPTH`].
    #[error("message that starts at byte {offset} nests deeper than {MAX_DEPTH} levels")]
    TooDeep {
        /// Offset of the message's first byte.
        offset: u64,
    },
    /// A message is neither an object nor an array, so its end cannot be found.
    #[error("byte {byte:#04x} at {offset} does not start a JSON object or array")]
    NoMessage {
        /// Offset of the byte.
        offset: u64,
        /// The first byte of the message.
        byte: u8,
    },
    /// A message is invalid JSON.
    #[error("message that starts at byte {offset} is not valid JSON: {reason}")]
    NotJson {
        /// Offset of the message's first byte.
        offset: u64,
        /// The error of the JSON parser.
        reason: String,
    },
}

/// The syntactic position of the next byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scan {
    Between,
    Inside { depth: usize },
    String { depth: usize },
    Escape { depth: usize },
}

/// Collects chunks of a stream and yields the JSON values in it.
///
/// The first error is final: the rest of the stream cannot be split.
#[derive(Clone, Debug)]
pub struct Framer {
    buffer: Vec<u8>,
    /// First byte of the buffer that is not part of a yielded message.
    start: usize,
    /// First byte of the buffer that was not scanned yet.
    scanned: usize,
    /// Offset in the stream of the buffer's first byte.
    dropped: u64,
    scan: Scan,
    max_message: usize,
    failed: Option<FrameError>,
}

impl Default for Framer {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_MESSAGE)
    }
}

impl Framer {
    /// A framer that rejects messages longer than `max_message` bytes.
    pub fn new(max_message: usize) -> Self {
        Self { buffer: vec![], start: 0, scanned: 0, dropped: 0, scan: Scan::Between, max_message, failed: None }
    }

    /// Appends bytes of the stream. Before the next call, call [`Framer::next_value`] until it returns `None`.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        if self.start > 0 && self.start * 2 >= self.buffer.len() {
            self.buffer.drain(..self.start);
            self.dropped += self.start as u64;
            self.scanned -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole value, `None` when more bytes are needed, or the error that ended the stream.
    pub fn next_value(&mut self) -> Result<Option<Value>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let next = self.scan_message();
        if let Err(error) = &next {
            self.failed = Some(error.clone());
            self.buffer = vec![];
        }
        next
    }

    /// The number of buffered bytes of an incomplete message.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start.min(self.buffer.len())
    }

    fn scan_message(&mut self) -> Result<Option<Value>, FrameError> {
        while let Some(&byte) = self.buffer.get(self.scanned) {
            let offset = self.dropped + self.start as u64;
            self.scan = match (self.scan, byte) {
                (Scan::Between, b' ' | b'\t' | b'\r' | b'\n') => {
                    self.scanned += 1;
                    self.start = self.scanned;
                    continue;
                }
                (Scan::Between, b'{' | b'[') => Scan::Inside { depth: 1 },
                (Scan::Between, byte) => return Err(FrameError::NoMessage { offset, byte }),
                (Scan::Inside { depth }, b'{' | b'[') if depth == MAX_DEPTH => {
                    return Err(FrameError::TooDeep { offset });
                }
                (Scan::Inside { depth }, b'{' | b'[') => Scan::Inside { depth: depth + 1 },
                (Scan::Inside { depth: 1 }, b'}' | b']') => Scan::Between,
                (Scan::Inside { depth }, b'}' | b']') => Scan::Inside { depth: depth - 1 },
                (Scan::Inside { depth }, b'"') => Scan::String { depth },
                (Scan::String { depth }, b'"') => Scan::Inside { depth },
                (Scan::String { depth }, b'\\') => Scan::Escape { depth },
                (Scan::Escape { depth }, _) => Scan::String { depth },
                (scan @ (Scan::Inside { .. } | Scan::String { .. }), _) => scan,
            };
            self.scanned += 1;
            if self.scanned - self.start > self.max_message {
                return Err(FrameError::TooLong { offset, limit: self.max_message });
            }
            if self.scan == Scan::Between {
                let message = self.buffer.get(self.start..self.scanned).unwrap_or_default();
                let value = serde_json::from_slice(message)
                    .map_err(|error| FrameError::NotJson { offset, reason: error.to_string() })?;
                self.start = self.scanned;
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn all(framer: &mut Framer) -> Result<Vec<Value>, FrameError> {
        std::iter::from_fn(|| framer.next_value().transpose()).collect()
    }

    #[test]
    fn messages_come_out_whole_and_in_order() {
        let mut framer = Framer::default();
        framer.push(br#"{"id":1}{"a":"}\"{"} [2"#);
        assert_eq!(all(&mut framer).unwrap(), [json!({"id": 1}), json!({"a": "}\"{"})]);
        assert_eq!(framer.pending(), 2);
        framer.push(b"]");
        assert_eq!(all(&mut framer).unwrap(), [json!([2])]);
        assert_eq!(framer.pending(), 0);
    }

    #[test]
    fn a_message_at_the_limit_is_accepted_and_one_byte_more_is_not() {
        let mut framer = Framer::new(8);
        framer.push(br#"{"a":12}"#);
        assert_eq!(framer.next_value().unwrap(), Some(json!({"a": 12})));
        framer.push(br#"{"a":123}"#);
        let error = framer.next_value().unwrap_err();
        assert_eq!(error, FrameError::TooLong { offset: 8, limit: 8 });
        assert!(error.to_string().contains("limit of 8 bytes"));
    }

    #[test]
    fn an_error_is_final() {
        let mut framer = Framer::default();
        framer.push(b"{} true {}");
        assert_eq!(framer.next_value().unwrap(), Some(json!({})));
        let error = FrameError::NoMessage { offset: 3, byte: b't' };
        assert_eq!(framer.next_value().unwrap_err(), error);
        framer.push(b"{}");
        assert_eq!(framer.next_value().unwrap_err(), error);
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = |n: usize| [vec![b'['; n], vec![b']'; n]].concat();
        let mut framer = Framer::default();
        framer.push(&deep(MAX_DEPTH));
        assert!(framer.next_value().unwrap().is_some());
        framer.push(&deep(MAX_DEPTH + 1));
        assert!(matches!(framer.next_value(), Err(FrameError::TooDeep { .. })));
    }

    #[test]
    fn brackets_that_do_not_match_are_an_error() {
        let mut framer = Framer::default();
        framer.push(b"{]");
        assert!(matches!(framer.next_value(), Err(FrameError::NotJson { offset: 0, .. })));
    }

    #[test]
    fn ten_megabytes_byte_by_byte_take_linear_time() {
        let text = format!("[\"{}\"]", "x".repeat(10 << 20));
        let mut framer = Framer::default();
        let mut values = 0;
        for byte in text.as_bytes() {
            framer.push(std::slice::from_ref(byte));
            values += usize::from(framer.next_value().unwrap().is_some());
        }
        assert_eq!(values, 1);
    }

    proptest! {
        #[test]
        fn chunking_does_not_matter(
            words in prop::collection::vec("[{}\\[\\]\",:a1\\\\ ]{0,6}|\\{\"k\":\\[1,\"[a-z{]*\"\\]\\}", 0..12),
            cuts in prop::collection::vec(0usize..7, 1..20),
        ) {
            let text = words.concat().into_bytes();
            let mut whole = Framer::new(40);
            whole.push(&text);
            let mut expected = vec![];
            let end = loop {
                match whole.next_value() {
                    Ok(Some(value)) => expected.push(value),
                    end => break end,
                }
            };
            let mut framer = Framer::new(40);
            let (mut got, mut rest) = (vec![], text.as_slice());
            let mut last = Ok(None);
            for cut in cuts.iter().cycle().map(|cut| cut + 1) {
                let (chunk, tail) = rest.split_at(cut.min(rest.len()));
                framer.push(chunk);
                last = loop {
                    match framer.next_value() {
                        Ok(Some(value)) => got.push(value),
                        end => break end,
                    }
                };
                rest = tail;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(got, expected);
            prop_assert_eq!(last, end);
        }
    }
}
