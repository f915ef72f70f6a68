//! A connection with streams that the client opens.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::frame::{CANCEL, Frame, FrameReader, FrameWriter, REFUSED};
use super::headers::Headers;
use crate::{LINGER, QUEUE};

/// Maximum number of streams that a client has opened and not closed.
const MAX_STREAMS: usize = 1000;

/// A connection. Its tasks end with it.
pub(crate) struct Connection {
    opened: mpsc::Receiver<Stream>,
    outgoing: mpsc::Sender<Outgoing>,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

enum Outgoing {
    Frame(Frame),
    /// Send everything before this, and close.
    Close,
}

/// A stream that the client has opened.
pub(crate) struct Stream {
    pub(crate) headers: Headers,
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
}

/// What a stream received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    Data(Bytes),
    /// The client sends no more.
    End,
    /// The client gave up the stream, or the connection is closed.
    Reset,
}

/// The receiving half of a stream. `None` in the queue is the end.
pub(crate) struct Reader(mpsc::Receiver<Option<Bytes>>);

impl Reader {
    pub(crate) async fn next(&mut self) -> Received {
        match self.0.recv().await {
            Some(Some(data)) => Received::Data(data),
            Some(None) => Received::End,
            None => Received::Reset,
        }
    }
}

/// The sending half of a stream.
#[derive(Clone)]
pub(crate) struct Writer {
    stream: u32,
    outgoing: mpsc::Sender<Outgoing>,
}

impl Writer {
    /// Sends data; an error says that the connection is closed.
    pub(crate) async fn write(&self, data: Bytes) -> io::Result<()> {
        self.send(Frame::Data { stream: self.stream, data, fin: false }).await
    }

    /// Sends the end of the data.
    pub(crate) async fn finish(&self) -> io::Result<()> {
        self.send(Frame::Data { stream: self.stream, data: Bytes::new(), fin: true }).await
    }

    /// Gives up the stream.
    pub(crate) async fn reset(&self) -> io::Result<()> {
        self.send(Frame::Reset { stream: self.stream, status: CANCEL }).await
    }

    async fn send(&self, frame: Frame) -> io::Result<()> {
        self.outgoing.send(Outgoing::Frame(frame)).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Connection {
    /// Serves a connection that has been upgraded.
    pub(crate) fn serve<S>(stream: S) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (from, to) = tokio::io::split(stream);
        let (outgoing, frames) = mpsc::channel(QUEUE);
        let (opens, opened) = mpsc::channel(QUEUE);
        let reader = tokio::spawn(read(FrameReader::new(tokio::io::BufReader::new(from)), opens, outgoing.clone()));
        let writer = tokio::spawn(write(FrameWriter::new(tokio::io::BufWriter::new(to)), frames));
        Self { opened, outgoing, reader, writer }
    }

    /// The next stream that the client opens; `None` after the end of the connection.
    pub(crate) async fn opened(&mut self) -> Option<Stream> {
        self.opened.recv().await
    }

    /// Sends what is left, and closes the connection.
    pub(crate) async fn close(mut self) {
        let _ = self.outgoing.send(Outgoing::Close).await;
        let _ = (&mut self.writer).await;
        self.opened.close();
        let _ = tokio::time::timeout(LINGER, &mut self.reader).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
        self.writer.abort();
    }
}

async fn write<S: AsyncWrite>(
    mut to: FrameWriter<tokio::io::BufWriter<WriteHalf<S>>>,
    mut frames: mpsc::Receiver<Outgoing>,
) {
    while let Some(Outgoing::Frame(frame)) = frames.recv().await {
        if let Err(error) = to.write(&frame).await {
            tracing::debug!("cannot write to the client: {error}");
            return;
        }
    }
    // The client may have closed the connection.
    let _ = to.shutdown().await;
}

async fn read<S: AsyncRead>(
    mut from: FrameReader<tokio::io::BufReader<ReadHalf<S>>>,
    opens: mpsc::Sender<Stream>,
    outgoing: mpsc::Sender<Outgoing>,
) {
    let mut streams = Streams { open: BTreeMap::new(), opens, outgoing };
    loop {
        match from.next().await {
            Ok(Some(frame)) => streams.receive(frame).await,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!("cannot read from the client: {error}");
                return;
            }
        }
    }
}

/// The streams on which the client may send.
struct Streams {
    open: BTreeMap<u32, mpsc::Sender<Option<Bytes>>>,
    opens: mpsc::Sender<Stream>,
    outgoing: mpsc::Sender<Outgoing>,
}

impl Streams {
    /// Passes a frame on. Waits while the queue of its stream is full, which slows the client down.
    async fn receive(&mut self, frame: Frame) {
        match frame {
            Frame::SynStream { stream, headers, fin } => self.open(stream, headers, fin).await,
            Frame::Data { stream, data, fin } => {
                let Some(queue) = self.open.get(&stream) else { return };
                // The user of the stream may have dropped it.
                if !data.is_empty() {
                    let _ = queue.send(Some(data)).await;
                }
                if fin {
                    self.end(stream).await;
                }
            }
            Frame::Reset { stream, .. } => drop(self.open.remove(&stream)),
            Frame::Ping(id) => self.send(Frame::Ping(id)).await,
            Frame::GoAway | Frame::SynReply { .. } | Frame::Other => {}
        }
    }

    async fn open(&mut self, stream: u32, headers: Headers, fin: bool) {
        // Clients use odd numbers.
        if stream.is_multiple_of(2) || self.open.contains_key(&stream) || self.open.len() >= MAX_STREAMS {
            return self.send(Frame::Reset { stream, status: REFUSED }).await;
        }
        let (queue, reader) = mpsc::channel(QUEUE);
        self.open.insert(stream, queue);
        if fin {
            self.end(stream).await;
        }
        self.send(Frame::SynReply { stream }).await;
        let writer = Writer { stream, outgoing: self.outgoing.clone() };
        let _ = self.opens.send(Stream { headers, reader: Reader(reader), writer }).await;
    }

    async fn end(&mut self, stream: u32) {
        if let Some(queue) = self.open.remove(&stream) {
            let _ = queue.send(None).await;
        }
    }

    async fn send(&self, frame: Frame) {
        // The writer ends when the connection is closed, and then there is nothing to send.
        let _ = self.outgoing.send(Outgoing::Frame(frame)).await;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tokio::io::DuplexStream;

    /// A client, whose frames are written and read one by one.
    pub(crate) struct Client<S = DuplexStream> {
        pub(crate) reader: FrameReader<ReadHalf<S>>,
        pub(crate) writer: FrameWriter<WriteHalf<S>>,
    }

    pub(crate) fn client<S: AsyncRead + AsyncWrite>(stream: S) -> Client<S> {
        let (from, to) = tokio::io::split(stream);
        Client { reader: FrameReader::new(from), writer: FrameWriter::new(to) }
    }

    impl<S: AsyncRead + AsyncWrite> Client<S> {
        pub(crate) async fn open(&mut self, stream: u32, headers: &[(&str, &str)], fin: bool) {
            let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            self.writer.write(&Frame::SynStream { stream, headers, fin }).await.unwrap();
        }

        pub(crate) async fn send(&mut self, stream: u32, data: &'static str, fin: bool) {
            self.writer.write(&Frame::Data { stream, data: data.into(), fin }).await.unwrap();
        }
    }

    impl<S: AsyncRead + AsyncWrite> Client<S> {
        /// The next stream that the server resets, if the next frame is one.
        pub(crate) async fn reset(&mut self) -> Option<u32> {
            match self.reader.next().await.unwrap().unwrap() {
                Frame::Reset { stream, .. } => Some(stream),
                _ => None,
            }
        }
    }

    /// The data of each stream, when so many streams have ended.
    pub(crate) async fn data<S: AsyncRead + AsyncWrite>(client: &mut Client<S>, ends: usize) -> BTreeMap<u32, String> {
        let (mut received, mut ended) = (BTreeMap::<u32, String>::new(), 0);
        while ended < ends {
            if let Frame::Data { stream, data, fin } = client.reader.next().await.unwrap().unwrap() {
                *received.entry(stream).or_default() += std::str::from_utf8(&data).unwrap();
                ended += usize::from(fin);
            }
        }
        received
    }

    fn pair() -> (Connection, Client) {
        let (here, there) = tokio::io::duplex(1024);
        (Connection::serve(here), client(there))
    }

    #[tokio::test]
    async fn data_flows_both_ways_until_each_side_ends() {
        let (mut server, mut client) = pair();
        client.open(1, &[("StreamType", "data")], false).await;
        client.send(1, "question", true).await;
        let mut stream = server.opened().await.unwrap();
        assert_eq!(stream.headers["streamtype"], "data");
        assert_eq!(stream.reader.next().await, Received::Data("question".into()));
        assert_eq!(stream.reader.next().await, Received::End);
        stream.writer.write("answer".into()).await.unwrap();
        stream.writer.finish().await.unwrap();
        let closed = tokio::spawn(server.close());
        let answer = |text: &'static str, fin| Frame::Data { stream: 1, data: text.into(), fin };
        for expected in [Frame::Other, answer("answer", false), answer("", true)] {
            assert_eq!(client.reader.next().await.unwrap(), Some(expected));
        }
        assert_eq!(client.reader.next().await.unwrap(), None);
        drop(client);
        closed.await.unwrap();
    }

    #[tokio::test]
    async fn a_reset_stream_and_a_lost_connection_are_not_ends() {
        let (mut server, mut client) = pair();
        client.open(1, &[], false).await;
        client.open(3, &[], false).await;
        client.writer.write(&Frame::Reset { stream: 1, status: CANCEL }).await.unwrap();
        let (mut first, mut second) = (server.opened().await.unwrap(), server.opened().await.unwrap());
        assert_eq!(first.reader.next().await, Received::Reset);
        drop(client);
        assert_eq!(second.reader.next().await, Received::Reset);
        assert!(server.opened().await.is_none());
    }

    #[tokio::test]
    async fn pings_are_answered_and_wrong_streams_are_refused() {
        let (mut server, mut client) = pair();
        for stream in [2, 1, 1] {
            client.open(stream, &[], false).await;
        }
        client.writer.write(&Frame::Ping(7)).await.unwrap();
        let refused = |stream| Frame::Reset { stream, status: REFUSED };
        for expected in [refused(2), Frame::Other, refused(1), Frame::Ping(7)] {
            assert_eq!(client.reader.next().await.unwrap(), Some(expected));
        }
        assert!(server.opened().await.is_some());
    }
}
