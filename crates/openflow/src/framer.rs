//! Cuts a stream of bytes into messages.

use thiserror::Error;

use crate::header::{HEADER_LEN, Header, OF15, kind};
use crate::wire::Reader;

/// Why a stream cannot be split into messages; later bytes are meaningless.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    /// The length of a message is less than that of its header.
    #[error("message of length {0}, which is less than a header")]
    Length(u16),
    /// A message is of another version of OpenFlow.
    #[error("message of OpenFlow version {version:#x}, type {kind}")]
    Version {
        /// Version in the message header.
        version: u8,
        /// Message type in the header, if it means the same in that version.
        kind: u8,
    },
}

/// Splits a byte stream into complete messages.
///
/// A hello may be of any version, as that is what it is about. So may an error: a switch that finds no common version
/// writes it in its own, and Open vSwitch gets the version wrong when it refuses a flow monitor.
#[derive(Debug, Default)]
pub struct Framer {
    buffer: Vec<u8>,
    start: usize,
}

impl Framer {
    /// With nothing received yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends bytes received from the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        // Each byte is moved at most once on average: only when more lies behind than ahead.
        if self.start > self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete message, if it has been received. After an error there is none.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some(length) = self.next_length()? else {
            return Ok(None);
        };
        let message = self.start..self.start + length;
        self.start = message.end;
        Ok(self.buffer.get(message))
    }

    /// Whether [`Framer::next_message`] has one to give.
    pub fn has_message(&self) -> Result<bool, FrameError> {
        Ok(self.next_length()?.is_some())
    }

    /// How long the next message is, if it has been received whole.
    fn next_length(&self) -> Result<Option<usize>, FrameError> {
        let received = self.buffer.get(self.start..).unwrap_or_default();
        let Ok(header) = Header::decode(&mut Reader::new(received)) else {
            return Ok(None);
        };
        if header.version != OF15 && !matches!(header.kind, kind::HELLO | kind::ERROR) {
            return Err(FrameError::Version { version: header.version, kind: header.kind });
        }
        let length = usize::from(header.length);
        if length < HEADER_LEN {
            return Err(FrameError::Length(header.length));
        }
        Ok((length <= received.len()).then_some(length))
    }

    /// Number of received bytes that are not part of a returned message.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(framer: &mut Framer) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| framer.next_message().unwrap().map(<[u8]>::to_vec)).collect()
    }

    #[test]
    fn a_length_that_is_less_than_a_header_ends_the_stream() {
        let mut framer = Framer::new();
        framer.feed(&[6, 2, 0, 7, 0, 0, 0, 1]);
        assert_eq!(framer.next_message(), Err(FrameError::Length(7)));
        assert_eq!(framer.next_message(), Err(FrameError::Length(7)));
    }

    #[test]
    fn another_version_ends_the_stream_unless_it_is_a_hello_or_an_error() {
        for kind in [0, 1] {
            let mut framer = Framer::new();
            framer.feed(&[4, kind, 0, 8, 0, 0, 0, 1]);
            assert!(framer.next_message().unwrap().is_some());
        }
        let mut framer = Framer::new();
        framer.feed(&[4, 2, 0, 8, 0, 0, 0, 1]);
        assert_eq!(framer.next_message(), Err(FrameError::Version { version: 4, kind: 2 }));
    }

    proptest! {
        #[test]
        fn messages_come_out_whole_however_the_stream_is_cut(
            lengths in prop::collection::vec(0usize..300, 0..40), cuts in prop::collection::vec(1usize..700, 1..40),
            greedy: bool,
        ) {
            let messages: Vec<Vec<u8>> = lengths.iter().map(|length| {
                let mut out = Vec::new();
                crate::header::put_message(&mut out, 2, 7, |out| out.resize(out.len() + length, 0xab)).unwrap();
                out
            }).collect();
            let stream = messages.concat();
            let mut rest = &stream[..];
            let mut framer = Framer::new();
            let mut got = Vec::new();
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                framer.feed(now);
                rest = later;
                if greedy {
                    got.extend(drain(&mut framer));
                } else {
                    got.extend(framer.next_message().unwrap().map(<[u8]>::to_vec));
                }
                if rest.is_empty() {
                    break;
                }
            }
            got.extend(drain(&mut framer));
            prop_assert_eq!(got, messages);
            prop_assert_eq!(framer.pending(), 0);
        }
    }
}
