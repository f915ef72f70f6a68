//! WebSocket, the server side: frames and messages (RFC 6455).

use std::io;

use base64::Engine as _;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Maximum size of a message in bytes. Clients send pieces of about 32 KiB.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The value of `Sec-WebSocket-Accept` for a client's `Sec-WebSocket-Key`.
pub(crate) fn accept_key(key: &str) -> String {
    let digest = sha1_smol::Sha1::from(format!("{key}{GUID}")).digest().bytes();
    base64::engine::general_purpose::STANDARD.encode(digest)
}

/// What a frame contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    const ALL: [(Self, u8); 6] = [
        (Self::Continuation, 0),
        (Self::Text, 1),
        (Self::Binary, 2),
        (Self::Close, 8),
        (Self::Ping, 9),
        (Self::Pong, 10),
    ];

    fn read(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, number)| *number == code).map(|(opcode, _)| opcode)
    }

    fn code(self) -> u8 {
        Self::ALL.into_iter().find(|(opcode, _)| *opcode == self).map_or(0, |(_, number)| number)
    }

    fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// A message of the client. Text is not different from binary data here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    Data(Bytes),
    Ping(Bytes),
    /// The client closes the connection.
    Close,
}

/// Normal closure, which tells clients that the streams are complete.
pub(crate) const CLOSE_NORMAL: [u8; 2] = 1000_u16.to_be_bytes();

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("WebSocket: {why}"))
}

/// Reads messages, and joins those that arrive in parts.
pub(crate) struct Reader<R> {
    from: R,
    /// The parts of a message that arrived so far.
    partial: Option<BytesMut>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, partial: None }
    }

    /// The next message; `None` after the end of the connection. Not to be cancelled and called again.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Message>> {
        loop {
            let Some((fin, opcode, payload)) = self.frame().await? else { return Ok(None) };
            match opcode {
                Opcode::Close => return Ok(Some(Message::Close)),
                Opcode::Ping => return Ok(Some(Message::Ping(payload.freeze()))),
                Opcode::Pong => continue,
                Opcode::Continuation => match &mut self.partial {
                    Some(partial) if partial.len() + payload.len() > MAX_MESSAGE => {
                        return Err(invalid("the message is too long"));
                    }
                    Some(partial) => partial.extend_from_slice(&payload),
                    None => return Err(invalid("a continuation without a beginning")),
                },
                Opcode::Text | Opcode::Binary if self.partial.is_some() => {
                    return Err(invalid("a message within another"));
                }
                Opcode::Text | Opcode::Binary => self.partial = Some(payload),
            }
            if fin && let Some(whole) = self.partial.take() {
                return Ok(Some(Message::Data(whole.freeze())));
            }
        }
    }

    async fn frame(&mut self) -> io::Result<Option<(bool, Opcode, BytesMut)>> {
        let first = match self.from.read_u8().await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            first => first?,
        };
        if first & 0x70 != 0 {
            return Err(invalid("an extension that was not negotiated"));
        }
        let opcode = Opcode::read(first & 0x0f).ok_or_else(|| invalid("an unknown opcode"))?;
        let second = self.from.read_u8().await?;
        let length = match second & 0x7f {
            126 => u64::from(self.from.read_u16().await?),
            127 => self.from.read_u64().await?,
            short => u64::from(short),
        };
        let fin = first & 0x80 != 0;
        if opcode.is_control() && (length > 125 || !fin) {
            return Err(invalid("a control frame that is too long"));
        }
        if second & 0x80 == 0 {
            return Err(invalid("a frame of a client without a mask"));
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= MAX_MESSAGE);
        let length = length.ok_or_else(|| invalid("the message is too long"))?;
        let mut mask = [0; 4];
        self.from.read_exact(&mut mask).await?;
        // Memory grows with what arrives, not with what is announced.
        let mut payload = BytesMut::with_capacity(length.min(crate::CHUNK));
        let arrived = (&mut self.from).take(length as u64);
        tokio::pin!(arrived);
        while arrived.read_buf(&mut payload).await? > 0 {}
        if payload.len() < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        Ok(Some((fin, opcode, payload)))
    }
}

/// Writes a frame with a whole message. The payload may be given in two parts.
pub(crate) async fn write<W: AsyncWrite + Unpin>(to: &mut W, opcode: Opcode, parts: [&[u8]; 2]) -> io::Result<()> {
    let length = parts[0].len() + parts[1].len();
    let mut head = vec![0x80 | opcode.code()];
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..126), _) => head.push(short),
        (_, Ok(medium)) => {
            head.push(126);
            head.extend(medium.to_be_bytes());
        }
        _ => {
            head.push(127);
            head.extend((length as u64).to_be_bytes());
        }
    }
    for part in [&head, parts[0], parts[1]] {
        to.write_all(part).await?;
    }
    to.flush().await
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame as a client sends it.
    pub(crate) fn masked(fin: bool, opcode: Opcode, payload: &[u8]) -> Vec<u8> {
        let mask = [0x37, 0xfa, 0x21, 0x3d];
        let mut frame = vec![u8::from(fin) << 7 | opcode.code()];
        match payload.len() {
            short @ 0..126 => frame.push(0x80 | u8::try_from(short).unwrap()),
            long => {
                frame.push(0x80 | 127);
                frame.extend((long as u64).to_be_bytes());
            }
        }
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    fn read(bytes: &[u8]) -> Vec<io::Result<Message>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut reader = Reader::new(bytes);
            let mut all = Vec::new();
            loop {
                match reader.next().await {
                    Ok(None) => return all,
                    Ok(Some(message)) => all.push(Ok(message)),
                    Err(error) => {
                        all.push(Err(error));
                        return all;
                    }
                }
            }
        })
    }

    #[test]
    fn the_key_of_the_specification_is_accepted() {
        // RFC 6455, section 1.3.
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn frames_of_the_specification_are_read() {
        // RFC 6455, section 5.7.
        let hello = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        assert_eq!(read(&hello)[0].as_ref().unwrap(), &Message::Data("Hello".into()));
        let parts = [
            masked(false, Opcode::Text, b"He"),
            masked(true, Opcode::Ping, b"p"),
            masked(true, Opcode::Continuation, b"llo"),
        ];
        let messages: Vec<_> = read(&parts.concat()).into_iter().map(Result::unwrap).collect();
        assert_eq!(messages, [Message::Ping("p".into()), Message::Data("Hello".into())]);
    }

    #[test]
    fn messages_of_all_lengths_arrive() {
        for length in [0, 125, 126, 65_535, 65_536] {
            let (payload, runtime) = (vec![7; length], tokio::runtime::Builder::new_current_thread().build().unwrap());
            let mut written = Vec::new();
            runtime.block_on(write(&mut written, Opcode::Binary, [&payload, &[]])).unwrap();
            // A client masks what it sends.
            let head = written.len() - length;
            written[1] |= 0x80;
            written.splice(head..head, [0; 4]);
            assert_eq!(read(&written)[0].as_ref().unwrap(), &Message::Data(payload.into()), "{length}");
        }
    }

    #[test]
    fn invalid_frames_are_errors() {
        let unmasked = [0x82, 0x01, 0x00];
        let huge = [[0x82, 0xff].as_slice(), &u64::MAX.to_be_bytes(), &[0; 4]].concat();
        let extension = [0xc2, 0x80, 0, 0, 0, 0];
        let lonely = masked(true, Opcode::Continuation, b"x");
        let nested = [masked(false, Opcode::Binary, b"x"), masked(true, Opcode::Binary, b"y")].concat();
        let cut = masked(true, Opcode::Binary, b"xyz")[..7].to_vec();
        for bytes in [unmasked.to_vec(), huge, extension.to_vec(), lonely, nested, cut] {
            assert!(read(&bytes).last().unwrap().is_err(), "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            read(&bytes);
        }

        #[test]
        fn a_message_arrives_as_it_was_sent(payload in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let messages = read(&masked(true, Opcode::Binary, &payload));
            prop_assert_eq!(messages[0].as_ref().unwrap(), &Message::Data(payload.into()));
        }
    }
}
