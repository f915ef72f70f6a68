//! gRPC on hyper's bodies, without buffers that stay: between two messages, a stream has none.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use prost::Message;
use tokio::sync::mpsc;
use tonic::Status;

use crate::control::MOST_BYTES;

/// What is before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// How much the first message may be, which says the name of a Node.
const FIRST_BYTES: usize = 4 << 10;

/// What comes from an agent.
pub(super) struct Messages {
    body: Incoming,
    /// What is left of a message that has not come whole.
    rest: BytesMut,
    /// How many bytes a message may have.
    most: usize,
}

impl Messages {
    /// Of somebody who was not let in yet, and has little to say before.
    pub(super) fn of(body: Incoming) -> Self {
        Self { body, rest: BytesMut::new(), most: FIRST_BYTES }
    }

    /// It was let in.
    pub(super) fn admitted(&mut self) {
        self.most = MOST_BYTES;
    }

    /// The next message; nothing when the agent has said all.
    pub(super) async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Status> {
        loop {
            if let Some(message) = self.whole()? {
                return M::decode(message).map(Some).map_err(|error| Status::invalid_argument(error.to_string()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.rest.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
                Some(Err(error)) => return Err(Status::unavailable(error.to_string())),
                None if self.rest.is_empty() => return Ok(None),
                None => return Err(Status::invalid_argument("the last message is not whole")),
            }
        }
    }

    /// The next message, if it is here.
    fn whole(&mut self) -> Result<Option<Bytes>, Status> {
        let Some((prefix, message)) = self.rest.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let [is_compressed, length @ ..] = *prefix;
        if is_compressed != 0 {
            return Err(Status::unimplemented("messages cannot be compressed"));
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > self.most {
            return Err(Status::resource_exhausted(format!("a message has at most {} bytes here", self.most)));
        }
        if message.len() < length {
            return Ok(None);
        }
        self.rest.advance(PREFIX);
        let message = self.rest.split_to(length).freeze();
        if self.rest.is_empty() {
            // What is empty keeps its memory otherwise.
            self.rest = BytesMut::new();
        }
        Ok(Some(message))
    }
}

/// A message, or why there are no more.
pub(super) type Said = Result<Bytes, Status>;

/// A message as it is on the stream, in just as much memory as it needs.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // There is room.
    let _ = message.encode(&mut bytes);
    bytes.into()
}

/// What is said to an agent. Boxed: a channel keeps places for many, of which one is used.
pub(super) struct Told {
    said: mpsc::Receiver<Box<Said>>,
    ended: bool,
}

impl Told {
    /// The answer that says what comes.
    pub(super) fn answer(said: mpsc::Receiver<Box<Said>>) -> Response<Self> {
        let mut response = Response::new(Self { said, ended: false });
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response
    }
}

impl Body for Told {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let status = match ready!(self.said.poll_recv(context)).map(|said| *said) {
            Some(Ok(message)) => return Poll::Ready(Some(Ok(Frame::data(message)))),
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.ended = true;
        let mut trailers = HeaderMap::new();
        // What cannot be said in a header is left out, and there is a code all the same.
        let _ = status.add_header(&mut trailers);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}
