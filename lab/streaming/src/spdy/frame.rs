//! Frames: control frames with a version and a type, and data frames with a stream.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::headers::{HeaderReader, HeaderWriter, Headers};
use super::invalid;

const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GO_AWAY: u16 = 7;
/// Flag of the last frame that its sender sends on a stream.
const FIN: u8 = 1;
/// The sender no longer needs the stream.
pub(crate) const CANCEL: u32 = 5;
/// The stream was not expected.
pub(crate) const REFUSED: u32 = 3;

/// A frame that matters here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Frame {
    SynStream {
        stream: u32,
        headers: Headers,
        fin: bool,
    },
    SynReply {
        stream: u32,
    },
    Reset {
        stream: u32,
        status: u32,
    },
    Ping(u32),
    GoAway,
    Data {
        stream: u32,
        data: Bytes,
        fin: bool,
    },
    /// Another control frame, which is ignored.
    Other,
}

/// Reads frames; header blocks share one decompressor.
pub(crate) struct FrameReader<R> {
    from: R,
    headers: HeaderReader,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, headers: HeaderReader::new() }
    }

    /// The next frame; `None` after the end of the connection.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Frame>> {
        let first = match self.from.read_u32().await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            first => first?,
        };
        let second = self.from.read_u32().await?;
        let [flags, ..] = second.to_be_bytes();
        let length = second & 0x00ff_ffff;
        let mut payload = Vec::new();
        (&mut self.from).take(u64::from(length)).read_to_end(&mut payload).await?;
        if payload.len() < usize::try_from(length).unwrap_or(usize::MAX) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let fin = flags & FIN != 0;
        if first & 0x8000_0000 == 0 {
            return Ok(Some(Frame::Data { stream: first, data: payload.into(), fin }));
        }
        let [_, _, high, low] = first.to_be_bytes();
        if (first >> 16) & 0x7fff != u32::from(VERSION) {
            return Err(invalid("a frame of another version"));
        }
        self.control(u16::from_be_bytes([high, low]), &payload, fin).map(Some)
    }

    fn control(&mut self, kind: u16, payload: &[u8], fin: bool) -> io::Result<Frame> {
        let word = |at: usize| {
            let bytes = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_be_bytes).ok_or_else(|| invalid("a control frame is too short"))
        };
        let stream = |at: usize| word(at).map(|id| id & 0x7fff_ffff);
        Ok(match kind {
            SYN_STREAM => {
                // The stream, an associated stream, a priority and an unused byte.
                let block = payload.get(10..).ok_or_else(|| invalid("a SYN_STREAM is too short"))?;
                Frame::SynStream { stream: stream(0)?, headers: self.headers.read(block)?, fin }
            }
            RST_STREAM => Frame::Reset { stream: stream(0)?, status: word(4)? },
            PING => Frame::Ping(word(0)?),
            GO_AWAY => Frame::GoAway,
            _ => Frame::Other,
        })
    }
}

/// Writes frames; header blocks are one zlib stream.
pub(crate) struct FrameWriter<W> {
    to: W,
    headers: HeaderWriter,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, headers: HeaderWriter::default() }
    }

    /// Writes a frame, and flushes it.
    pub(crate) async fn write(&mut self, frame: &Frame) -> io::Result<()> {
        match frame {
            Frame::SynStream { stream, headers, fin } => {
                let mut payload = [&stream.to_be_bytes()[..], &[0; 6]].concat();
                payload.extend(self.headers.write(headers));
                self.frame(control(SYN_STREAM), *fin, &payload).await?;
            }
            Frame::SynReply { stream } => {
                let mut payload = stream.to_be_bytes().to_vec();
                payload.extend(self.headers.write(&Headers::new()));
                self.frame(control(SYN_REPLY), false, &payload).await?;
            }
            Frame::Reset { stream, status } => {
                let payload = [stream.to_be_bytes(), status.to_be_bytes()].concat();
                self.frame(control(RST_STREAM), false, &payload).await?;
            }
            Frame::Ping(id) => self.frame(control(PING), false, &id.to_be_bytes()).await?,
            Frame::GoAway => self.frame(control(GO_AWAY), false, &[0; 8]).await?,
            Frame::Data { stream, data, fin } => self.frame(*stream, *fin, data).await?,
            Frame::Other => {}
        }
        self.to.flush().await
    }

    /// Ends the connection for the receiver.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        self.to.shutdown().await
    }

    async fn frame(&mut self, first: u32, fin: bool, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).ok().filter(|length| *length <= 0x00ff_ffff);
        let length = length.ok_or_else(|| invalid("a frame is too long"))?;
        let second = u32::from(if fin { FIN } else { 0 }) << 24 | length;
        self.to.write_all(&[first.to_be_bytes(), second.to_be_bytes()].concat()).await?;
        self.to.write_all(payload).await
    }
}

/// The first word of a control frame.
fn control(kind: u16) -> u32 {
    u32::from(0x8000 | VERSION) << 16 | u32::from(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    async fn read_all(bytes: &[u8]) -> io::Result<Vec<Frame>> {
        let mut reader = FrameReader::new(bytes);
        let mut all = Vec::new();
        while let Some(frame) = reader.next().await? {
            all.push(frame);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn frames_are_read_as_they_were_written() {
        let headers = Headers::from([("streamtype".to_owned(), "data".to_owned())]);
        let frames = [
            Frame::SynStream { stream: 1, headers: headers.clone(), fin: false },
            Frame::SynStream { stream: 3, headers, fin: true },
            Frame::Data { stream: 1, data: Bytes::from(vec![7; 100_000]), fin: false },
            Frame::Data { stream: 1, data: Bytes::new(), fin: true },
            Frame::Reset { stream: 3, status: CANCEL },
            Frame::Ping(9),
            Frame::GoAway,
        ];
        let mut written = Vec::new();
        let mut writer = FrameWriter::new(&mut written);
        for frame in &frames {
            writer.write(frame).await.unwrap();
        }
        assert_eq!(read_all(&written).await.unwrap(), frames);
        assert!(read_all(&written[..written.len() - 1]).await.is_err(), "the last frame is cut");
    }

    #[tokio::test]
    async fn other_control_frames_are_ignored_and_other_versions_are_not() {
        let settings = [0x80, 3, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0];
        assert_eq!(read_all(&settings).await.unwrap(), [Frame::Other]);
        assert!(read_all(&[0x80, 2, 0, 4, 0, 0, 0, 0]).await.is_err());
        assert!(read_all(&[0x80, 3, 0, 6, 0, 0, 0, 1, 0]).await.is_err(), "a PING without an id");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, control: bool) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let start: &[u8] = if control { &[0x80, 3, 0] } else { &[] };
            let _ = runtime.block_on(read_all(&[start, &bytes].concat()));
        }
    }
}
