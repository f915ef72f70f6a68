//! gRPC framing on hyper's bodies. No buffer is kept between two messages.

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

use crate::control::MAX_MESSAGE_BYTES;

/// The gRPC message header: compression flag and length.
const PREFIX: usize = 5;

/// The size limit of the first message, before authentication.
const MAX_HELLO_BYTES: usize = 4 << 10;

/// The messages of an agent.
pub(super) struct Messages {
    body: Incoming,
    /// The start of an incomplete message.
    rest: BytesMut,
    /// The size limit of a message.
    limit: usize,
}

impl Messages {
    /// Messages of an agent that is not authenticated yet.
    pub(super) fn of(body: Incoming) -> Self {
        Self { body, rest: BytesMut::new(), limit: MAX_HELLO_BYTES }
    }

    /// The agent was authenticated: it may send larger messages.
    pub(super) fn admitted(&mut self) {
        self.limit = MAX_MESSAGE_BYTES;
    }

    /// The next message; `None` at the end of the stream.
    pub(super) async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Status> {
        loop {
            if let Some(message) = self.whole()? {
                return M::decode(message).map(Some).map_err(|error| Status::invalid_argument(error.to_string()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.rest.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
                Some(Err(error)) => return Err(Status::unavailable(error.to_string())),
                None if self.rest.is_empty() => return Ok(None),
                None => return Err(Status::invalid_argument("the last message is truncated")),
            }
        }
    }

    /// The next message, if it is complete.
    fn whole(&mut self) -> Result<Option<Bytes>, Status> {
        let Some((prefix, message)) = self.rest.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let [is_compressed, length @ ..] = *prefix;
        if is_compressed != 0 {
            return Err(Status::unimplemented("compressed messages are not supported"));
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > self.limit {
            return Err(Status::resource_exhausted(format!("the message is larger than {} bytes", self.limit)));
        }
        if message.len() < length {
            return Ok(None);
        }
        self.rest.advance(PREFIX);
        let message = self.rest.split_to(length).freeze();
        if self.rest.is_empty() {
            // Frees the buffer.
            self.rest = BytesMut::new();
        }
        Ok(Some(message))
    }
}

/// An encoded message, or the status that ends the stream.
pub(super) type StreamItem = Result<Bytes, Status>;

/// Encodes a message with its header, into a buffer of the exact size.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // The buffer is large enough.
    let _ = message.encode(&mut bytes);
    bytes.into()
}

/// The response body of a stream. Items are boxed, since the channel allocates many slots and uses one.
pub(super) struct StreamBody {
    items: mpsc::Receiver<Box<StreamItem>>,
    ended: bool,
}

impl StreamBody {
    /// The response with this body.
    pub(super) fn answer(items: mpsc::Receiver<Box<StreamItem>>) -> Response<Self> {
        let mut response = Response::new(Self { items, ended: false });
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let status = match ready!(self.items.poll_recv(context)).map(|item| *item) {
            Some(Ok(message)) => return Poll::Ready(Some(Ok(Frame::data(message)))),
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.ended = true;
        let mut trailers = HeaderMap::new();
        // A message that does not fit into a header is dropped; the code is always sent.
        let _ = status.add_header(&mut trailers);
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}
