//! Bodies of responses: complete, streamed or forwarded.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use hyper::body::Incoming;
use tokio::sync::mpsc;

/// A complete body, a stream, or the body of a backend's response.
pub(crate) enum Body {
    Full(Bytes),
    Stream(mpsc::Receiver<Vec<Bytes>>, std::vec::IntoIter<Bytes>),
    Foreign(Incoming),
}

impl Body {
    /// Sends what a channel receives.
    pub(super) fn stream(batches: mpsc::Receiver<Vec<Bytes>>) -> Self {
        Self::Stream(batches, Vec::new().into_iter())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream(batches, current) => loop {
                if let Some(bytes) = current.next() {
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                match batches.poll_recv(context) {
                    Poll::Ready(Some(batch)) => *current = batch.into_iter(),
                    Poll::Ready(None) => return Poll::Ready(None),
                    Poll::Pending => return Poll::Pending,
                }
            },
            Self::Foreign(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_empty(),
            Self::Stream(..) => false,
            Self::Foreign(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Full(bytes) => http_body::SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(..) => http_body::SizeHint::default(),
            Self::Foreign(body) => body.size_hint(),
        }
    }
}

/// Errors are responses, so the service itself never fails.
pub(crate) type Never = Infallible;
