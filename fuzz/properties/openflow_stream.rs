//! Properties of any bytes on an OpenFlow socket.

use openflow::framer::{FrameError, Framer};
use openflow::message::Message;

/// The messages and the end of the stream do not depend on how the bytes arrive; together they are the stream.
///
/// The first byte determines how the rest is cut into pieces.
pub fn check(data: &[u8]) {
    let Some((cut, stream)) = data.split_first() else { return };
    let whole = frame(std::iter::once(stream));
    assert_eq!(whole, frame(pieces(*cut, stream)), "a stream in pieces means something else");

    let (messages, rest, end) = whole;
    assert_eq!(messages.iter().map(Vec::len).sum::<usize>() + rest, stream.len());
    assert!(stream.starts_with(&messages.concat()));
    assert!(end.is_some() || rest <= usize::from(u16::MAX), "a message that never ends");
    for message in messages {
        if let Err(error) = Message::decode(&message) {
            let _ = error.to_string();
        }
    }
}

/// Pieces of growing and shrinking lengths.
fn pieces(cut: u8, stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = stream;
    let mut length = usize::from(cut);
    std::iter::from_fn(move || {
        length = length * 5 % 61 + 1;
        let (piece, tail) = rest.split_at(length.min(rest.len()));
        rest = tail;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The messages, the number of remaining bytes, and the error that ended the stream.
fn frame<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, usize, Option<FrameError>) {
    let mut framer = Framer::new();
    let mut messages = Vec::new();
    let mut end = None;
    for piece in pieces {
        framer.feed(piece);
        while end.is_none() {
            let announced = framer.has_message();
            match framer.next_message() {
                Ok(Some(message)) => {
                    assert_eq!(announced, Ok(true));
                    messages.push(message.to_vec());
                }
                Ok(None) => {
                    assert_eq!(announced, Ok(false));
                    break;
                }
                Err(error) => {
                    assert_eq!(announced, Err(error));
                    end = Some(error);
                }
            }
        }
    }
    (messages, framer.pending(), end)
}
